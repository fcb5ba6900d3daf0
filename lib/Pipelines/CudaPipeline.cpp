// zorse-to-cuda: from a recognised model, or the functions of its units, to bodies and PTX for one GPU or several.
#include "CudaPipeline.h"
#include "TrainPipeline.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace zorse::pipelines {

namespace {

enum class From { Model, Units };

struct CudaOptions : PassPipelineOptions<CudaOptions> {
  ListOption<std::string> chips{*this, "chip", llvm::cl::desc("The GPUs to compile for: sm_80, or several with commas between them")};
  Option<From> from{*this, "from", llvm::cl::desc("What the module holds"), llvm::cl::init(From::Model),
                    llvm::cl::values(clEnumValN(From::Model, "model", "a recognised @model"),
                                     clEnumValN(From::Units, "units", "functions of units, as zorse-find-units makes them"))};
  Option<std::string> dumpDir{
      *this, "dump-dir", llvm::cl::desc("Write .mlir, .ll and .ptx of every kernel to a folder for each GPU there, instead of printing the PTX")};
};

/// The passes that follow would name each other in their messages; whoever runs the pipeline is told what the pipeline wants.
struct CheckInputPass : PassWrapper<CheckInputPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CheckInputPass)

  explicit CheckInputPass(From from) : from(from) {}

  StringRef getName() const override { return "zorse-to-cuda-input"; }

  void runOnOperation() override {
    auto classes = getOperation().getOps<ClassOp>();
    const bool model = getOperation().lookupSymbol<func::FuncOp>(attributes::kModel) != nullptr;
    if (from == From::Units ? !classes.empty() : model && classes.empty())
      return;
    InFlightDiagnostic error = getOperation().emitError("zorse-to-cuda: ");
    if (from == From::Units)
      error << "expected functions of units, found none: leave out from=units, or run --zorse-train-pipeline=from=recognized first";
    else if (classes.empty())
      error << "expected '@model', found no function: begin with what zorse-import writes, and run --zorse-recognize first";
    else
      error << "expected '@model' alone, found class '@" << (*classes.begin()).getSymName() << "': say from=units if units have been found";
    signalPassFailure();
  }

  From from;
};

LogicalResult build(OpPassManager &passes, const CudaOptions &options, function_ref<LogicalResult(const Twine &)> fail) {
  std::vector<std::string> known = findDeviceKind("cuda")->architectures;
  llvm::erase(known, "emu"); // its code is bitcode
  auto chipError = [&](const Twine &found) {
    return fail("zorse-to-cuda: expected chip= with one or more of " + Twine(llvm::join(known, ", ")) + ", found " + found +
                ": for example --zorse-to-cuda=\"chip=sm_75,sm_80\"");
  };
  if (options.chips.empty())
    return chipError("none");
  for (const std::string &chip : options.chips)
    if (!llvm::is_contained(known, chip))
      return chipError("'" + chip + "'");
  passes.addPass(std::make_unique<CheckInputPass>(options.from));
  if (options.from == From::Model) {
    TrainPipelineOptions units;
    units.from = Stage::Recognized;
    buildTrainPipeline(passes, units);
  }
  for (const std::string &chip : options.chips)
    passes.addPass(codegen::createCompileBodies(chip, options.dumpDir.empty() ? std::string() : options.dumpDir + "/" + chip));
  return success();
}

} // namespace

void registerCudaPipeline() {
  registerPassPipeline(
      "zorse-to-cuda", "Compile a recognised model, or functions of units, for GPUs: their bodies and PTX are printed",
      [](OpPassManager &passes, StringRef text, function_ref<LogicalResult(const Twine &)> fail) -> LogicalResult {
        CudaOptions options;
        return failed(options.parseFromString(text)) ? failure() : build(passes, options, fail);
      },
      [](function_ref<void(const mlir::detail::PassOptions &)> show) { show(CudaOptions()); });
}

} // namespace zorse::pipelines
