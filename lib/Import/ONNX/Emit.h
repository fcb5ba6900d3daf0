// From values of the file to values of the IR: types, constants, views as tensors, types of elements.
#pragma once

#include "ImportState.h"

namespace zorse::onnx_import {

class OpContext;

/// A factor of an operand in the order and grouping in which an op wants it.
using Groups = std::vector<FactorList>;

/// Whether the elements at offset + (positions of the factors) do not depend on factor `which`.
/// \param most  elements that are compared; of more it is taken that it does not
bool repeats(const Lazy &lazy, int64_t offset, const FactorList &factors, size_t which, int64_t most);

/// The element type that values of a type of the file have: floats are computed in one type.
mlir::Type elementType(const ImportState &state, ElementKind kind);
/// Whether what is emitted of it has a dimension of samples.
bool isSampled(const ImportedValue &value);
bool isSampled(mlir::Value value);
/// Elements of one row of samples.
int64_t perRow(mlir::Value value);
ImportedValue wrap(mlir::Value value, ElementKind type, std::vector<int64_t> shape); ///< contiguous; the shape has `rows` for `?`
/// A constant with these elements, one after the other.
ImportedValue constantOf(ElementKind kind, LazyPtr lazy, std::vector<int64_t> shape);
/// A tensor of the file.
ImportedValue constantOf(const onnx::Tensor &tensor, TensorBytes bytes);
/// The runs of `count` elements that begin at these places of a constant whose elements lie one after the other.
ImportedValue runsOf(const ImportedValue &whole, const std::vector<int64_t> &begins, int64_t count, std::vector<int64_t> shape);
/// A constant of rank 0.
ImportedValue scalar(ElementKind kind, double value);
/// The first result of an operation, or of its equal that is there already; then the operation is erased.
mlir::Value merge(ImportState &state, mlir::Operation *op);
/// An operation at the node at hand; its equal, where there is one.
template <typename Op, typename... Args> mlir::Value create(ImportState &state, Args &&...args) {
  return merge(state, Op::create(state.builder, state.location, std::forward<Args>(args)...));
}
/// An operation by its name, merged with its equal.
mlir::Value createNamed(ImportState &state, llvm::StringRef name, mlir::ValueRange operands, mlir::Type type);
/// The operand as a tensor of the groups' sizes (in front `?` if `sampled`).
mlir::Value materialise(ImportState &state, const ImportedValue &value, const Groups &groups, bool sampled);
mlir::Value materialise(ImportState &state, const ImportedValue &value, bool dropOnes = true);
/// `dims`: where the dimensions of the value lie in `shape`.
mlir::Value broadcastTo(ImportState &state, mlir::Value value, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> shape);
mlir::Value reshapeTo(ImportState &state, mlir::Value value, llvm::ArrayRef<int64_t> shape);
/// One number throughout.
mlir::Value splat(ImportState &state, double value, mlir::RankedTensorType type);
/// One group per axis of the view, in its order, without the sample axis; size-1 axes are dropped if `dropOnes`.
Groups groupsOf(const View &view, bool dropOnes);
/// The same elements, one after the other in the order of the axes.
ImportedValue copied(ImportState &state, const ImportedValue &value);
/// The elements in another shape, by view where possible. Fails after an error where they are of another number, or samples would be mixed.
mlir::FailureOr<ImportedValue> reshaped(OpContext &op, const ImportedValue &value, const std::vector<int64_t> &shape);
ImportedValue compressed(const ImportState &state, const ImportedValue &value); ///< a constant whose repeating axes have stride 0
/// All elements of a constant operand as integers, at most `limit`.
std::optional<std::vector<int64_t>> constantInts(const ImportedValue &value, int64_t limit = 1 << 20);
/// That of a constant of one element.
std::optional<int64_t> constantInt(const ImportedValue &value);
std::optional<std::vector<double>> constantFloats(const ImportedValue &value, int64_t limit = 1 << 20);
/// The one number of all elements of a constant; none: they differ, or it is no constant.
std::optional<double> uniformValue(const ImportState &state, const ImportedValue &value);
/// As another type. A loss stays what it is.
ImportedValue castTo(ImportState &state, const ImportedValue &value, ElementKind type);
/// A float value rounded to a 16-bit type, and so is its gradient; others are as they are.
ImportedValue rounded(ImportState &state, const ImportedValue &value, ElementKind type);
/// Rounds the results of a node whose types have 16 bits, as PyTorch rounds what every operator returns.
void roundResults(OpContext &op);
mlir::Value sumPerSample(ImportState &state, mlir::Value value); ///< [?, ...] to [?]

} // namespace zorse::onnx_import
