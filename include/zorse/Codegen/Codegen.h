// Compiles unit functions to compiled functions (lists of launches) and to one shared object with
// the kernels that they launch.
#pragma once

#include "zorse/Codegen/Functions.h"

#include "bundle.pb.h"

#include "mlir/Support/LLVM.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
}
namespace mlir {
class Location;
class MLIRContext;
class ModuleOp;
} // namespace mlir
namespace zorse {
class TargetOp;
}

namespace zorse::codegen {

struct CodegenOptions {
  unsigned threads = 2; ///< number of threads that compile kernels; it does not change the result.
  bool useCache = true; ///< cache compiled kernels on disk.
  std::string cacheDir; ///< empty: $ZORSE_CACHE, else $XDG_CACHE_HOME/zorse, else ~/.cache/zorse.
                        ///< Not writable: no cache.
  std::string arch = "native";    ///< an LLVM CPU name ("x86-64-v3", "znver4"), "native", or a CUDA
                                  ///< architecture ("sm_80").
  unsigned optimizationLevel = 3; ///< LLVM optimization level, 0 to 3.
  bool tf32 = false;    ///< compute f32 matrix products in TF32 if the GPUs of `arch` support it.
  bool sumsF16 = false; ///< accumulate f16 matrix products with f16 results in f16 on GPUs.
  std::string dumpDir; ///< if set: directory for <symbol>.mlir, <symbol>.ll and <symbol>.s of every
                       ///< kernel, and functions.txt.
};

class KernelSet;

struct CompiledFunctions {
  bundle::FunctionLibrary library;    ///< one compiled function per function, in the module's order
                                      ///< and with the function's name.
  std::shared_ptr<KernelSet> sources; ///< the kernels; null after they are compiled.
  std::string object;                 ///< bytes of the shared object named by library.objects(0).
  unsigned kernels = 0;               ///< number of distinct kernels in it.
  unsigned compiled = 0;              ///< number of these kernels that were not found in the cache.
};

/// Compiles every function of `functions` that has arguments (docs/internals/compiler.md, "Units
/// and classes") to a compiled function.
///
/// Compiled functions do not depend on the number of rows. Equal kernels of different functions
/// share one symbol. Equal input gives equal bytes. Functions may contain only ops of `zorse`,
/// `arith` and `math` on ranked tensors; other ops are diagnosed.
mlir::FailureOr<CompiledFunctions> compileFunctions(mlir::ModuleOp functions,
                                                    const CodegenOptions &options = {});

/// compileFunctions() in two steps: lowerFunctions() creates everything except machine code,
/// compileKernels() creates the machine code. The second step takes most of the time.
mlir::FailureOr<CompiledFunctions> lowerFunctions(mlir::ModuleOp functions,
                                                  const CodegenOptions &options = {});
mlir::LogicalResult compileKernels(CompiledFunctions &compiled, mlir::Location location);

/// Appends the compiled functions that are not model functions, as ModelSummary describes them:
/// - "norm", "sum_loss" and "decide";
/// - "cast" if units read low-precision copies of parameters;
/// - "scale_seeds" if the loss is scaled;
/// - sums of 2 to `sumTerms` terms in f64 and in the gradient type, for GPUs that exchange data
///   directly.
void appendBuiltinFunctions(mlir::MLIRContext *context, CompiledFunctions &functions,
                            const bundle::ModelSummary &summary, uint32_t sumTerms = 0);

/// Writes lowered compiled functions and their kernels into a module, as the zorse.target of their
/// architecture.
void writeTarget(mlir::ModuleOp module, CompiledFunctions &compiled);
/// Replaces the compiled functions of a target and erases kernels that no compiled function
/// launches.
void setFunctions(TargetOp target, const bundle::FunctionLibrary &library);
/// Compiles the kernels of a target to its object. The kernels stay in the module.
/// \param options  the architecture is ignored; the target's is used
/// \param kernels, compiled  counters as in CompiledFunctions; the function adds to them
mlir::LogicalResult compileTarget(TargetOp target, CodegenOptions options, unsigned &kernels,
                                  unsigned &compiled);

/// Returns the name of a compiled function of ModelSummary.sums, for example "sum.f32.4".
std::string sumName(bundle::ElementType type, uint32_t terms);
/// The same for f32 sums of terms rounded to bf16. \param continues  the first of the terms is the
/// f32 sum so far
std::string roundedSumName(uint32_t terms, bool continues);
/// The name of the function that rounds terms.
inline constexpr const char *kRoundTermsName = "round.bf16";

/// Whether `arch` is a GPU: "sm_80" and others. "emu:sm_80" and others, and "emu" (the first of
/// them), are for tests: their object is the LLVM bitcode from which PTX is generated otherwise.
bool isCudaArch(const std::string &arch);

/// Returns the CPU name that `arch` stands for on this machine, as it appears in
/// FunctionLibrary.arch and in kernels/<arch>/.
std::string resolveArch(const std::string &arch);

/// Prints the compiled functions of `functions` as text: arguments and launches and, if
/// `withKernels`, the MLIR of their kernels.
mlir::LogicalResult printFunctions(mlir::ModuleOp functions, llvm::raw_ostream &os,
                                   bool withKernels, const std::string &arch = "native");

/// Registers `zorse-compile-functions`.
void registerPasses();

} // namespace zorse::codegen
