// Evaluates straight-line graph IR on host tensors with plain loops: the reference semantics of
// operations. It is slow. Tests use it, and the importer uses it to compare the loss of a few
// samples with that of the file.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LLVM.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::reference {

/// Row-major values of any element type, stored as f64 (integers are exact up to 2^53, booleans are
/// 0 and 1).
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> values;

  static Tensor filled(std::vector<int64_t> shape, double value);
  int64_t size() const { return values.size(); }
};

struct Options {
  int64_t rows = 1;  ///< size of dynamic dimensions (`?`)
  uint64_t seed = 0; ///< key of the random numbers, see runtime/abi/Random.h
  uint64_t step = 1;
  int64_t sampleBase = 0;
  uint64_t rngIdBase = 0;
  bool training = true; ///< false: dropout is the identity
  int64_t samples = 0;  ///< value of B in expressions; 0: rows
  std::vector<double> counts;
};

/// Evaluates one operation of zorse, arith or math in f64 arithmetic, for any element types. Fails
/// with a diagnostic for an unknown operation and for indices out of range.
mlir::FailureOr<std::vector<Tensor>> evaluate(mlir::Operation *op, llvm::ArrayRef<Tensor> operands,
                                              const Options &options);

/// Evaluates a function with one block on its arguments and returns its results.
mlir::FailureOr<std::vector<Tensor>>
evaluate(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments, const Options &options);

} // namespace zorse::reference
