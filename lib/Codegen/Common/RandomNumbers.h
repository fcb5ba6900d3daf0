// The keyed random numbers of abi/Random.h in kernels: bits are those of processors, whatever makes the kernel.
#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen {

/// The stream (i64) of one sample in this step. One for all its elements, so it belongs before loops.
/// \param scalars  operand: the SCALARS block
/// \param sample   i64, in the call; null: of what has no samples, one stream for all cells
mlir::Value randomStream(KernelBuilder &k, unsigned scalars, int64_t instance, mlir::Value sample);

/// What a kernel needs to know of a dropout, and what follows from whether the step trains: nothing is dropped or scaled in evaluation.
struct DropoutRule {
  mlir::Value threshold; ///< i64
  mlir::Value factor;    ///< of what is kept, of type `number`
};
DropoutRule dropoutRule(KernelBuilder &k, unsigned scalars, double probability, mlir::Type number);

/// i1: whether element `element` (i64, row-major in the unsplit sample) is kept.
mlir::Value isKept(KernelBuilder &k, mlir::Value stream, mlir::Value element, const DropoutRule &rule);

} // namespace zorse::codegen
