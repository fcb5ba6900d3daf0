// From unit functions to bodies (lists of launches) and one shared object with the kernels they name.
#pragma once

#include "zorse/Codegen/Bodies.h"

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
  unsigned threads = 2;           ///< that compile kernels; the result does not depend on it.
  bool useCache = true;           ///< keep compiled kernels on disk.
  std::string cacheDir;           ///< empty: $ZORSE_CACHE, else $XDG_CACHE_HOME/zorse, else ~/.cache/zorse. Unwritable: no cache.
  std::string arch = "native";    ///< a CPU name as LLVM knows it ("x86-64-v3", "znver4"), "native", or a CUDA architecture ("sm_80").
  unsigned optimizationLevel = 3; ///< of LLVM, 0 to 3.
  bool tf32 = false;              ///< products in f32 are in TF32 where the GPUs of `arch` have it.
  bool sumsF16 = false;           ///< products of f16 whose results are f16 are summed in f16 on GPUs.
  std::string dumpDir;            ///< not empty: <symbol>.mlir, <symbol>.ll and <symbol>.s of every kernel, and bodies.txt.
};

class KernelSet;

struct CompiledBodies {
  bundle::BodyLibrary library;        ///< one body per function, in the module's order, under the function's name.
  std::shared_ptr<KernelSet> sources; ///< the kernels; null once they are compiled.
  std::string object;                 ///< bytes of the shared object library.objects(0) names.
  unsigned kernels = 0;               ///< distinct kernels in it.
  unsigned compiled = 0;              ///< of them, how many were not found in the cache.
};

/// Compiles every function of `functions` that has slots (docs/architecture.md, "Unit functions") to a body.
///
/// Nothing depends on row counts: a body serves all of them. Equal kernels of different functions are one symbol. Equal input gives equal
/// bytes. Functions must only hold ops of `zorse`, `arith` and `math` on ranked tensors; others are diagnosed at the op.
mlir::FailureOr<CompiledBodies> compileBodies(mlir::ModuleOp functions, const CodegenOptions &options = {});

/// The same in two steps, the second of which takes the time: everything but machine code, and the machine code.
mlir::FailureOr<CompiledBodies> lowerBodies(mlir::ModuleOp functions, const CodegenOptions &options = {});
mlir::LogicalResult compileKernels(CompiledBodies &bodies, mlir::Location location);

/// The bodies that are not functions, as ModelSummary describes them: "norm", "sum_loss" and "decide"; "cast" where units read copies of parameters;
/// "scale_seeds" where the loss is scaled; sums of 2 to `sumTerms` terms in f64 and in the type of gradients, for GPUs that exchange directly.
void appendBuiltinBodies(mlir::MLIRContext *context, CompiledBodies &bodies, const bundle::ModelSummary &summary, uint32_t sumTerms = 0);

/// Puts bodies that were lowered, and their kernels, into a module as the zorse.target of their architecture.
void writeTarget(mlir::ModuleOp module, CompiledBodies &bodies);
/// Replaces the bodies of a target. Kernels that none of them launches go.
void setBodies(TargetOp target, const bundle::BodyLibrary &bodies);
/// Compiles the kernels of a target, which stay, to its object. \param options  but for the architecture
/// \param kernels, compiled  are raised by what CompiledBodies says of them
mlir::LogicalResult compileTarget(TargetOp target, CodegenOptions options, unsigned &kernels, unsigned &compiled);

/// "sum.f32.4": a body of ModelSummary.sums.
std::string sumName(bundle::ElementType type, uint32_t terms);

/// "sm_80", ...: for GPUs. "emu:sm_80", ..., and "emu", which is the first of them, are for tests: their object is the LLVM bitcode that becomes PTX
/// elsewhere.
bool isCudaArch(const std::string &arch);

/// The name of the CPU that `arch` means on this machine, as it appears in BodyLibrary.arch and in kernels/<arch>/.
std::string resolveArch(const std::string &arch);

/// The bodies of `functions` as text: slots and launches; with the MLIR of their kernels on demand.
mlir::LogicalResult printBodies(mlir::ModuleOp functions, llvm::raw_ostream &os, bool withKernels, const std::string &arch = "native");

/// Registers `zorse-compile-bodies`.
void registerPasses();

} // namespace zorse::codegen
