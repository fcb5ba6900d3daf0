#include "Train.h"

#include "DirectTransfers.h"
#include "JobOutput.h"
#include "LocalTrainer.h"

#include "zorse/Summary/Summary.h"
#include "zorse/runtime/DeviceFactors.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/TimeBreakdown.h"

#include <algorithm>
#include <cstdio>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

Status LocalTrainer::run() {
  for (Status (LocalTrainer::*phase)() :
       {&LocalTrainer::prepare, &LocalTrainer::restore, &LocalTrainer::announce,
        &LocalTrainer::train, &LocalTrainer::finish})
    if (Status status = (this->*phase)(); status.failed()) {
      removeParts(); // the process exits without running destructors
      return status;
    }
  return Status::success();
}

Status LocalTrainer::openEvaluationData() {
  if (o.evaluation.empty())
    return Status::success();
  Result<std::unique_ptr<DataSource>> opened =
      DataSource::open(bundle, o.evaluation, std::nullopt, o.dataType, DataUse::Evaluation);
  if (opened.failed())
    return opened.error();
  evaluation = std::move(*opened);
  if (const uint64_t unit = evaluationUnit(bundle), given = evaluation->samplesPerEpoch();
      given < unit)
    return userError(
        "the evaluation data has " + std::to_string(given) + " samples, but the loss " +
        (bundle.summary.reads_sample_numbers()
             ? "depends on the position of samples in a step of " + std::to_string(unit) +
                   ": expected at least one whole step. Provide more samples, or compile with a "
                   "smaller --global-batch-size"
             : "combines groups of " + std::to_string(unit) +
                   " samples: expected at least one whole group. Provide more samples, or compile "
                   "with a smaller --group-rows"));
  return Status::success();
}

Status LocalTrainer::createGenerator(ExecutorOptions &options) {
  if (o.generateInterval == 0)
    return Status::success();
  Result<GenerationOptions> generation =
      generationOptions(o, bundle, trainingOptions(o, bundle.summary.training())->seed());
  if (generation.failed())
    return generation.error();
  Result<std::unique_ptr<TextGenerator>> made =
      TextGenerator::create(bundle, data, std::move(*generation));
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
  return Status::success();
}

Status LocalTrainer::prepare() {
  if (!alone() && (!o.gradients.empty() || !o.lossRows.empty()))
    return userError(std::string(o.gradients.empty() ? "--dump-losses" : "--dump-gradients") +
                     ": needs all devices in one process; run with --in-process");
  if (Status status = openEvaluationData(); status.failed())
    return status;
  Result<std::vector<double>> shares = deviceFactors("--throttle", o.throttle, 1, bundle);
  if (shares.failed())
    return shares.error();
  Result<std::vector<LocalDevice>> devices = process.makeDevices(*shares);
  if (devices.failed())
    return devices.error();
  if (Status status = connectDirectly(bundle, *devices, process.group, o.joinSeconds, o.quiet);
      status.failed())
    return status;
  emptyExecutor = processBytes();

  ExecutorOptions options;
  options.poison = o.poison || !o.memoryReport.empty();
  options.poisonAfterLastUse = o.poisonAfterLastUse;
  options.trace = !o.trace.empty() || showsTimes();
  options.traceSteps = o.trace.empty() ? stepsForBreakdown(bundle) : o.traceSteps;
  options.oneThreadPerQueue = o.threadPerQueue;
  options.measureComputing = bundle.devices.size() > 1 && !o.evaluate;
  // In a job, the coordinator detects stalls because it sees all ranks.
  options.watchdogTimeoutSeconds = alone() ? o.watchdogTimeoutSeconds : 0;
  if (!o.gradients.empty() || !o.lossRows.empty())
    options.beforeCall = [this](const ObservedCall &call) {
      if (call.step != 0)
        return;
      if (!o.gradients.empty())
        gradients.observe(call);
      if (!o.lossRows.empty())
        lossRows.observe(call);
    };
  if (Status status = createGenerator(options); status.failed())
    return status;
  made = Clock::now();
  Result<std::unique_ptr<Executor>> created =
      Executor::create(bundle, std::move(*devices), options);
  if (created.failed())
    return created.error();
  executor = std::move(*created);
  if (process.member)
    process.member->setProgress([this] {
      Executor::Progress progress = executor->progress();
      return RankProgress{progress.counter, progress.inProgress,  progress.where,
                          progress.step,    progress.instruction, progress.unresponsive};
    });
  return Status::success();
}

Status LocalTrainer::announce() {
  if (!process.output)
    return Status::success();
  for (const BundleDevice &device : bundle.devices)
    if (!deviceKindOf(device.kind).computes)
      say("device " + device.name + " is of kind " + device.kind +
          ", which computes nothing: the results of this run are meaningless");
  if (!o.quiet) {
    uint64_t planned = 0;
    for (const bundle::Program &program : bundle.programs)
      for (const bundle::Arena &arena : program.arenas())
        planned += arena.bytes();
    std::string batch = std::to_string(bundle.samples()) +
                        (bundle.sequence > 0 ? " x " + std::to_string(bundle.sequence) : "");
    printf("%s: %s, %zu device%s%s, batch %s, %s, %s planned%s; %s\n", o.bundle.c_str(),
           bundle.model.c_str(), bundle.devices.size(), bundle.devices.size() == 1 ? "" : "s",
           alone() ? "" : ", a process each", batch.c_str(), bundle.precision.c_str(),
           bytesText(planned).c_str(),
           checkpoints ? (", " + bytesText(checkpoints->memory()) + (alone() ? "" : " per rank") +
                          " for " + (inParts ? "the weights" : "checkpoints"))
                             .c_str()
                       : "",
           data.isStream()
               ? "streamed samples"
               : (std::to_string(data.samplesPerEpoch()) + " samples an epoch").c_str());
    for (const std::string &line : o.evaluate ? std::vector<std::string>() : data.description())
      printf("data: %s\n", line.c_str());
    for (const std::string &line :
         evaluation ? evaluation->description() : std::vector<std::string>())
      printf("evaluation data: %s\n", line.c_str());
    fflush(stdout);
  }
  return process.output->begin(stepsDone);
}

Status LocalTrainer::train() {
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
  training.report = [this](const StepReport &report) {
    tell(sayStep(report), process.reportToAll);
  };
  computingFrom = stepsDone;
  if (bundle.devices.size() > 1)
    training.computed = [this](uint64_t step, const std::vector<double> &seconds) {
      tellComputing(step, seconds);
    };
  training.pace = process.pace;
  if (checkpoints)
    training.stopping = [this] { (void)checkpoints->finish(); }; // the run already ends with an
                                                                 // error
  if (checkpoints)
    training.stateObserver = [this](uint64_t step, bool last) {
      return checkpoints->beginIfDue(step, last);
    };

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
    if (checkpoints) // the state may be in memory only, which is freed at the end
      checkpoints->saveNow(stepsDone);
    return Status::success();
  }
  Result<TrainingEnd> end = runtime::train(*executor, bundle, training);
  if (end.failed())
    return end.error();
  stepsDone = end->lastStep;
  if (checkpoints)
    checkpoints->saveNow(stepsDone);
  // The rank that has the losses sends the result to all, so that all ranks exit with the same
  // code.
  Result<std::vector<std::string>> said =
      process.group.allGatherBytes("numbers", (end->changed ? "+" : "-") + end->notFinite);
  if (said.failed())
    return said.error();
  for (const std::string &text : *said) {
    unchanged = unchanged || text[0] == '-';
    if (text.size() > 1 && !problem) {
      problem = userError(text.substr(1));
      problem->exitCode = kNotFinite;
    }
  }
  if (!end->badBatch.empty()) // streams are read by jobs of one process
    problem = userError(end->badBatch);
  return Status::success();
}

void LocalTrainer::tellComputing(uint64_t step, const std::vector<double> &seconds) {
  computing.resize(seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i)
    computing[i] += seconds[i];
  ++computingSamples;
  const Clock::time_point now = Clock::now();
  const uint64_t steps = step - std::min(step, computingFrom);
  if (steps < SlowDeviceFinder::kWindowSteps ||
      std::chrono::duration<double>(now - computingSince).count() <
          SlowDeviceFinder::kWindowSeconds)
    return;
  for (size_t i = 0; i < seconds.size(); ++i)
    tell(
        sayComputing(executor->devices()[i], step, steps, computing[i] / double(computingSamples)));
  computingSince = now;
  computing.assign(seconds.size(), 0);
  computingSamples = 0;
  computingFrom = step;
}

void LocalTrainer::tell(std::string message, bool toAll) {
  if (process.member && (!process.output || toAll))
    process.member->report(message, toAll);
  else
    process.output->take(message);
}

void LocalTrainer::say(const std::string &note) const {
  if (!note.empty() && process.output)
    fprintf(stderr, "note: %s\n", note.c_str());
}

Status zorse::run::trainHere(const Options &options, const Bundle &bundle, DataSource &data,
                             ProcessContext &process, uint64_t &stepsDone) {
  LocalTrainer here(options, bundle, data, process, stepsDone);
  Status status = here.run();
  if (status.failed())
    process.failed(status.error());
  return status;
}
