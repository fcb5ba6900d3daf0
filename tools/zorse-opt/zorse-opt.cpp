// zorse-opt: reads and writes MLIR, running any pass or pipeline in between. For compiler people and the tests.
#include "DeepStack.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/Units/Units.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

static int run(int argc, char **argv) {
  // `--zorse-apply-plan=plan.json` is short for `--zorse-apply-plan="plan=plan.json"`, other options may follow.
  std::vector<std::string> words(argv, argv + argc);
  std::vector<char *> arguments;
  bool help = false;
  for (std::string &word : words) {
    llvm::StringRef value(word);
    help |= value == "--help" || value == "-help" || value == "-h";
    if (value.consume_front("--zorse-apply-plan=") && !value.take_until([](char c) { return c == ' '; }).contains('='))
      word = "--zorse-apply-plan=plan=" + value.str();
    arguments.push_back(word.data());
  }
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  // MLIR is not instrumented and orders its threads by means that the sanitizer does not see.
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
  zorse::codegen::registerPasses();
  zorse::pipelines::registerPasses();
  if (help) { // before those of MLIR, of which there are hundreds
    llvm::outs() << "Zorse's passes; docs/passes.md says in which order they run. After them, everything else that this program takes.\n\n";
    mlir::printRegisteredPasses();
    llvm::outs() << '\n';
    llvm::outs().flush();
  }
  mlir::registerAllPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, arguments.data(), "Zorse optimizer driver\n", registry));
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(run, argc, argv); }
