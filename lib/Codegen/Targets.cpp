// Stores compiled functions and kernels in the module, as zorse.target.
#include "KernelSet.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

void zorse::codegen::writeTarget(ModuleOp module, CompiledFunctions &compiled) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  const std::string &arch = compiled.library.arch();
  ElementsAttr bytes =
      bytesAttr(module.getContext(), "functions_" + arch, bundle::serialize(compiled.library));
  auto target =
      TargetOp::create(builder, module.getLoc(), builder.getStringAttr(arch), bytes, nullptr);
  compiled.sources->moveTo(target.getKernels().emplaceBlock());
}

void zorse::codegen::setFunctions(TargetOp target, const bundle::FunctionLibrary &library) {
  std::set<StringRef> launched;
  for (const bundle::CompiledFunction &compiled : library.functions())
    for (const bundle::Launch &launch : compiled.launches())
      if (launch.has_kernel())
        launched.insert(launch.kernel().symbol());
  for (auto kernel : llvm::make_early_inc_range(target.getKernels().getOps<ModuleOp>()))
    if (!launched.count(*kernel.getSymName()))
      kernel.erase();
  target.setFunctionsAttr(
      bytesAttr(target.getContext(), "functions_" + library.arch(), bundle::serialize(library)));
}

LogicalResult zorse::codegen::compileTarget(TargetOp target, CodegenOptions options,
                                            unsigned &kernels, unsigned &compiled) {
  CompiledFunctions functions;
  if (!parseBytes(target.getFunctions(), functions.library))
    return target.emitOpError(
        "expects functions to be a serialized FunctionLibrary, but it is missing or damaged");
  options.arch = functions.library.arch();
  functions.sources = makeKernels(options);
  functions.sources->refer(target.getKernels().front());
  if (failed(compileKernels(functions, target.getLoc())))
    return failure();
  target.setObjectAttr(
      bytesAttr(target.getContext(), "object_" + options.arch, std::move(functions.object)));
  kernels += functions.kernels;
  compiled += functions.compiled;
  return success();
}
