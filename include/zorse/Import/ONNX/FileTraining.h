// What an ONNX file says of training: which parameters, by which optimizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// An optimizer as the file has it, in the words of docs/training.md.
struct FileOptimizer {
  enum class Kind { Sgd, Adam, AdamW } kind = Kind::Sgd;
  std::string node;                   ///< for messages: "Adam 'update'"
  std::optional<double> learningRate; ///< where the file fixes it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool plainEpsilon = false; ///< epsilon is added to the root of the second moment before that is corrected
  double weightDecay = 0;    ///< of all trained parameters
  double momentum = 0;
  bool nesterov = false;

  bool operator==(const FileOptimizer &other) const {
    return kind == other.kind && learningRate == other.learningRate && beta1 == other.beta1 && beta2 == other.beta2 && epsilon == other.epsilon &&
           plainEpsilon == other.plainEpsilon && weightDecay == other.weightDecay && momentum == other.momentum && nesterov == other.nesterov;
  }
};

struct FileTraining {
  std::string form;                 ///< "training_info", "training artifacts of onnxruntime"
  std::string loss;                 ///< name of the value that is minimised
  std::vector<std::string> trained; ///< initializers; all others are frozen
  std::optional<FileOptimizer> optimizer;
  std::vector<std::string> notes;
};

} // namespace zorse
