// What the uses of an initializer say about it, where the file itself says nothing.
#pragma once

#include "Graph.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <map>

namespace zorse::onnx_import {

/// Whether an exporter made this name up, or may have.
bool looksRenamed(llvm::StringRef name);

/// Ambiguous: parameters look like this, and so do constants.
enum class Guess : uint8_t { Constant, Trained, Ambiguous };

/// The uses of values in a graph of which nothing has been interpreted yet.
class Uses {
public:
  Uses(const FlatGraph &graph, const std::vector<int> &wanted);

  /// What an initializer of floats is.
  /// \param read  its elements as doubles; empty where they cannot be read
  Guess guess(int value, const onnx::Tensor &tensor, const std::function<std::vector<double>(int64_t)> &read) const;
  /// The likelier of the two where `guess` is ambiguous.
  bool isProbablyTrained(int value, const onnx::Tensor &tensor) const;
  /// Whether it is what an embedding looks up.
  bool isTable(int value) const;
  /// A gradient of the wanted values would reach it.
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
  llvm::DenseSet<int> data; ///< depends on the data of an input, not only on its shape
  llvm::DenseSet<int> differentiated;
  mutable std::map<int, bool> softmax;
};

} // namespace zorse::onnx_import
