// How far a kernel's results may be from those of exact arithmetic: an analysis of rounding errors that runs beside the reference evaluator.
//
// The function is expanded into the elementary operations that kernels are made of. Each is evaluated in f64, and beside every number goes a bound of
// how far a kernel's number may be from it, which is what its operands' bounds come to, plus the operation's own rounding:
//
//   + - * / sqrt      u |y|, u = 2^-24 (2^-53 of f64)
//   exp log tanh erf  a few u |y|: what the polynomials promise (kExp, ...)
//   sums of n terms   u min(n - 1, 6 sqrt(n)) sum |x|, in whatever order: n - 1 is certain; where rounding errors have mean 0, 6 sqrt(n) is exceeded
//                     with a probability of n 3e-8 (Higham and Mary, 2019, with their lambda = 6)
//   half precision    what is between the roundings of the ends of the interval: nothing, where all of it is rounded to one number
//
// So a band follows the numbers: it is wide where a sum cancels and nil where nothing is rounded.
#pragma once

#include "zorse/Support/ReferenceEvaluator.h"

namespace zorse::conformance {

struct Banded {
  reference::Tensor value; ///< of the expanded function, in f64
  reference::Tensor error; ///< how far from it a kernel's may be; infinite: anything
  double roundings = 0;    ///< of what lay there, where results are added to it one by one: scatters take their tables as the first term
};

/// One for every result. Fails with a diagnostic at operations that have no bound.
mlir::FailureOr<std::vector<Banded>> bandsOf(mlir::func::FuncOp function, llvm::ArrayRef<reference::Tensor> arguments,
                                             const reference::Options &options);

} // namespace zorse::conformance
