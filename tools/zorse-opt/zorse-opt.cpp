// zorse-opt: reads MLIR, runs passes or pipelines, and writes MLIR. For compiler developers and
// tests.
#include "DeepStack.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Sharding/Sharding.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/Units/Units.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

static int run(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  const bool help = llvm::any_of(arguments, [](llvm::StringRef word) {
    return word == "--help" || word == "-help" || word == "-h";
  });
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  // MLIR is not instrumented, and the sanitizer does not see how it synchronizes its threads.
  std::string oneThread = "--mlir-disable-threading";
  arguments.push_back(oneThread.data());
#endif
#endif
  argc = int(arguments.size());
  arguments.push_back(nullptr);
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<zorse::ZorseDialect>();
  zorse::registerCostAndFactorsModels(registry);
  zorse::autodiff::registerDifferentiableModels(registry);
  zorse::registerTransformPasses();
  zorse::units::registerPasses();
  zorse::autodiff::registerPasses();
  zorse::sharding::registerPasses();
  zorse::codegen::registerPasses();
  zorse::pipelines::registerPasses();
  if (help) { // printed before MLIR's hundreds of passes
    llvm::outs() << "Zorse passes (docs/internals/passes.md describes their order), followed by "
                    "all other options.\n\n";
    mlir::printRegisteredPasses();
    llvm::outs() << '\n';
    llvm::outs().flush();
  }
  mlir::registerAllPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, arguments.data(), "Zorse optimizer driver\n", registry));
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(run, argc, argv); }
