#include "zorse/Pipelines/MlirFlags.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

#include <algorithm>

bool zorse::pipelines::takeMlirFlags(std::vector<char *> &arguments) {
  auto ours = std::stable_partition(arguments.begin() + 1, arguments.end(), [](char *word) {
    return !llvm::StringRef(word).starts_with("--mlir-");
  });
  if (ours == arguments.end())
    return false;
  std::vector<char *> words{arguments.front()};
  words.insert(words.end(), ours, arguments.end());
  arguments.erase(ours, arguments.end());
  registerTransformPasses(); // so that --mlir-print-ir-after can name them
  units::registerPasses();
  autodiff::registerPasses();
  registerPasses();
  mlir::registerMLIRContextCLOptions();
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();
  llvm::cl::ParseCommandLineOptions(int(words.size()), words.data(),
                                    "MLIR's options of zorse-compile\n");
  return true;
}
