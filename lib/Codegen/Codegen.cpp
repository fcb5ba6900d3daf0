#include "zorse/Codegen/Codegen.h"

#include "zorse/Bundle/DeviceKinds.h"

#include "KernelSet.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

FailureOr<CompiledFunctions> zorse::codegen::compileFunctions(ModuleOp functions,
                                                              const CodegenOptions &options) {
  FailureOr<CompiledFunctions> compiled = lowerFunctions(functions, options);
  if (failed(compiled) || failed(compileKernels(*compiled, functions.getLoc())))
    return failure();
  return compiled;
}

std::shared_ptr<KernelSet> zorse::codegen::makeKernels(const CodegenOptions &options) {
  return isCudaArch(options.arch) ? makeCudaKernels(options) : makeCpuKernels(options);
}

/// Allows GPUs to compute matrix products in TF32, or to accumulate in f16, if the options request
/// it.
static void allowFasterMatmuls(bundle::FunctionLibrary &library, bool tf32, bool sumsF16) {
  for (bundle::CompiledFunction &compiled : *library.mutable_functions())
    for (bundle::Launch &launch : *compiled.mutable_launches()) {
      // Results have the type of the operands.
      if (!launch.has_matmul() ||
          launch.matmul().operand_type() != bundle::ELEMENT_TYPE_UNSPECIFIED)
        continue;
      bundle::Matmul &matmul = *launch.mutable_matmul();
      matmul.set_tf32(tf32 && matmul.type() == bundle::F32);
      matmul.set_sums_f16(sumsF16 && matmul.type() == bundle::F16);
    }
}

FailureOr<CompiledFunctions> zorse::codegen::lowerFunctions(ModuleOp functions,
                                                            const CodegenOptions &options) {
  MLIRContext *context = functions.getContext();
  context
      ->loadDialect<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  CompiledFunctions result;
  result.sources = makeKernels(options);
  bool ok = true;
  for (func::FuncOp function : functionsInOrder(functions)) {
    if (function.isDeclaration() ||
        (function.getNumArguments() == 0 && function.getNumResults() == 0))
      continue;
    FunctionSizes sizes;
    // All functions are lowered, so that one run reports every unsupported op.
    ok &=
        succeeded(lowerFunction(function, *result.sources, *result.library.add_functions(), sizes));
  }
  if (!ok)
    return failure();
  if (isCudaArch(options.arch))
    allowFasterMatmuls(result.library, options.tf32 && DeviceKind::hasTf32(options.arch),
                       options.sumsF16);
  result.library.set_arch(result.sources->arch());
  result.library.add_objects(result.sources->object());
  return result;
}

LogicalResult zorse::codegen::compileKernels(CompiledFunctions &compiled, Location location) {
  compiled.kernels = compiled.sources->size();
  llvm::Expected<std::string> object = compiled.sources->link(compiled.compiled);
  if (!object)
    return emitError(location) << llvm::toString(object.takeError());
  compiled.object = std::move(*object);
  if (const std::string &directory = compiled.sources->dumpDir(); !directory.empty()) {
    std::error_code error;
    llvm::raw_fd_ostream out(directory + "/functions.txt", error);
    if (!error)
      out << compiled.library.DebugString();
  }
  compiled.sources.reset();
  return success();
}
