// Compiles a model: imports it, runs passes that convert it to programs, and writes the bundle.
#include "zorse/Pipelines/Compile.h"

#include "Phases.h"
#include "Planned.h"
#include "Progress.h"
#include "TrainPipeline.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Codegen/PrivateDirectory.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Units/Units.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

using namespace mlir;

namespace zorse::pipelines {

namespace {

// MLIR's own threads synchronize partly by atomics inside its libraries, which ThreadSanitizer does
// not see. With ThreadSanitizer, passes therefore run on one thread. The threads of this project
// (kernels, programs, verifier) are checked as usual.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ZORSE_MLIR_THREADS false
#endif
#endif
#ifndef ZORSE_MLIR_THREADS
#define ZORSE_MLIR_THREADS true
#endif

Stage lastStage(const CompileOptions &options) {
  switch (options.emit) {
  case Emit::Graph:
    return std::min(options.last, Stage::Recognized);
  case Emit::Pipeline:
    return Stage::Graph;
  case Emit::Units:
    return std::min(options.last, Stage::Functions);
  case Emit::Plan:
    return Stage::Plan;
  case Emit::Exec:
    return Stage::Programs;
  case Emit::Llvm:
    return Stage::Lowered;
  case Emit::Nothing:
    break;
  }
  return options.last;
}

/// A context with the dialects and interfaces of a compilation, and its output.
struct Session {
  Session(const CompileOptions &options, Stage last)
      : options(options), last(last),
        context(ZORSE_MLIR_THREADS && options.threads > 1 ? MLIRContext::Threading::ENABLED
                                                          : MLIRContext::Threading::DISABLED),
        printer(&context, options.model), progress(options, last, printer) {
    DialectRegistry registry;
    registry.insert<ZorseDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect>();
    registerCostAndFactorsModels(registry);
    autodiff::registerDifferentiableModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.printOpOnDiagnostic(false); // locations name the nodes of the user's file; our
                                        // operations are unknown to the user
  }

  const CompileOptions &options;
  const Stage last;
  MLIRContext context;
  DiagnosticPrinter printer;
  Progress progress;
};

/// Notifies the progress after the last pass of a stage.
struct StageEnds : PassInstrumentation {
  explicit StageEnds(Progress &progress) : progress(progress) {}

  void runAfterPass(Pass *pass, Operation *module) override {
    if (auto end = stages.find(pass); end != stages.end())
      progress.end(end->second, cast<ModuleOp>(module));
  }

  Progress &progress;
  std::map<Pass *, Stage> stages; ///< by the last pass of each stage
};

/// Returns the settings of the summary that are not in the graph.
std::string settings(const CompileOptions &options, const Model &model) {
  bundle::ModelSummary given;
  given.set_name(llvm::sys::path::stem(options.model).str());
  *given.mutable_training() = model.training;
  given.set_samples_per_row(model.groupRows);
  given.set_combines_samples(model.imported.combinesSamples);
  given.set_rounded_to(options.precision.rounded);
  given.set_fp32_residual(options.precision.wideResidual);
  given.set_tf32(options.precision.tf32);
  given.set_sums_f16(options.precision.sumsF16);
  return units::settingsText(given);
}

void fill(TrainPipelineOptions &passOptions, const CompileOptions &options, const Model &model) {
  passOptions.round = options.precision.rounds() ? elementTypeName(options.precision.rounded) : "";
  passOptions.fp32Residual = options.precision.wideResidual;
  passOptions.settings = settings(options, model);
  passOptions.decay = model.decay;
  passOptions.batch = options.batch;
  passOptions.save = options.saved == "none"   ? autodiff::RecomputePolicy::None
                     : options.saved == "full" ? autodiff::RecomputePolicy::Full
                                               : autodiff::RecomputePolicy::MinCut;
  passOptions.sampling = options.sampling;
  passOptions.cluster = options.cluster;
  passOptions.profiles = options.profiles;
  passOptions.plan = options.plan;
  passOptions.gradientWire = options.gradientWire;
  passOptions.near = options.near.empty() ? "" : options.near + "/plan.json";
  passOptions.architectures = {codegen::resolveArch(options.arch)};
  passOptions.simulateOnly = options.simulateOnly;
  passOptions.keepAll = options.allFunctions;
  passOptions.threads = options.threads;
  passOptions.cache = options.emit != Emit::Llvm; // cached kernels have no text
}

/// Prints all passes in the syntax of `zorse-opt --pass-pipeline`.
void printPipeline(const CompileOptions &options, const Model &model) {
  TrainPipelineOptions passOptions;
  fill(passOptions, options, model);
  passOptions.to = options.cluster.empty() ? Stage::Lowered : Stage::Verified;
  OpPassManager passes(ModuleOp::getOperationName());
  buildTrainPipeline(passes, passOptions);
  passes.printAsTextualPipeline(llvm::outs());
  llvm::outs() << '\n';
}

/// Runs the passes of all stages up to the last one.
bool runPasses(Session &session, const Model &model) {
  const CompileOptions &options = session.options;
  PassManager passes(&session.context);
  if (options.mlirFlags && failed(applyPassManagerCLOptions(passes)))
    return false;
  if (options.mlirFlags)
    applyDefaultTimingPassManagerCLOptions(passes);
  TrainPipelineOptions passOptions;
  fill(passOptions, options, model);
  passOptions.kernelTexts = session.progress.kernelTexts;
  auto ends = std::make_unique<StageEnds>(session.progress);
  auto add = [&](Stage from, Stage to) {
    passOptions.from = from;
    passOptions.to = to;
    buildTrainPipeline(passes, passOptions);
    return &*std::prev(passes.end());
  };
  // The module of a bundle has the functions and the machine code of all stages before the plan.
  const bool compiled = !options.near.empty();
  for (int stage = compiled ? int(Stage::Plan) : 1;
       stage <= std::min(int(session.last), int(Stage::Verified)); ++stage) {
    if (compiled && Stage(stage) == Stage::Kernels)
      continue;
    Pass *end = add(Stage(stage - 1), Stage(stage));
    if (Stage(stage) == Stage::Lowered &&
        (options.emit == Emit::Llvm || options.last == Stage::Lowered))
      end = add(Stage::Plan, Stage::Kernels); // without a plan, all compiled functions count as
                                              // used
    ends->stages[end] = Stage(stage);
  }
  passes.addInstrumentation(std::move(ends));
  return succeeded(passes.run(*model.imported.module));
}

/// Runs all stages up to the last one, without writing the bundle. Returns nothing after an error
/// message.
std::optional<Model> makeModule(Session &session) {
  std::optional<Model> model = session.options.near.empty()
                                   ? importModel(session.options, session.context)
                                   : modelOfBundle(session.options, session.context);
  if (!model)
    return std::nullopt;
  session.progress.end(Stage::Graph, *model->imported.module);
  if (session.options.emit == Emit::Pipeline)
    printPipeline(session.options, *model);
  if (session.last > Stage::Graph && !runPasses(session, *model))
    return std::nullopt;
  return model;
}

/// Makes the folder of dumps, and one for texts of kernels. Returns false after an error message.
bool makeDirectories(Session &session, std::unique_ptr<codegen::PrivateDirectory> &temporary) {
  const CompileOptions &options = session.options;
  if (!options.dumpDir.empty()) {
    if (std::error_code failure = llvm::sys::fs::create_directories(options.dumpDir)) {
      printError(options.dumpDir + ": cannot be made: " + failure.message());
      return false;
    }
    session.progress.kernelTexts = options.dumpDir + "/4-lower";
  } else if (options.emit == Emit::Llvm) {
    llvm::Expected<std::unique_ptr<codegen::PrivateDirectory>> made =
        codegen::PrivateDirectory::create("zorse-emit");
    if (!made) {
      printError(llvm::toString(made.takeError()));
      return false;
    }
    temporary = std::move(*made);
    session.progress.kernelTexts = temporary->path();
  }
  return true;
}

} // namespace

/// Writes a plan with groups of devices to a folder if there is one that is better than all others.
/// Returns false after an error message. \param path  receives its path
static bool writeGroupedPlan(const CompileOptions &given,
                             std::unique_ptr<codegen::PrivateDirectory> &folder,
                             std::string &path) {
  CompileOptions options = given;
  options.quiet = true;
  options.weights = Weights::Later;
  options.last = Stage::Lowered;
  options.emit = Emit::Nothing;
  options.dumpDir.clear();
  Session session(options, Stage::Lowered);
  const std::optional<Model> model = makeModule(session);
  if (!model)
    return false;
  Result<std::optional<std::string>> plan = planWithGroups(given, *model->imported.module);
  if (plan.failed())
    return succeeded(told(plan.error()));
  if (!*plan)
    return true;
  llvm::Expected<std::unique_ptr<codegen::PrivateDirectory>> made =
      codegen::PrivateDirectory::create("zorse-plan");
  if (!made) {
    printError(llvm::toString(made.takeError()));
    return false;
  }
  folder = std::move(*made);
  path = folder->path() + "/plan.json";
  std::error_code failure;
  llvm::raw_fd_ostream file(path, failure);
  file << **plan;
  file.close();
  if (failure || file.has_error())
    printError(path + ": cannot be written");
  return !failure && !file.has_error();
}

bool compileModel(const CompileOptions &options) {
  if (options.tensorParallelSize > 1 && options.plan.empty() && lastStage(options) >= Stage::Plan) {
    if (const std::string problem = problemAtStart(options); !problem.empty()) {
      printError(problem);
      return false;
    }
    CompileOptions planned = options;
    planned.tensorParallelSize = 1;
    std::unique_ptr<codegen::PrivateDirectory> folder;
    return writeGroupedPlan(options, folder, planned.plan) && compileModel(planned);
  }
  Session session(options, lastStage(options));
  std::unique_ptr<codegen::PrivateDirectory> temporary;
  if (!makeDirectories(session, temporary))
    return false;
  if (const std::string problem = problemAtStart(options); !problem.empty()) {
    printError(problem);
    return false;
  }
  std::optional<Model> model = makeModule(session);
  if (!model || session.last < Stage::Bundle)
    return model.has_value();
  Result<std::string> written = writeBundle(options, model->imported);
  if (written.failed())
    return succeeded(told(written.error()));
  emitRemark(UnknownLoc::get(&session.context), *written);
  session.progress.end(Stage::Bundle, *model->imported.module);
  session.progress.endAll();
  return true;
}

bool summarizeModel(const CompileOptions &options, bundle::ModelSummary &summary,
                    bundle::FunctionLibrary &library) {
  Session session(options, Stage::Lowered);
  const std::optional<Model> model = makeModule(session);
  if (!model)
    return false;
  ModuleOp module = *model->imported.module;
  return parseBytes(module->getAttr(kSummaryAttr), summary) &&
         parseBytes((*module.getOps<TargetOp>().begin()).getFunctions(), library);
}

} // namespace zorse::pipelines
