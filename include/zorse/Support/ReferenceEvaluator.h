// Evaluates straight-line graph IR on host tensors with plain loops: what operations mean. Not fast: for tests, and for the few samples by which the
// importer compares a loss with its file.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LLVM.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::reference {

/// Row-major values of any element type, held as f64 (integers exactly up to 2^53, booleans as 0 and 1).
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> values;

  static Tensor filled(std::vector<int64_t> shape, double value);
  int64_t size() const { return values.size(); }
};

struct Options {
  int64_t rows = 1;  ///< what `?` stands for
  uint64_t seed = 0; ///< random numbers are keyed as runtime/abi/Random.h says
  uint64_t step = 1;
  int64_t sampleBase = 0;
  uint64_t instanceBase = 0;
  bool training = true; ///< false: dropout is the identity
  int64_t samples = 0;  ///< what B is in expressions; 0: rows
  std::vector<double> counts;
};

/// Evaluates one operation of zorse, arith or math in f64 arithmetic, whatever its element types. Fails with a diagnostic at an operation it does not
/// know and at indices out of range.
mlir::FailureOr<std::vector<Tensor>> evaluate(mlir::Operation *op, llvm::ArrayRef<Tensor> operands, const Options &options);

/// Evaluates a function of one block on its arguments; returns its results.
mlir::FailureOr<std::vector<Tensor>> evaluate(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments, const Options &options);

} // namespace zorse::reference
