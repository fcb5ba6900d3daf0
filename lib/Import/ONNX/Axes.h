// Common axes of operands, and the loops over them that elementwise operators are.
#pragma once

#include "Emit.h"
#include "OpContext.h"

namespace zorse::onnx_import {

/// A loop axis of an op over several operands.
struct Axis {
  int64_t size = 1;
  bool sample = false;          ///< an operand differs between samples along it
  bool perSample = false;       ///< it has one element per sample
  int64_t dim = 0;              ///< of the broadcast shape
  int64_t order = 0;            ///< position in the file's order of axes
  std::vector<int64_t> strides; ///< one per operand
};

/// What is emitted of axes: which of them make a dimension together.
struct Loop {
  std::vector<std::vector<const Axis *>> groups; ///< emitted dimensions, without the sample axis
  bool sampled = false;
  std::vector<int64_t> shape; ///< of the IR type, with kDynamic
};

/// Brings operands to common axes, broadcasting as ONNX does. Fixes operands whose rows are baked copies.
mlir::LogicalResult align(OpContext &op, std::vector<ImportedValue> &operands, std::vector<Axis> &axes, std::vector<int64_t> &shape);
/// Whether `align` has left the place of an operand's elements as it was.
inline bool isSame(const ImportedValue &aligned, const ImportedValue &before) { return !before.isTensor() || aligned.value() == before.value(); }
/// Into the order in which the largest operand that carries samples lies in memory, so that no copy is made for it.
void orderAxes(const std::vector<ImportedValue> &operands, std::vector<Axis> &axes);
/// The dimensions that these axes make; those along which no operand moves make none.
Loop makeLoop(const std::vector<Axis> &axes);
/// Operand `index` of the axes as a tensor in the dimensions of the loop.
mlir::Value operandOf(ImportState &state, const ImportedValue &value, size_t index, const Loop &loop);
/// The view of a value emitted over `loop` (plus `inner` sizes behind), with the broadcast shape.
ImportedValue resultOf(mlir::Value value, ElementKind type, const std::vector<Axis> &axes, const Loop &loop, const std::vector<int64_t> &shape);
/// Sets the result to `scale` times what `body` makes of the operands on common axes. Fails after an error.
mlir::LogicalResult emitElementwise(OpContext &op, std::vector<ImportedValue> operands, ElementKind type,
                                    llvm::function_ref<mlir::Value(mlir::ValueRange, mlir::RankedTensorType)> body, Number scale = 1.0);
/// The same of constants, which are computed when their elements are read.
ImportedValue foldElementwise(ImportState &state, std::vector<ImportedValue> operands, ElementKind type, Kernel kernel);

} // namespace zorse::onnx_import
