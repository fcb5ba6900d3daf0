// Bodies and kernels in the module: zorse.target.
#include "KernelSet.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

void zorse::codegen::writeTarget(ModuleOp module, CompiledBodies &bodies) {
  const std::string bytes = bundle::serialize(bodies.library);
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto type = RankedTensorType::get({int64_t(bytes.size())}, builder.getI8Type());
  auto resource = DenseResourceElementsAttr::get(type, "bodies_" + bodies.library.arch(),
                                                 HeapAsmResourceBlob::allocateAndCopyInferAlign(ArrayRef<char>(bytes.data(), bytes.size())));
  auto target = TargetOp::create(builder, module.getLoc(), bodies.library.arch(), resource);
  bodies.sources->moveTo(target.getKernels().emplaceBlock());
}

FailureOr<std::vector<CompiledBodies>> zorse::codegen::readTargets(ModuleOp module, const CodegenOptions &options) {
  std::vector<CompiledBodies> all;
  for (auto target : module.getOps<TargetOp>()) {
    CompiledBodies &bodies = all.emplace_back();
    auto resource = dyn_cast<DenseResourceElementsAttr>(target.getBodies());
    AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
    if (!blob || !bodies.library.ParseFromArray(blob->getData().data(), int(blob->getData().size())))
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
