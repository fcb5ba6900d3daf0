// The counter-based random numbers of abi/Random.h in kernels. All targets give the same bits.
#pragma once

#include "KernelBuilder.h"

namespace zorse::codegen {

/// Returns the random stream (i64) of one sample in this step. It is the same for all elements of
/// the sample; call this outside of loops.
/// \param scalars  operand number of the SCALARS block
/// \param sample   i64, index of the sample in the call; null for values without samples, which
/// share one stream across all cells
mlir::Value randomStream(KernelBuilder &k, unsigned scalars, int64_t rngId, mlir::Value sample);

/// Threshold and scale factor of a dropout in this step. Evaluation drops and scales nothing.
struct DropoutRule {
  mlir::Value threshold; ///< i64
  mlir::Value factor;    ///< scale of kept elements, of type `number`
};
DropoutRule dropoutRule(KernelBuilder &k, unsigned scalars, double probability, mlir::Type number);

/// i1: whether element `element` (i64, row-major in the unsplit sample) is kept.
mlir::Value isKept(KernelBuilder &k, mlir::Value stream, mlir::Value element,
                   const DropoutRule &rule);

} // namespace zorse::codegen
