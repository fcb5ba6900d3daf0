// One node, as the function that imports its operator sees it: operands, attributes, results, errors.
#pragma once

#include "Emit.h"
#include "Operators.h"

namespace zorse::onnx_import {

class OpContext {
public:
  OpContext(ImportState &state, const GraphNode &node) : state(state), node(node), rule(registrationOf(node)) {}

  ImportState &state;
  const GraphNode &node;
  const Registration *const rule; ///< null: the operator is not known

  /// Absent where the node has no such operand. The registration says which are always there.
  const ImportedValue &operand(size_t index) const;
  /// All from `first` on.
  std::vector<ImportedValue> operands(size_t first = 0) const;
  bool has(size_t index) const { return static_cast<bool>(operand(index)); }
  /// What a user knows an operand as: the parameter it is, or the name of the value.
  std::string nameOf(size_t index) const;
  void set(size_t index, ImportedValue value);
  /// Sets the first result. \returns success
  mlir::LogicalResult result(ImportedValue value) { return set(0, std::move(value)), mlir::success(); }
  mlir::LogicalResult result(mlir::FailureOr<ImportedValue> value) { return mlir::failed(value) ? mlir::failure() : result(std::move(*value)); }
  ImportedValue &result() { return state.values[node.outputs[0]]; } ///< as it has been set
  bool isUsed(size_t output) const;                                 ///< by another node
  /// Reports an error at the node, with its operands. \returns failure
  mlir::LogicalResult error(const llvm::Twine &message) const;

  // Attributes, as they are registered: where the file leaves one out it is the registered default.
  const onnx::Attribute *attribute(llvm::StringRef name) const; ///< null if the file leaves it out
  int64_t integer(llvm::StringRef name) const;
  double real(llvm::StringRef name) const;
  std::string text(llvm::StringRef name) const;
  std::optional<std::vector<int64_t>> integers(llvm::StringRef name) const; ///< none: neither given nor registered
  /// One whose default follows from the operands.
  int64_t integer(llvm::StringRef name, int64_t otherwise) const;
  /// The attribute `axis`, counted from the front; -1: it is outside.
  int64_t axis(int64_t rank) const;
  /// Axes from an attribute or from operand `index`; normalised to be non-negative. Fails after an error where they are none of `rank`.
  mlir::LogicalResult axes(size_t index, int64_t rank, std::optional<std::vector<int64_t>> &axes) const;
};

} // namespace zorse::onnx_import
