// Infers the role of an initializer from its uses, if the file does not specify it.
#pragma once

#include "Graph.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <map>

namespace zorse::onnx_import {

/// Whether an exporter made up this name, or may have done so.
bool looksRenamed(llvm::StringRef name);

/// Inferred role. Ambiguous: parameters and constants can look like this.
enum class InferredRole : uint8_t { Constant, Trained, Ambiguous };

/// The uses of values in a graph that has not been interpreted yet.
class Uses {
public:
  Uses(const FlatGraph &graph, const std::vector<int> &wanted);

  /// Infers the role of an initializer of floats.
  /// \param read  reads its elements as doubles; returns an empty list if they cannot be read
  InferredRole inferred(int value, const onnx::Tensor &tensor,
                        const std::function<std::vector<double>(int64_t)> &read) const;
  /// Resolves an ambiguous `inferred`: whether the initializer is more likely trained than
  /// constant.
  bool isProbablyTrained(int value, const onnx::Tensor &tensor) const;
  /// Whether the value is the table of an embedding.
  bool isTable(int value) const;
  /// Whether a gradient of the wanted values reaches the value.
  bool getsGradient(int value) const { return differentiated.contains(value); }

private:
  struct Use {
    const GraphNode *node;
    size_t position;
  };
  const std::vector<Use> &of(int value) const;
  bool dependsOnData(const GraphNode &node, size_t operand) const;
  bool reachesSoftmax(int value, int depth) const;
  bool isPlain(int value, const onnx::Tensor &tensor, int depth) const;
  bool isTrained(int value, int64_t rank, bool named, int depth) const;
  bool endsInAngles(int value, int depth) const;

  std::map<int, std::vector<Use>> users;
  llvm::DenseSet<int> data; ///< values that depend on the data of an input, not only on its shape
  llvm::DenseSet<int> differentiated;
  mutable std::map<int, bool> softmax;
};

} // namespace zorse::onnx_import
