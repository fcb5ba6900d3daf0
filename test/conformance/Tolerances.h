// Computes how far a kernel's results may be from those of exact arithmetic: a running error
// analysis next to the reference evaluator.
//
// The function is expanded into the elementary operations of kernels. Each is evaluated in f64.
// Every number has a bound on the difference to a kernel's number: the propagated bounds of the
// operands plus the operation's own rounding:
//
//   + - * / sqrt      u |y|, u = 2^-24 (2^-53 for f64)
//   exp log tanh erf  a few u |y|: guaranteed by the polynomials (kExp, ...)
//   sums of n terms   u min(n - 1, 6 sqrt(n)) sum |x|, in any order. n - 1 is certain; if rounding
//                     errors have mean 0, 6 sqrt(n) is exceeded with a probability of n 3e-8
//                     (Higham and Mary, 2019, with lambda = 6)
//   half precision    the distance between the rounded ends of the interval: 0 if the whole
//                     interval is rounded to one number
//
// The band therefore depends on the numbers: it is wide if a sum cancels, and 0 if nothing is
// rounded.
#pragma once

#include "zorse/Support/ReferenceEvaluator.h"

namespace zorse::conformance {

struct Banded {
  reference::Tensor value; ///< result of the expanded function, in f64
  reference::Tensor error; ///< maximum difference of a kernel's result; infinite: no limit
  double roundings = 0; ///< roundings of the previous value if results are added to it one by one:
                        ///< it is the first term of a scatter
};

/// Returns the band of every result. Fails with a diagnostic for operations that have no bound.
mlir::FailureOr<std::vector<Banded>> tolerancesOf(mlir::func::FuncOp function,
                                                  llvm::ArrayRef<reference::Tensor> arguments,
                                                  const reference::Options &options);

} // namespace zorse::conformance
