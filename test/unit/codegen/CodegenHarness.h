// Compiles functions given as text for CPUs and GPUs, runs them on the CPU device and on the
// emulator, and compares every result with the reference evaluator.
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseAttributes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::test {

/// Makes a context with the dialects of unit functions.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Parses unit functions in short form: `$T` stands for the element type, `@@saved3` and `@@skip0`
/// for arguments.
mlir::OwningOpRef<mlir::ModuleOp> parse(mlir::MLIRContext &context, std::string text,
                                        const std::string &type);

struct RunOptions {
  std::vector<int64_t> rows = {1, 2, 3, 7};
  std::vector<std::string> types = {"f32", "f64"};
  double tolerance32 = 3e-5,
         tolerance64 = 1e-11; ///< relative to the largest magnitude of the result
  int64_t sampleBase = 5;
  uint64_t rngIdBase = 11;
  bool evaluation = false;
  bool split = false; ///< also split every function `.backward` into two parts
  std::string dumpDir;
  bool cuda = true; ///< also on the emulated GPU, except f64: GPUs have no f64 transcendental
                    ///< functions
};

/// Checks every function of `text` for every type and row count, with 1 and 2 threads (bit-equal),
/// overwriting and accumulating.
///
/// Arguments are random. Integers lie in [test.low, test.high) of the argument's attributes, so
/// that they can be ids.
void checkFunctions(const std::string &text, const RunOptions &options = {});

} // namespace zorse::test
