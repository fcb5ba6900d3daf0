// What each phase does.
#include "Compiler.h"

#include "Diagnostics.h"
#include "OwnTraining.h"
#include "Programs.h"
#include "Rebuild.h"
#include "WeightTable.h"

#include "zorse/Bundle/DescribeTraining.h"
#include "zorse/Codegen/PrivateFolder.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Step/Plan.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Overwrites.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/TargetParser/X86TargetParser.h"

#include <set>
#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace mlir;

namespace zorse::pipelines {

void Compiler::dump(const std::string &name, const std::string &text) const {
  if (options.dumpDir.empty())
    return;
  std::error_code failure;
  llvm::raw_fd_ostream os(options.dumpDir + "/" + name, failure);
  if (!failure)
    os << text;
}

bool Compiler::import(std::string &remark) {
  ImportOptions import;
  import.dims = options.dims;
  import.sequence = options.sequence;
  import.batchNormRows = options.batchNormRows;
  if (options.batchNormRows > 0 && options.batch % options.batchNormRows != 0) {
    printError(step::brokenGroups(options.batch, options.batchNormRows));
    return false;
  }
  import.batch = options.batch / std::max<int64_t>(options.batchNormRows, 1);
  import.loss = options.loss;
  import.lossOutput = options.lossOutput;
  import.logits = options.logits;
  import.labels = options.labels;
  import.shiftLabels = options.shiftLabels;
  import.shiftedInGraph = options.shiftedInGraph;
  import.ignoreIndex = options.ignoreIndex;
  import.weightsLater = options.weights == Weights::Later;
  import.compute = options.precision.compute == bundle::F64 ? ComputeType::F64 : ComputeType::F32;
  for (const std::string &name : options.train)
    import.trainable[name] = TrainableChoice::Train;
  for (const std::string &name : options.freeze) {
    if (import.trainable.count(name)) {
      printError("--freeze: '" + name + "' is named by --train, too");
      return false;
    }
    import.trainable[name] = TrainableChoice::Freeze;
  }
  import.trustGuess = options.trustGuess;
  import.trustImport = options.trustImport;

  FailureOr<ImportedModel> result = importOnnx(options.model, import, context);
  if (failed(result))
    return false;
  imported = std::move(*result);
  training = options.training;
  decay = options.decay;
  if (imported.training)
    if (std::string note = adoptOptimizer(*imported.training, options, training, decay); !note.empty())
      imported.notes.push_back(note);
  imported.notes.push_back("training: " + describeTraining(training) +
                           (options.optimizerGiven || options.learningRateGiven || options.clipGiven || imported.training
                                ? ""
                                : "; these are the defaults (--optimizer, --lr, --weight-decay, --clip, --schedule)"));
  // Also with --quiet: what the exporter did to the parameters changes what is trained.
  for (const std::string &warning : imported.warnings)
    emitWarning(UnknownLoc::get(&context), warning);
  if (failed(mlir::verify(module())))
    return false;
  size_t ops = 0;
  module()->walk([&](Operation *op) { ops += op->getNumResults() > 0; });
  remark = counted(imported.nodesRead, "node") + " read, " + std::to_string(ops) + " after folding, " + counted(imported.weights.size(), "parameter");
  if (!options.quiet)
    for (const std::string &note : imported.notes)
      remark += "\n             " + note;
  return true;
}

std::string Compiler::settings() const {
  bundle::ModelSummary given;
  given.set_name(llvm::sys::path::stem(options.model).str());
  *given.mutable_training() = training;
  given.set_samples_per_row(options.batchNormRows);
  given.set_rounded_to(options.precision.rounded);
  given.set_wide_residual(options.precision.wideResidual);
  given.set_tf32(options.precision.tf32);
  given.set_sums_f16(options.precision.sumsF16);
  return units::settingsText(given);
}

void Compiler::fill(TrainPipelineOptions &passOptions) const {
  passOptions.round = options.precision.rounds() ? elementTypeName(options.precision.rounded) : "";
  passOptions.wideResidual = options.precision.wideResidual;
  passOptions.settings = settings();
  passOptions.decay = decay;
  passOptions.batch = options.batch;
  passOptions.save = options.saved == "keep"   ? autodiff::SavePolicy::Keep
                     : options.saved == "full" ? autodiff::SavePolicy::Full
                                               : autodiff::SavePolicy::MinimumCut;
  passOptions.sampling = options.sampling;
  passOptions.cluster = options.cluster;
  passOptions.profiles = options.profiles;
  passOptions.plan = options.plan;
  passOptions.architectures = {codegen::resolveArch(options.arch)};
  passOptions.simulateOnly = options.simulateOnly;
  passOptions.keepSplit = options.splitBodies;
  passOptions.threads = options.threads;
  passOptions.cache = options.emit != Emit::Llvm; // cached kernels have no text
  passOptions.kernelTexts = kernelTexts;
}

std::string Compiler::pipelineText() const {
  TrainPipelineOptions passOptions;
  fill(passOptions);
  passOptions.to = Stage::Bodies;
  OpPassManager passes(ModuleOp::getOperationName());
  buildTrainPipeline(passes, passOptions);
  std::string text;
  llvm::raw_string_ostream os(text);
  passes.printAsTextualPipeline(os);
  return text;
}

bool Compiler::runPasses(Stage from, Stage to) {
  TrainPipelineOptions passOptions;
  fill(passOptions);
  passOptions.from = from;
  passOptions.to = to;
  PassManager passes(&context);
  if (options.mlirFlags && failed(applyPassManagerCLOptions(passes)))
    return false;
  if (options.mlirFlags)
    applyDefaultTimingPassManagerCLOptions(passes);
  buildTrainPipeline(passes, passOptions);
  return succeeded(passes.run(module()));
}

bool Compiler::buildUnits(std::string &remark) {
  if (!runPasses(Stage::Recognized, last == Phase::Units ? Stage::Units : Stage::Functions))
    return false;
  FailureOr<bundle::ModelSummary> made = units::summarize(module());
  if (failed(made))
    return false;
  summary = std::move(*made);
  const std::optional<units::DecayRule> rule = units::parseDecay(decay);
  for (const std::string &pattern : rule->patterns)
    if (llvm::none_of(summary.parameters(), [&](const bundle::ParameterInfo &parameter) { return StringRef(parameter.name()).contains(pattern); })) {
      printError("--decay: no parameter's name contains '" + pattern + "'");
      return false;
    }
  const bundle::ModelSummary &s = summary;
  remark = counted(s.units_size(), "unit") + " of " + std::to_string(s.classes_size()) + (s.classes_size() == 1 ? " class" : " classes");
  if (s.blocks_count())
    remark += ", " + counted(s.blocks_count(), "block") + " of " + std::to_string(s.blocks_period());
  remark += ", " + counted(s.groups_size(), "state group");
  const std::vector<std::string> loss = describeLoss(s, options.batch);
  remark += "\n             loss: " + loss.front();
  for (size_t i = 1; i < loss.size(); ++i)
    remark += "\n                   " + loss[i];
  return true;
}

bool Compiler::compileBodies(std::string &remark) {
  if (options.arch != "native" && llvm::Triple(llvm::sys::getProcessTriple()).isX86() &&
      llvm::X86::parseArchX86(options.arch, /*Only64Bit=*/true) == llvm::X86::CK_None) {
    printError("--arch: expects a 64-bit x86 CPU as LLVM names it (x86-64-v2, x86-64-v3, x86-64-v4, znver4, skylake-avx512, ...), got '" +
               options.arch + "'");
    return false;
  }
  if (!runPasses(Stage::Functions, Stage::Bodies))
    return false;
  remark = printer.takeRemarks();
  if (options.emit != Emit::Llvm && options.last != Phase::Bodies)
    return true;
  // No plan will say which kernels are used: all.
  std::unique_ptr<codegen::PrivateFolder> temporary;
  if (options.emit == Emit::Llvm && options.dumpDir.empty()) {
    llvm::Expected<std::unique_ptr<codegen::PrivateFolder>> made = codegen::PrivateFolder::create("zorse-emit");
    if (!made) {
      printError(llvm::toString(made.takeError()));
      return false;
    }
    temporary = std::move(*made);
    kernelTexts = temporary->path();
  }
  if (!runPasses(Stage::Plan, Stage::Kernels))
    return false;
  if (options.emit == Emit::Llvm) {
    std::error_code failure;
    std::set<std::string> files; // sorted: the same text every time
    for (llvm::sys::fs::directory_iterator it(kernelTexts, failure), end; it != end && !failure; it.increment(failure))
      if (llvm::StringRef(it->path()).ends_with(".ll"))
        files.insert(it->path());
    for (const std::string &file : files)
      if (auto text = llvm::MemoryBuffer::getFile(file))
        llvm::outs() << (*text)->getBuffer() << '\n';
  }
  remark += ", " + printer.takeRemarks();
  return true;
}

bool Compiler::plan(std::string &remark) {
  if (!runPasses(Stage::Bodies, Stage::Plan))
    return false;
  remark = printer.takeRemarks();
  planned.emplace(module());
  planJson = fileOf(module()->getAttr(units::kPlanAttr))->text;
  return true;
}

bool Compiler::compileKernels(std::string &remark) {
  if (!runPasses(Stage::Plan, Stage::Kernels))
    return false;
  remark = printer.takeRemarks();
  return true;
}

/// Whether the step has what goes directly from GPU to GPU.
static bool isDirect(const step::StepGraph &graph) {
  return llvm::any_of(graph.devices, [](const step::DeviceProgram &device) {
    return llvm::any_of(device.queues, [](const step::Queue &queue) { return queue.kind == bundle::DIRECT; });
  });
}

/// Whether two devices with work are of one group of those that exchange directly: else nothing goes directly, and no expansion is needed to see it.
static bool mayBeDirect(const step::Plan &plan, const std::vector<int32_t> &direct) {
  std::set<uint32_t> used;
  for (const step::Cell &cell : plan.cells)
    used.insert(cell.device);
  std::set<int32_t> groups;
  return llvm::any_of(used, [&](uint32_t device) { return direct[device] >= 0 && !groups.insert(direct[device]).second; });
}

static step::Plan directly(step::Plan plan, const std::vector<int32_t> &direct) {
  for (size_t d = 0; d < plan.devices.size(); ++d)
    plan.devices[d].direct = direct[d];
  return plan;
}

/// Gives what has been freed back to the system: what a search and an expansion leave lies between what stays, and the next one takes as much again.
static void releaseFreed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

Result<step::StepGraph> Compiler::expandAs(const step::Plan &plan) {
  releaseFreed();
  step::ExpandOptions expand;
  expand.bodies = &planned->bodies;
  expand.costs = planned->costs.get();
  Result<step::StepGraph> made = step::expandPlan(planned->summary, plan, expand);
  releaseFreed();
  return made;
}

bool Compiler::expand(std::string &remark) {
  std::string direct;
  const bool tryDirect = mayBeDirect(planned->plan, planned->direct);
  Result<step::StepGraph> result = tryDirect ? expandAs(directly(planned->plan, planned->direct)) : expandAs(planned->plan);
  if (tryDirect && result.failed()) {
    const std::string why = result.message();
    direct = "; transfers go by way of the host, as there is no room for direct ones: " + why.substr(0, why.find('\n'));
    result = expandAs(planned->plan);
  }
  if (result.failed()) {
    printError(planned->file + ": " + result.message());
    return false;
  }
  graph = std::move(*result);
  if (isDirect(graph)) {
    for (size_t d = 0; d < planned->devices.size(); ++d)
      planned->devices[d].direct = planned->direct[d];
    direct = ", GPUs exchange directly";
  }
  uint64_t largest = 0;
  for (const step::DeviceProgram &device : graph.devices)
    largest = std::max(largest, device.plannedBytes);
  remark = std::to_string(graph.entries.size()) + " entries, " + counted(graph.waits.size(), "wait") + ", at most " + megabytes(largest) +
           " on a device" + direct;
  return true;
}

bool Compiler::convert(std::string &remark) {
  std::function<void(size_t, const std::string &)> text;
  if (options.emit == Emit::Exec || !options.dumpDir.empty())
    text = [&](size_t device, const std::string &program) {
      dump("6-program-" + std::to_string(device) + ".mlir", program);
      if (options.emit == Emit::Exec)
        llvm::outs() << program;
    };
  const bool direct = isDirect(graph);
  programs = buildPrograms(graph, planned->summary, planned->bodies, options.threads, text);
  graph = {};
  if (programs.empty())
    return false;
  uint64_t bytes = 0;
  for (const std::string &program : programs)
    bytes += program.size();
  remark = counted(programs.size(), "program") + ", " + megabytes(bytes);
  if (!direct)
    return true;
  // The same step by way of the host, for where GPUs turn out not to reach each other. Large steps take most of the memory of a compilation: of the
  // two there is one at a time.
  Result<step::StepGraph> staged = expandAs(planned->plan);
  if (staged.failed()) {
    printError(planned->file + ": by way of the host, which is for where GPUs do not reach each other: " + staged.message());
    return false;
  }
  stagedPrograms = buildPrograms(*staged, planned->summary, planned->bodies, options.threads);
  remark += "; " + std::to_string(staged->entries.size()) + " entries by way of the host";
  return !stagedPrograms.empty();
}

bool Compiler::verify(std::string &remark) {
  remark = "any number of steps: matching, order, races, memory, values";
  std::vector<bool> byHost;
  std::vector<int32_t> direct;
  for (size_t d = 0; d < planned->plan.devices.size(); ++d) {
    byHost.push_back(planned->plan.devices[d].staged);
    direct.push_back(planned->devices[d].direct);
  }
  return verifySerialized(programs, planned->summary, planned->bodies, planJson, options.threads, byHost, direct) &&
         (stagedPrograms.empty() || verifySerialized(stagedPrograms, planned->summary, planned->bodies, planJson, options.threads, byHost));
}

bool Compiler::write(std::string &remark) {
  bundle::BundleContents contents;
  contents.model = planned->summary.name();
  contents.batch = options.batch;
  contents.sequence = options.sequence;
  contents.precision = options.precision.name();
  contents.devices = planned->devices;
  contents.plan = planJson;
  contents.cluster = fileOf(module()->getAttr(units::kClusterAttr))->text;
  contents.topology = planned->costs->topology();
  contents.summary = planned->summary;
  contents.bodies = planned->bodies;
  contents.programs = std::move(programs);
  contents.staged = std::move(stagedPrograms);
  for (auto target : module().getOps<TargetOp>()) {
    std::string object = bytesOf(target.getObjectAttr())->str();
    bundle::BodyLibrary bodies;
    if (target == *module().getOps<TargetOp>().begin())
      contents.kernels = std::move(object);
    else if (parseBytes(target.getBodies(), bodies))
      contents.otherTargets.push_back({std::move(bodies), std::move(object)});
  }
  Result<std::vector<bundle::WeightData>> weights = collectWeights(imported, module(), planned->summary);
  if (weights.failed()) {
    printError(weights.message());
    return false;
  }
  contents.weights = std::move(*weights);
  contents.hub = hubOf(imported);
  std::string taken;
  if (Status status = options.rebuild.empty() ? Status::success() : takeFromBundle(options, contents, taken); status.failed()) {
    printError(status.message());
    return false;
  }
  uint64_t bytes = 0;
  for (const bundle::WeightData &weight : contents.weights)
    bytes += weight.size + weight.bytes.size();
  bool reference =
      options.weights == Weights::Reference || options.weights == Weights::Later || (options.weights == Weights::Auto && bytes > kCopiedWeights);
  contents.weightMode = reference ? bundle::WeightMode::Reference : bundle::WeightMode::Copy;
  std::vector<runtime::NamedPath> files; // of the model, which the bundle must not replace
  for (const bundle::WeightData &weight : contents.weights)
    if (!weight.file.empty() && (files.empty() || files.back().path != weight.file))
      files.push_back({"the data of " + options.model, weight.file});
  if (runtime::Status status = runtime::checkOverwrites(files, {{"--output", options.output, /*replaced=*/true}}); status.failed()) {
    printError(status.message());
    return false;
  }
  Result<std::string> digest = bundle::writeBundle(contents, options.output);
  if (digest.failed()) {
    printError(digest.message());
    return false;
  }
  remark = options.output + ", digest " + *digest + taken;
  if (options.weights == Weights::Later)
    remark += "; it will read " + megabytes(bytes) + " of weights from the model's files";
  else if (reference)
    remark += "; its " + megabytes(bytes) + " of weights stay in the model's files (--weights=copy makes it movable)";
  return true;
}

} // namespace zorse::pipelines
