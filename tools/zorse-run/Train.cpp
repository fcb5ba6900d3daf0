#include "Train.h"

#include "DirectTransfers.h"
#include "JobOutput.h"
#include "PrefixedGroup.h"

#include "zorse/Bundle/OutputDirectory.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/DeviceFactors.h"
#include "zorse/runtime/Drivers.h"
#include "zorse/runtime/Expression.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/TimeBreakdown.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

namespace {

class LocalTrainer {
public:
  LocalTrainer(const Options &options, const Bundle &bundle, DataSource &data, ProcessContext &process, uint64_t &stepsDone)
      : o(options), bundle(bundle), data(data), process(process), stepsDone(stepsDone), gradients(bundle), lossRows(bundle),
        again(process.group, "checkpoint: ") {}

  ~LocalTrainer() {
    if (process.member)
      process.member->setProgress(nullptr);
  }

  Status run() {
    for (Status (LocalTrainer::*phase)() :
         {&LocalTrainer::prepare, &LocalTrainer::restore, &LocalTrainer::announce, &LocalTrainer::train, &LocalTrainer::finish})
      if (Status status = (this->*phase)(); status.failed()) {
        removeParts(); // the process exits without running destructors
        return status;
      }
    return Status::success();
  }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kNotFinite = 3; ///< exit code

  /// Whether the time breakdown is printed at the end.
  bool showsTimes() const { return (!o.quiet || !o.page.empty()) && !o.evaluate; }

  bool alone() const { return process.member == nullptr; }

  /// Opens the data and creates devices and executor.
  Status prepare() {
    if (!alone() && (!o.gradients.empty() || !o.lossRows.empty()))
      return userError(std::string(o.gradients.empty() ? "--dump-losses" : "--dump-gradients") +
                       ": needs all devices in one process; run with --in-process");
    if (!o.evaluation.empty()) {
      Result<std::unique_ptr<DataSource>> opened = DataSource::open(bundle, o.evaluation, std::nullopt, o.dataType, DataUse::Evaluation);
      if (opened.failed())
        return opened.error();
      evaluation = std::move(*opened);
      if (bundle.summary.reads_sample_numbers() && evaluation->samplesPerEpoch() < uint64_t(bundle.samples()))
        return userError("the evaluation data has " + std::to_string(evaluation->samplesPerEpoch()) +
                         " samples, but the loss depends on the position of samples in a step of " + std::to_string(bundle.samples()) +
                         ": expected at least one whole step. Provide more samples, or compile with a smaller --global-batch-size");
    }
    Result<std::vector<double>> shares = deviceFactors("--throttle", o.throttle, 1, bundle);
    if (shares.failed())
      return shares.error();
    Result<std::vector<LocalDevice>> devices = process.makeDevices(*shares);
    if (devices.failed())
      return devices.error();
    if (Status status = connectDirectly(bundle, *devices, process.group, o.joinSeconds, o.quiet); status.failed())
      return status;
    emptyExecutor = processBytes();

    ExecutorOptions options;
    options.poison = o.poison || !o.memoryReport.empty();
    options.poisonAfterLastUse = o.poisonAfterLastUse;
    options.trace = !o.trace.empty() || showsTimes();
    options.traceSteps = o.trace.empty() ? stepsForBreakdown(bundle) : o.traceSteps;
    options.oneThreadPerQueue = o.threadPerQueue;
    options.watchdogTimeoutSeconds = alone() ? o.watchdogTimeoutSeconds : 0; // in a job, the coordinator detects stalls because it sees all ranks
    if (!o.gradients.empty() || !o.lossRows.empty())
      options.beforeCall = [this](const ObservedCall &call) {
        if (call.step != 0)
          return;
        if (!o.gradients.empty())
          gradients.observe(call);
        if (!o.lossRows.empty())
          lossRows.observe(call);
      };
    if (o.generateInterval > 0) {
      Result<GenerationOptions> generation = generationOptions(o, bundle, trainingOptions(o, bundle.summary.training()).seed());
      if (generation.failed())
        return generation.error();
      Result<std::unique_ptr<TextGenerator>> made = TextGenerator::create(bundle, data, std::move(*generation));
      if (made.failed())
        return made.error();
      generator = std::move(*made);
      if (options.beforeCall)
        options.beforeCall = [this, others = options.beforeCall](const ObservedCall &call) {
          others(call);
          generator->observe(call);
        };
      else {
        options.beforeCall = [this](const ObservedCall &call) { generator->observe(call); };
        options.observes = [this](const bundle::Instruction &instruction, bool isEvaluation) {
          return generator->observes(instruction, isEvaluation);
        };
      }
    }
    made = Clock::now();
    Result<std::unique_ptr<Executor>> created = Executor::create(bundle, std::move(*devices), options);
    if (created.failed())
      return created.error();
    executor = std::move(*created);
    if (process.member)
      process.member->setProgress([this] {
        Executor::Progress progress = executor->progress();
        return RankProgress{progress.counter, progress.inProgress, progress.where, progress.step, progress.instruction, progress.unresponsive};
      });
    return Status::success();
  }

  /// Loads the initial state: initial weights, or a snapshot.
  Status restore() {
    // If the run resumes or only evaluates, the trained parameters are in a snapshot; the model's
    // files may no longer exist.
    const bool inCheckpoint = !o.checkpointDirectory.empty() && (o.evaluate || (process.resume && hasCheckpoint()));
    if (Status status = loadInitial(inCheckpoint ? Initial::Frozen : Initial::All); status.failed())
      return status;

    training.options = trainingOptions(o, bundle.summary.training());
    if (Status status = checkTraining(bundle, training.options); status.failed())
      return status;
    if (o.nonFinite == "skip" && commitsByGroup(bundle))
      return userError("--on-nonfinite=skip: " + o.bundle +
                       " updates every group as soon as its gradients are there (\"optimizer_in_backward\": true in its plan), so no step can be "
                       "skipped: leave the "
                       "option out, or compile a plan with \"optimizer_in_backward\": false");
    training.steps = o.steps;
    if (o.evaluate)
      return o.checkpointDirectory.empty() ? Status::success() : restoreToEvaluate();
    runConfig.model = bundle.summary.content_hash();
    runConfig.batch = bundle.samples();
    runConfig.sequence = bundle.sequence;
    runConfig.seed = training.options.seed();
    runConfig.shuffle = o.shuffle;
    runConfig.data = process.fingerprint;
    runConfig.samplesPerEpoch = data.samplesPerEpoch();
    runConfig.training = training.options;
    runConfig.steps = o.steps;
    Result<std::string> matrices = matrixLibraries();
    if (matrices.failed())
      return matrices.error();
    runConfig.matrices = *matrices;
    if (o.checkpointDirectory.empty()) // the parameters are distributed: the checkpoint is merged from a final snapshot
      return o.checkpoint.empty() || alone() ? Status::success() : openParts();
    CheckpointOptions options;
    options.directory = o.checkpointDirectory;
    options.every = o.saveInterval;
    options.keep = o.saveTotalLimit;
    options.resuming = process.resume;
    if (Status status = openCheckpoints(options, process.group); status.failed() || !process.resume)
      return status;
    std::string note;
    Result<std::optional<ResumePoint>> resumed = checkpoints->resume(o.allowChange, &note);
    if (resumed.failed())
      return resumed.error();
    say(note);
    if (!*resumed) {
      say(o.checkpointDirectory + ": no snapshot found; the run starts from the beginning");
      return inCheckpoint ? loadInitial(Initial::All) : Status::success(); // the snapshot was removed in the meantime
    }
    training.firstStep = (*resumed)->step + 1;
    training.firstSample = (*resumed)->consumedSamples;
    training.steps = o.steps > (*resumed)->step ? o.steps - (*resumed)->step : 0;
    stepsDone = (*resumed)->step;
    if (process.output && !o.quiet)
      printf("resumed after step %llu from %s\n", (unsigned long long)(*resumed)->step, (*resumed)->path.c_str());
    return Status::success();
  }

  Status loadInitial(Initial initial) {
    std::string note;
    Status status = loadState(*executor, bundle, o.initial, &note, o.initialSkip, initial);
    if (status.succeeded())
      say(note);
    return status;
  }

  bool hasCheckpoint() const {
    Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(o.checkpointDirectory);
    return !directories.failed() &&
           std::any_of(directories->begin(), directories->end(), [](const CheckpointDirectory &directory) { return directory.complete; });
  }

  /// Loads the parameters of one snapshot, or of the newest one of a directory. Rank 0 chooses it,
  /// because a running job may be writing others.
  Status restoreToEvaluate() {
    std::string chosen = o.checkpointDirectory;
    while (chosen.size() > 1 && chosen.back() == '/')
      chosen.pop_back();
    Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(chosen);
    if (directories.failed())
      return directories.error();
    if (std::error_code ignored; !std::filesystem::exists(chosen + "/index.json", ignored)) {
      auto newest = std::find_if(directories->begin(), directories->end(), [](const CheckpointDirectory &directory) { return directory.complete; });
      chosen = newest == directories->end() ? std::string() : chosen + "/" + newest->name;
    }
    Result<std::vector<std::string>> all = process.group.allGatherBytes("snapshot to evaluate", chosen);
    if (all.failed())
      return all.error();
    if (all->front().empty())
      return userError("--checkpoint-dir " + o.checkpointDirectory + ": expected a snapshot, or a directory with complete ones, found none");
    Result<uint64_t> step = loadCheckpointParameters(all->front(), *executor, bundle);
    if (step.failed())
      return step.error();
    training.firstStep = *step + 1;
    if (process.output && !o.quiet)
      printf("parameters after step %llu from %s\n", (unsigned long long)*step, all->front().c_str());
    return Status::success();
  }

  /// Matrix libraries of the devices of all ranks, without duplicates. A rank's choice may depend
  /// on its machine.
  Result<std::string> matrixLibraries() {
    std::set<std::string> kinds;
    for (uint32_t device : executor->devices())
      kinds.insert(bundle.devices[device].kind);
    std::vector<std::string> mine;
    for (const std::string &kind : kinds) {
      Result<const Driver *> driver = findDriver(kind, kind);
      if (driver.failed())
        return driver.error();
      Result<std::string> library = (*driver)->numerics(isHalf(productType(bundle.summary)));
      if (library.failed())
        return library;
      mine.push_back(*library);
    }
    Result<std::vector<std::string>> all = process.group.allGatherBytes("matrix libraries", joined(mine));
    return all.failed() ? Result<std::string>(all.error()) : joined(*all);
  }

  /// Joins the names in sorted order, without duplicates.
  static std::string joined(const std::vector<std::string> &names) {
    std::string text;
    for (auto name = names.begin(); name != names.end(); ++name)
      if (std::find(names.begin(), name, *name) == name)
        text += (text.empty() ? "" : " and ") + *name;
    return text;
  }

  Status openCheckpoints(CheckpointOptions options, ProcessGroup &group) {
    options.warn = [this](const std::string &text) {
      if (process.output)
        process.output->line("warning: " + text);
    };
    if (process.output && !o.quiet && !inParts)
      options.written = [this](uint64_t step, const std::string &path) {
        process.output->line("snapshot of step " + std::to_string(step) + ": " + path);
      };
    Result<std::unique_ptr<CheckpointManager>> opened = CheckpointManager::open(*executor, bundle, group, options, runConfig);
    if (opened.failed())
      return opened.error();
    checkpoints = std::move(*opened);
    return Status::success();
  }

  /// Creates a directory next to the checkpoint for the ranks' parts of it. Rank 0 creates it and
  /// sends its name.
  Status openParts() {
    checkpoints.reset();
    inParts = true;
    std::string answer;
    parts.reset();
    if (process.output) {
      Result<bundle::DraftDirectory> draft = bundle::DraftDirectory::create(o.checkpoint + ".parts.");
      answer = draft.failed() ? draft.message() : "=" + draft->path();
      if (!draft.failed())
        parts = std::move(*draft);
    }
    Result<std::vector<std::string>> made = again.allGatherBytes("directory of parts", answer);
    if (made.failed())
      return made.error();
    if (made->front().empty() || made->front()[0] != '=')
      return userError("--save-weights " + o.checkpoint + ": " + made->front());
    partsDirectory = made->front().substr(1);
    CheckpointOptions options;
    options.directory = partsDirectory;
    options.weightsFile = o.checkpoint;
    return openCheckpoints(options, again);
  }

  void removeParts() {
    if (parts)
      parts->remove();
  }

  Status announce() {
    if (!process.output)
      return Status::success();
    for (const BundleDevice &device : bundle.devices)
      if (!deviceKindOf(device.kind).computes)
        say("device " + device.name + " is of kind " + device.kind + ", which computes nothing: the results of this run are meaningless");
    if (!o.quiet) {
      uint64_t planned = 0;
      for (const bundle::Program &program : bundle.programs)
        for (const bundle::Arena &arena : program.arenas())
          planned += arena.bytes();
      std::string batch = std::to_string(bundle.samples()) + (bundle.sequence > 0 ? " x " + std::to_string(bundle.sequence) : "");
      printf("%s: %s, %zu device%s%s, batch %s, %s, %s planned%s; %llu samples an epoch\n", o.bundle.c_str(), bundle.model.c_str(),
             bundle.devices.size(), bundle.devices.size() == 1 ? "" : "s", alone() ? "" : ", a process each", batch.c_str(), bundle.precision.c_str(),
             bytesText(planned).c_str(),
             checkpoints
                 ? (", " + bytesText(checkpoints->memory()) + (alone() ? "" : " per rank") + " for " + (inParts ? "the checkpoint" : "snapshots"))
                       .c_str()
                 : "",
             (unsigned long long)data.samplesPerEpoch());
      for (const std::string &line : o.evaluate ? std::vector<std::string>() : data.description())
        printf("data: %s\n", line.c_str());
      for (const std::string &line : evaluation ? evaluation->description() : std::vector<std::string>())
        printf("evaluation data: %s\n", line.c_str());
      fflush(stdout);
    }
    return process.output->begin(stepsDone);
  }

  Status train() {
    training.data = &data;
    training.evaluationData = evaluation.get();
    training.evaluateEvery = o.evaluateEvery;
    training.evaluationBatches = o.evaluationBatches;
    training.stopCoordinator = &process.stopCoordinator;
    training.generator = generator.get();
    training.generateInterval = o.generateInterval;
    training.group = &process.group;
    training.generated = [this](uint64_t step, const std::vector<int64_t> &ids, size_t prompt) {
      if (process.output) // every rank counts them
        process.output->take(describeGenerated(step, ids, prompt));
    };
    if (o.nonFinite == "stop")
      training.nonFinite = TrainingRun::NonFinite::Stop;
    training.report = [this](const StepReport &report) { tell(sayStep(report), process.reportToAll); };
    training.pace = process.pace;
    if (checkpoints)
      training.stopping = [this] { (void)checkpoints->finish(); }; // the run already ends with an error
    if (checkpoints)
      training.stateObserver = [this](uint64_t step, bool last) { return checkpoints->beginIfDue(step, last); };

    // Clocks of ranks are compared from here on: all ranks leave this exchange at nearly the same
    // time.
    if (auto met = process.group.allGatherBytes("ready to train", ""); met.failed())
      return met.error();
    began = Clock::now();
    if (o.evaluate) {
      Result<bool> done = evaluateOnce(*executor, bundle, training);
      if (!done.failed() && !*done) {
        Error interrupted = userError("interrupted before the evaluation");
        interrupted.exitCode = 130;
        return interrupted;
      }
      return done.failed() ? Status(done.error()) : Status::success();
    }
    if (training.steps == 0) {
      say("nothing to do: the run already ended after step " + std::to_string(stepsDone));
      return Status::success();
    }
    Result<TrainingEnd> end = runtime::train(*executor, bundle, training);
    if (end.failed())
      return end.error();
    stepsDone = end->lastStep;
    if (checkpoints && stepsDone >= training.firstStep)
      checkpoints->saveNow(stepsDone);
    // The rank that has the losses sends the result to all, so that all ranks exit with the same
    // code.
    Result<std::vector<std::string>> said = process.group.allGatherBytes("numbers", (end->changed ? "+" : "-") + end->notFinite);
    if (said.failed())
      return said.error();
    for (const std::string &text : *said) {
      unchanged = unchanged || text[0] == '-';
      if (text.size() > 1 && !notFinite) {
        notFinite = userError(text.substr(1));
        notFinite->exitCode = kNotFinite;
      }
    }
    return Status::success();
  }

  /// Waits for the last snapshot. If it failed and the checkpoint would have been merged from it,
  /// collects the parts next to the checkpoint instead, which may be on a working disk.
  Status finishCheckpoints() {
    Status status = checkpoints->finish();
    partsFailed = inParts && status.failed();
    if (alone() || o.checkpoint.empty() || inParts)
      return status;
    Result<std::vector<std::string>> failed = process.group.allGatherBytes("last snapshot", status.failed() ? "failed" : "");
    if (failed.failed())
      return failed.error();
    bool any = std::any_of(failed->begin(), failed->end(), [](const std::string &text) { return !text.empty(); });
    if (!any || stepsDone == 0 || checkFence(o.checkpointDirectory, process.group.generation()).failed())
      return status;
    Status collected = openParts();
    if (collected.succeeded()) {
      checkpoints->saveNow(stepsDone);
      collected = checkpoints->finish();
    }
    partsFailed = collected.failed();
    if (partsFailed && process.output)
      fprintf(stderr, "error: %s\n", collected.message().c_str());
    return status;
  }

  /// Writes the requested outputs in this order, the trained state first. An output that fails does
  /// not prevent the others.
  Status finish() {
    std::optional<Error> first = notFinite;
    auto keep = [&](Status status) {
      if (status.failed() && first)
        fprintf(stderr, "error: %s\n", status.message().c_str());
      else if (status.failed())
        first = status.error();
      return status.succeeded();
    };
    if (checkpoints)
      keep(finishCheckpoints());

    if (!o.memoryReport.empty()) {
      Result<std::vector<Executor::MemoryUse>> uses = executor->memoryUse();
      if (!uses.failed())
        for (size_t i = 0; i < executor->devices().size(); ++i)
          tell(sayMemory(executor->devices()[i], (*uses)[i]));
      else
        keep(uses.error());
    }
    if (!o.trace.empty() || showsTimes()) {
      std::vector<TraceEvent> events = executor->takeTrace();
      double offset = alone() ? 0 : std::chrono::duration<double>(began - made).count();
      for (TraceEvent &event : events) {
        event.begin -= offset;
        event.end -= offset;
      }
      for (std::string &message : sayTrace(events))
        tell(std::move(message));
    }
    if (auto met = process.group.allGatherBytes("everything is said", ""); met.failed())
      return first ? Status(*first) : Status(met.error());
    if (!process.output) {
      keep(waitForOutputs());
      return first ? Status(*first) : Status::success();
    }

    process.output->drain();
    if (stepsDone < o.steps)
      fprintf(stderr, "interrupted after step %llu of %llu\n", (unsigned long long)stepsDone, (unsigned long long)o.steps);
    if (stepsDone < o.steps && !o.checkpointDirectory.empty() && !first)
      fprintf(stderr, "to resume: %s\n", resumeCommand(o, process.member != nullptr).c_str());
    const TimeBreakdown breakdown = showsTimes() ? process.output->breakdown() : TimeBreakdown();
    struct {
      const std::string &path;
      const char *what;
      std::function<Status()> write;
    } const outputs[] = {
        {o.checkpoint, "checkpoint", [&] { return writeCheckpoint(); }},
        {o.metrics, "metrics", [&] { return process.output->writeMetrics(); }},
        {o.tensorboard, "events for TensorBoard", [&] { return process.output->closeTensorBoard(); }},
        {o.gradients, "gradients", [&] { return gradients.write(o.gradients); }},
        {o.lossRows, "per-sample losses", [&] { return lossRows.write(o.lossRows); }},
        {o.memoryReport, "memory report", [&] { return writeMemoryReport(o.memoryReport, bundle, process.output->memoryUses(), emptyExecutor); }},
        {o.page, "page", [&] { return process.output->writePage(breakdown, training.options); }},
        {o.trace, "trace", [&] { return process.output->writeTrace(); }},
    };
    for (const auto &output : outputs) {
      if (output.path.empty() || (partsFailed && output.path == o.checkpoint))
        continue; // the error has been printed
      if (unchanged && training.firstStep == 1 && output.path == o.checkpoint) {
        fprintf(stderr, "error: %s: not written: no update was applied, so it would hold the initial parameters\n", o.checkpoint.c_str());
        continue;
      }
      // If this process was suspended, the outputs belong to a later start of the job.
      if (Status status =
              o.checkpointDirectory.empty() || o.evaluate ? Status::success() : checkFence(o.checkpointDirectory, process.group.generation());
          status.failed())
        return first ? Status(*first) : status;
      if (keep(output.write()) && !o.quiet)
        printf("%s: %s\n", output.what, output.path.c_str());
    }
    if (!o.quiet)
      fputs(describeBreakdown(bundle, breakdown, process.output->secondsAStep()).c_str(), stdout);
    if (o.evaluate && !o.quiet)
      sayEvaluation();
    removeParts();
    keep(waitForOutputs());
    return first ? Status(*first) : Status::success();
  }

  void sayEvaluation() const {
    const std::optional<StepReport> &report = process.output->lastEvaluation();
    if (!report)
      return;
    // Perplexity is printed for language models whose loss is the mean of one cross-entropy, with
    // no other terms.
    const auto &terms = bundle.summary.loss();
    std::string more;
    if (bundle.sequence > 0 && terms.size() == 1 && terms[0].factor().rfind("1/", 0) == 0) {
      char text[64];
      snprintf(text, sizeof text, ", perplexity %.6g", std::exp(report->loss));
      more = text;
    }
    const uint64_t all = evaluation->samplesPerEpoch();
    uint64_t max = o.evaluationBatches > 0 ? std::min(all, o.evaluationBatches * uint64_t(bundle.samples())) : all;
    if (bundle.summary.reads_sample_numbers()) // only whole steps
      max -= max % uint64_t(bundle.samples());
    printf("evaluation: loss %.9g%s, %llu%s samples\n", report->loss, more.c_str(), (unsigned long long)max,
           max < all ? (" of " + std::to_string(all)).c_str() : "");
  }

  /// Waits until rank 0 has written the outputs. If a rank that was asked to stop exited earlier
  /// with 130, launchers would kill the others.
  Status waitForOutputs() {
    if (auto met = process.group.allGatherBytes("outputs are written", ""); met.failed())
      return met.error();
    return Status::success();
  }

  Status writeCheckpoint() {
    if (alone())
      return saveWeights(*executor, bundle, o.checkpoint);
    std::string directory = inParts ? partsDirectory : o.checkpointDirectory;
    Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(directory);
    if (directories.failed())
      return directories.error();
    auto newest = std::find_if(directories->begin(), directories->end(),
                               [&](const CheckpointDirectory &folder) { return folder.complete && folder.step == stepsDone; });
    if (newest == directories->end())
      return userError(directory + ": contains no snapshot of step " + std::to_string(stepsDone) +
                       "; expected a directory that all ranks share. Nothing was " + "written to " + o.checkpoint);
    Result<CheckpointReader> checkpoint = CheckpointReader::open(directory + "/" + newest->name);
    if (checkpoint.failed())
      return checkpoint.error();
    std::string note;
    if (Status status = mergeCheckpoint(*checkpoint, o.checkpoint, &note); status.failed())
      return status;
    say(note);
    return Status::success();
  }

  void tell(std::string message, bool toAll = false) {
    if (process.member && (!process.output || toAll))
      process.member->report(message, toAll);
    else
      process.output->take(message);
  }

  void say(const std::string &note) const {
    if (!note.empty() && process.output)
      fprintf(stderr, "note: %s\n", note.c_str());
  }

  const Options &o;
  const Bundle &bundle;
  DataSource &data;
  ProcessContext &process;
  uint64_t &stepsDone;
  std::unique_ptr<DataSource> evaluation;
  GradientDump gradients;
  LossRows lossRows;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<TextGenerator> generator;       // destroyed before the executor: uses its device memory
  PrefixedGroup again;                            // exchanges about the checkpoint's parts
  std::unique_ptr<CheckpointManager> checkpoints; // destroyed before the executor
  RunConfig runConfig;
  bool unchanged = false;                      // no update was applied
  bool inParts = false;                        // the checkpoint is merged from its parts, not from the last snapshot
  bool partsFailed = false;                    // collecting the parts failed, and the error has been printed
  std::string partsDirectory;                  // as sent by rank 0
  std::optional<bundle::DraftDirectory> parts; // rank 0: the same directory
  std::optional<Error> notFinite;              // error if the run ended with losses or gradients that are not finite
  TrainingRun training;
  uint64_t emptyExecutor = 0;
  Clock::time_point made, began;
};

} // namespace

Status zorse::run::trainHere(const Options &options, const Bundle &bundle, DataSource &data, ProcessContext &process, uint64_t &stepsDone) {
  LocalTrainer here(options, bundle, data, process, stepsDone);
  Status status = here.run();
  if (status.failed())
    process.failed(status.error());
  return status;
}
