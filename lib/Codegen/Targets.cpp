// Stores bodies and kernels in the module, as zorse.target.
#include "KernelSet.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

void zorse::codegen::writeTarget(ModuleOp module, CompiledBodies &bodies) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  const std::string &arch = bodies.library.arch();
  ElementsAttr bytes = bytesAttr(module.getContext(), "bodies_" + arch, bundle::serialize(bodies.library));
  auto target = TargetOp::create(builder, module.getLoc(), builder.getStringAttr(arch), bytes, nullptr);
  bodies.sources->moveTo(target.getKernels().emplaceBlock());
}

void zorse::codegen::setBodies(TargetOp target, const bundle::FunctionLibrary &bodies) {
  std::set<StringRef> launched;
  for (const bundle::CompiledFunction &body : bodies.functions())
    for (const bundle::Launch &launch : body.launches())
      if (launch.has_kernel())
        launched.insert(launch.kernel().symbol());
  for (auto kernel : llvm::make_early_inc_range(target.getKernels().getOps<ModuleOp>()))
    if (!launched.count(*kernel.getSymName()))
      kernel.erase();
  target.setBodiesAttr(bytesAttr(target.getContext(), "bodies_" + bodies.arch(), bundle::serialize(bodies)));
}

LogicalResult zorse::codegen::compileTarget(TargetOp target, CodegenOptions options, unsigned &kernels, unsigned &compiled) {
  CompiledBodies bodies;
  if (!parseBytes(target.getBodies(), bodies.library))
    return target.emitOpError("expects bodies to be a serialized BodyLibrary, but it is missing or damaged");
  options.arch = bodies.library.arch();
  bodies.sources = makeKernels(options);
  bodies.sources->refer(target.getKernels().front());
  if (failed(compileKernels(bodies, target.getLoc())))
    return failure();
  target.setObjectAttr(bytesAttr(target.getContext(), "object_" + options.arch, std::move(bodies.object)));
  kernels += bodies.kernels;
  compiled += bodies.compiled;
  return success();
}
