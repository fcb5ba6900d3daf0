// Converts values of the file to values of the IR: element types, constants, views as tensors.
#pragma once

#include "ImportState.h"

namespace zorse::onnx_import {

class OpContext;

/// Factors of an operand in the order and grouping that an op expects.
using Groups = std::vector<FactorList>;

/// Whether the elements at offset + (positions of the factors) do not depend on factor `which`.
/// \param most  max elements to compare; returns false if there are more
bool repeats(const Lazy &lazy, int64_t offset, const FactorList &factors, size_t which,
             int64_t max);

/// The IR element type for an element type of the file. All floats have the compute type.
mlir::Type elementType(const ImportState &state, ElementKind kind);
/// Whether the emitted value has a sample dimension.
bool isBatched(const ImportedValue &value);
bool isBatched(mlir::Value value);
/// Number of elements of one row of samples.
int64_t perRow(mlir::Value value);
ImportedValue wrap(mlir::Value value, ElementKind type,
                   std::vector<int64_t> shape); ///< contiguous; `rows` in the shape becomes `?`
/// A constant with these elements in row-major order.
ImportedValue constantOf(ElementKind kind, LazyPtr lazy, std::vector<int64_t> shape);
/// The constant for a tensor of the file.
ImportedValue constantOf(const onnx::Tensor &tensor, TensorBytes bytes);
/// The runs of `count` elements that begin at `begins` in a constant with contiguous elements.
ImportedValue runsOf(const ImportedValue &whole, const std::vector<int64_t> &begins, int64_t count,
                     std::vector<int64_t> shape);
/// A constant of rank 0.
ImportedValue scalar(ElementKind kind, double value);
/// Returns the first result of an operation. If an equal operation exists, returns its result and
/// erases `op`.
mlir::Value merge(ImportState &state, mlir::Operation *op);
/// Creates an operation at the current node, or returns its equal if one exists.
template <typename Op, typename... Args> mlir::Value create(ImportState &state, Args &&...args) {
  return merge(state, Op::create(state.builder, state.location, std::forward<Args>(args)...));
}
/// Creates an operation by name and merges it with an equal one.
mlir::Value createNamed(ImportState &state, llvm::StringRef name, mlir::ValueRange operands,
                        mlir::Type type);
/// Emits the operand as a tensor with the sizes of the groups, preceded by `?` if `sampled`.
mlir::Value materialise(ImportState &state, const ImportedValue &value, const Groups &groups,
                        bool sampled);
mlir::Value materialise(ImportState &state, const ImportedValue &value, bool dropOnes = true);
/// Broadcasts a value to `shape`. `dims`: positions of the value's dimensions in `shape`.
mlir::Value broadcastTo(ImportState &state, mlir::Value value, llvm::ArrayRef<int64_t> dims,
                        llvm::ArrayRef<int64_t> shape);
mlir::Value reshapeTo(ImportState &state, mlir::Value value, llvm::ArrayRef<int64_t> shape);
/// A tensor in which all elements are `value`.
mlir::Value splat(ImportState &state, double value, mlir::RankedTensorType type);
/// One group per axis of the view, in order, without the sample axis. Drops axes of size 1 if
/// `dropOnes`.
Groups groupsOf(const View &view, bool dropOnes);
/// The same elements, contiguous in the order of the axes.
ImportedValue copied(ImportState &state, const ImportedValue &value);
/// Reshapes a value, as a view if possible. Reports an error if the number of elements differs or
/// samples would be mixed.
mlir::FailureOr<ImportedValue> reshaped(OpContext &op, const ImportedValue &value,
                                        const std::vector<int64_t> &shape);
ImportedValue compressed(const ImportState &state,
                         const ImportedValue &value); ///< a constant in which repeating axes have
                                                      ///< stride 0
/// All elements of a constant as integers. None if it is not constant or has more than `limit`
/// elements.
std::optional<std::vector<int64_t>> constantInts(const ImportedValue &value,
                                                 int64_t limit = 1 << 20);
/// The element of a constant with one element.
std::optional<int64_t> constantInt(const ImportedValue &value);
std::optional<std::vector<double>> constantFloats(const ImportedValue &value,
                                                  int64_t limit = 1 << 20);
/// The value that all elements of a constant share. None if they differ or the value is not
/// constant.
std::optional<double> uniformValue(const ImportState &state, const ImportedValue &value);
/// Casts to another type. A loss is not changed.
ImportedValue castTo(ImportState &state, const ImportedValue &value, ElementKind type);
/// Rounds a float value and its gradient to a 16-bit type. Other types are not changed.
ImportedValue rounded(ImportState &state, const ImportedValue &value, ElementKind type);
/// Rounds the 16-bit results of a node, as PyTorch rounds the result of every operator.
void roundResults(OpContext &op);
mlir::Value sumPerSample(ImportState &state, mlir::Value value); ///< sums [?, ...] to [?]

} // namespace zorse::onnx_import
