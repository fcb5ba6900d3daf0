// The dialects of a compilation, and the passes between import and units.
#include "Compiler.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace zorse::pipelines {

void prepareContext(MLIRContext &context) {
  DialectRegistry registry;
  registry.insert<ZorseDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect>();
  registerCostAndFactorsModels(registry);
  autodiff::registerDifferentiableModels(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false); // users know nodes of their file, which locations name, and not our operations
}

bool Compiler::recognize(std::string &remark) {
  if (!runPasses(Stage::Graph, Stage::Recognized))
    return false;
  std::map<std::string, int> special; // by name, in order
  int ops = 0;
  imported.module->walk([&](Operation *op) {
    if (op->getNumResults() == 0)
      return;
    ++ops;
    llvm::StringRef name = op->getName().stripDialect();
    for (llvm::StringRef known : {"attention", "layer_norm", "rms_norm", "rope", "gelu", "silu", "cross_entropy", "softmax"})
      if (name == known && isa_and_nonnull<ZorseDialect>(op->getDialect()))
        ++special[name.str()];
  });
  remark = std::to_string(ops) + " ops";
  int roundings = 0;
  imported.module->walk([&](RoundOp) { ++roundings; });
  const char *separator = ": ";
  for (const auto &[name, count] : special) {
    remark += separator + std::to_string(count) + " " + name;
    separator = ", ";
  }
  if (roundings)
    remark += separator + std::to_string(roundings) + " roundings to " + elementTypeName(options.precision.rounded);
  return true;
}

} // namespace zorse::pipelines
