// Bodies and kernels in the module: zorse.target.
#include "KernelSet.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"

#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

void zorse::codegen::writeTarget(ModuleOp module, CompiledBodies &bodies) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  const std::string &arch = bodies.library.arch();
  auto target = TargetOp::create(builder, module.getLoc(), arch, bytesAttr(module.getContext(), "bodies_" + arch, bundle::serialize(bodies.library)));
  bodies.sources->moveTo(target.getKernels().emplaceBlock());
}

FailureOr<std::vector<CompiledBodies>> zorse::codegen::readTargets(ModuleOp module, const CodegenOptions &options) {
  std::vector<CompiledBodies> all;
  for (auto target : module.getOps<TargetOp>()) {
    CompiledBodies &bodies = all.emplace_back();
    if (!parseBytes(target.getBodies(), bodies.library))
      return target.emitOpError("expects bodies to be a serialised BodyLibrary, which is not there or damaged");
    CodegenOptions code = options;
    code.arch = bodies.library.arch();
    if (!code.dumpDir.empty() && all.size() > 1)
      code.dumpDir += "/" + code.arch;
    bodies.sources = makeKernels(code);
    bodies.sources->refer(target.getKernels().front());
  }
  return all;
}
