// A node as the function that imports its operator sees it: operands, attributes, results, errors.
#pragma once

#include "Emit.h"
#include "Operators.h"

namespace zorse::onnx_import {

class OpContext {
public:
  OpContext(ImportState &state, const GraphNode &node)
      : state(state), node(node), rule(registrationOf(node)) {}

  ImportState &state;
  const GraphNode &node;
  const Registration *const rule; ///< null: the operator is not known

  /// The operand, absent if the node does not have it. The registration specifies which operands
  /// are always present.
  const ImportedValue &operand(size_t index) const;
  /// All operands from `first` on.
  std::vector<ImportedValue> operands(size_t first = 0) const;
  bool has(size_t index) const { return static_cast<bool>(operand(index)); }
  /// The name of an operand for messages: the parameter that it is, or the name of the value.
  std::string nameOf(size_t index) const;
  void set(size_t index, ImportedValue value);
  /// Sets the first result. \returns success
  mlir::LogicalResult result(ImportedValue value) {
    return set(0, std::move(value)), mlir::success();
  }
  mlir::LogicalResult result(mlir::FailureOr<ImportedValue> value) {
    return mlir::failed(value) ? mlir::failure() : result(std::move(*value));
  }
  ImportedValue &result() {
    return state.values[node.outputs[0]];
  } ///< the first result after it was set
  bool isUsed(size_t output) const; ///< by another node or as a graph output
  /// Reports an error of the node, with its operands. \returns failure
  mlir::LogicalResult error(const llvm::Twine &message) const;

  // Attributes as they are registered. If the file omits one, it has its registered default.
  const onnx::Attribute *attribute(llvm::StringRef name) const; ///< null if the file omits it
  int64_t integer(llvm::StringRef name) const;
  double real(llvm::StringRef name) const;
  std::string text(llvm::StringRef name) const;
  /// Nothing if it has neither a value nor a registered default.
  std::optional<std::vector<int64_t>> integers(llvm::StringRef name) const;
  /// An attribute with a default that depends on the operands.
  int64_t integer(llvm::StringRef name, int64_t otherwise) const;
  /// The attribute `axis`, counted from the front; -1 if it is out of range.
  int64_t axis(int64_t rank) const;
  /// Axes from operand `index` or from the attribute `axes`, normalized to be non-negative. Reports
  /// an error and fails if an axis is out of range for `rank`.
  mlir::LogicalResult axes(size_t index, int64_t rank,
                           std::optional<std::vector<int64_t>> &axes) const;
};

} // namespace zorse::onnx_import
