// Training settings stored in an ONNX file: trained parameters, loss and optimizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// An optimizer stored in the file, in the terms of docs/reference/training.md.
struct FileOptimizer {
  enum class Kind { Sgd, Adam, AdamW } kind = Kind::Sgd;
  std::string node;                   ///< for messages: "Adam 'update'"
  std::optional<double> learningRate; ///< set if the file fixes it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool plainEpsilon = false; ///< adds epsilon to the square root of the second moment before bias
                             ///< correction
  double weightDecay = 0;    ///< applies to all trained parameters
  double momentum = 0;
  bool nesterov = false;

  bool operator==(const FileOptimizer &other) const {
    return kind == other.kind && learningRate == other.learningRate && beta1 == other.beta1 &&
           beta2 == other.beta2 && epsilon == other.epsilon && plainEpsilon == other.plainEpsilon &&
           weightDecay == other.weightDecay && momentum == other.momentum &&
           nesterov == other.nesterov;
  }
};

struct FileTraining {
  std::string form;                 ///< "training_info" or "training artifacts of onnxruntime"
  std::string loss;                 ///< name of the minimized value
  std::vector<std::string> trained; ///< initializers; all others are frozen
  std::optional<FileOptimizer> optimizer;
  std::vector<std::string> notes;
};

} // namespace zorse
