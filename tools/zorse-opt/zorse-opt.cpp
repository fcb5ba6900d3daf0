// zorse-opt: reads and writes MLIR, running any pass or pipeline in between. For compiler people and the tests.
#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Codegen/CPU/Codegen.h"
#include "zorse/Dialect/Exec/Exec.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/Units/Units.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  // `--zorse-apply-plan=plan.json` is short for `--zorse-apply-plan="plan=plan.json"`.
  std::vector<std::string> words(argv, argv + argc);
  std::vector<char *> arguments;
  for (std::string &word : words) {
    llvm::StringRef value(word);
    if (value.consume_front("--zorse-apply-plan=") && !value.contains('='))
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
  registry.insert<zorse::ZorseDialect, zorse::exec::ExecDialect>();
  zorse::registerCostAndFactorsModels(registry);
  mlir::registerAllPasses();
  zorse::autodiff::registerDifferentiableModels(registry);
  zorse::registerTransformPasses();
  zorse::autodiff::registerPasses();
  zorse::units::registerPasses();
  zorse::codegen::registerPasses();
  zorse::pipelines::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, arguments.data(), "Zorse optimizer driver\n", registry));
}
