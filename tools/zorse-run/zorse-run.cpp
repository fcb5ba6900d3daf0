// zorse-run: trains from a bundle. Reads options, puts the runtime's parts together, prints.
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

struct Options {
  std::string bundle, data, evaluation, initial, cluster;
  std::string trace, metrics, checkpoint, gradients, lossRows, memoryReport;
  uint64_t steps = 0, evaluateEvery = 0, evaluationBatches = 50, traceSteps = 20;
  std::optional<uint64_t> shuffle, seed;
  std::optional<double> learningRate, clip, finalRatio;
  std::optional<int64_t> warmup, totalSteps;
  std::string schedule;
  bool poison = false, quiet = false, threadPerQueue = false;
  double stallSeconds = 300;
};

/// Handlers may do next to nothing, so they hand signals on to a thread. (Blocking signals instead would miss threads that libraries start before main.)
int signalPipe[2];

void catchSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  if (::pipe2(signalPipe, O_CLOEXEC) != 0)
    return;
  for (int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int) {
      int before = errno;
      if (::write(signalPipe[1], "", 1) != 1)
        ::_exit(130);
      errno = before;
    });
}

void awaitSignal() {
  char byte;
  while (::read(signalPipe[0], &byte, 1) != 1)
    if (errno != EINTR)
      ::pause();
}

int report(const Error &error) {
  fprintf(stderr, error.kind == ErrorKind::User ? "error: %s\n" : "internal error: %s\n", error.message.c_str());
  return error.kind == ErrorKind::User ? 1 : 2;
}

/// Options of the run instead of those of the bundle.
void override(const Options &o, bundle::TrainingOptions &training) {
  if (o.learningRate)
    training.set_learning_rate(*o.learningRate);
  if (o.clip)
    training.set_clip_norm(*o.clip);
  if (o.warmup)
    training.set_warmup_steps(*o.warmup);
  if (o.totalSteps)
    training.set_total_steps(*o.totalSteps);
  if (o.finalRatio)
    training.set_final_ratio(*o.finalRatio);
  if (o.seed)
    training.set_seed(*o.seed);
  if (o.schedule == "constant")
    training.set_schedule(bundle::TrainingOptions::CONSTANT);
  if (o.schedule == "linear")
    training.set_schedule(bundle::TrainingOptions::LINEAR);
  if (o.schedule == "cosine")
    training.set_schedule(bundle::TrainingOptions::COSINE);
}

/// Outputs are refused before training, not after it.
Status checkOutputs(const Options &o) {
  std::map<std::string, std::string> options;
  for (const auto &[option, path] : std::initializer_list<std::pair<const char *, const std::string &>>{{"--metrics", o.metrics},
                                                                                                         {"--trace", o.trace},
                                                                                                         {"--checkpoint", o.checkpoint},
                                                                                                         {"--dump-gradients", o.gradients},
                                                                                                         {"--per-sample-losses", o.lossRows},
                                                                                                         {"--report-memory", o.memoryReport}}) {
    if (path.empty())
      continue;
    if (Status status = checkWritable(path); status.failed())
      return userError(std::string(option) + ": " + status.message());
    auto [other, isNew] = options.emplace(path, option);
    if (!isNew && path.rfind("/dev/", 0) != 0)
      return userError(std::string(option) + ": " + path + " is written by " + other->second + " too");
  }
  return Status::success();
}

Status run(const Options &o, StepGate &gate, uint64_t &stepsDone) {
  if (Status status = checkOutputs(o); status.failed())
    return status;
  Result<Bundle> loaded = loadBundle(o.bundle);
  if (loaded.failed())
    return loaded.error();
  const Bundle &bundle = *loaded;
  if (!o.cluster.empty())
    if (Status status = checkCluster(bundle, o.cluster); status.failed())
      return status;

  Result<std::unique_ptr<DataSource>> data = DataSource::open(bundle, o.data, o.shuffle);
  if (data.failed())
    return data.error();
  std::unique_ptr<DataSource> evaluation;
  if (!o.evaluation.empty()) {
    Result<std::unique_ptr<DataSource>> opened = DataSource::open(bundle, o.evaluation, std::nullopt);
    if (opened.failed())
      return opened.error();
    evaluation = std::move(*opened);
  }

  Result<std::vector<LocalDevice>> devices = makeLocalDevices(bundle);
  if (devices.failed())
    return devices.error();
  uint64_t emptyExecutor = processBytes();

  GradientDump gradients(bundle);
  LossRows lossRows(bundle);
  ExecutorOptions options;
  options.poison = o.poison || !o.memoryReport.empty();
  options.trace = !o.trace.empty();
  options.traceSteps = o.traceSteps;
  options.oneThreadPerQueue = o.threadPerQueue;
  options.stallSeconds = o.stallSeconds;
  if (!o.gradients.empty() || !o.lossRows.empty())
    options.beforeCall = [&](const ObservedCall &call) {
      if (call.step != 0)
        return;
      if (!o.gradients.empty())
        gradients.observe(call);
      if (!o.lossRows.empty())
        lossRows.observe(call);
    };
  Result<std::unique_ptr<Executor>> executor = Executor::create(bundle, std::move(*devices), options);
  if (executor.failed())
    return executor.error();
  std::string note;
  if (Status status = loadState(**executor, bundle, o.initial, &note); status.failed())
    return status;
  if (!note.empty())
    fprintf(stderr, "note: %s\n", note.c_str());

  std::unique_ptr<MetricsFile> metrics;
  if (!o.metrics.empty()) {
    Result<std::unique_ptr<MetricsFile>> opened = MetricsFile::open(o.metrics);
    if (opened.failed())
      return opened.error();
    metrics = std::move(*opened);
  }

  if (!o.quiet) {
    uint64_t planned = 0;
    for (const Executor::MemoryUse &use : (*executor)->memoryUse())
      planned += use.planned;
    std::string batch = std::to_string(bundle.batch) + (bundle.sequence > 0 ? " x " + std::to_string(bundle.sequence) : "");
    printf("%s: %s, %zu device%s, batch %s, %s, %s planned; %llu samples an epoch\n", o.bundle.c_str(), bundle.model.c_str(), bundle.devices.size(),
           bundle.devices.size() == 1 ? "" : "s", batch.c_str(), bundle.precision.c_str(), bytesText(planned).c_str(),
           (unsigned long long)(*data)->samplesPerEpoch());
    fflush(stdout);
  }

  TrainingRun training;
  training.steps = o.steps;
  training.options = bundle.summary.training();
  override(o, training.options);
  training.data = data->get();
  training.evaluationData = evaluation.get();
  training.evaluateEvery = o.evaluateEvery;
  training.evaluationBatches = o.evaluationBatches;
  training.gate = &gate;
  {
    ConsoleReport console(stdout, ::isatty(STDOUT_FILENO), o.steps, bundle.sequence > 0);
    training.report = [&](const StepReport &step) {
      stepsDone = step.step;
      if (!o.quiet)
        console.step(step);
      if (metrics)
        metrics->step(step);
    };
    if (Result<TrainingEnd> end = train(**executor, bundle, training); end.failed())
      return end.error();
  }

  if (stepsDone < o.steps)
    fprintf(stderr, "interrupted after step %llu of %llu\n", (unsigned long long)stepsDone, (unsigned long long)o.steps);

  // What was asked for is written in this order, the trained parameters first; one that fails does not keep the others from being written.
  struct {
    const std::string &path;
    const char *what;
    std::function<Status()> write;
  } const outputs[] = {
      {o.checkpoint, "checkpoint", [&] { return saveCheckpoint(**executor, bundle, o.checkpoint); }},
      {o.metrics, "metrics", [&] { return metrics->close(); }},
      {o.gradients, "gradients", [&] { return gradients.write(o.gradients); }},
      {o.lossRows, "per-sample losses", [&] { return lossRows.write(o.lossRows); }},
      {o.memoryReport, "memory report", [&] { return writeMemoryReport(o.memoryReport, bundle, (*executor)->memoryUse(), emptyExecutor); }},
      {o.trace, "trace", [&] { return writeTrace(o.trace, bundle, (*executor)->takeTrace()); }},
  };
  std::optional<Error> first;
  for (const auto &output : outputs) {
    if (output.path.empty())
      continue;
    if (Status status = output.write(); status.failed()) {
      if (first)
        report(status.error());
      else
        first = status.error();
    } else if (!o.quiet) {
      printf("%s: %s\n", output.what, output.path.c_str());
    }
  }
  return first ? Status(*first) : Status::success();
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  CLI::App app{"Trains from a bundle that zorse-compile wrote."};
  app.add_option("bundle", o.bundle, "the bundle, a directory")->required();
  app.add_option("--data", o.data, "tokens (llm.c or nanoGPT .bin, or any file as bytes), or NAME=FILE.npy,... for each input")->required();
  app.add_option("--steps", o.steps, "steps to train")->required()->check(CLI::Range(uint64_t(1), uint64_t(1) << 40));
  app.add_option("--shuffle", o.shuffle, "shuffle the samples of every epoch, with this seed; file order without it");
  app.add_option("--init", o.initial, "initial parameters from a safetensors file with the ONNX names");
  app.add_option("--checkpoint", o.checkpoint, "write the trained parameters here (safetensors, ONNX names)");
  app.add_option("--eval", o.evaluation, "held-back data, evaluated at the end without dropout");
  app.add_option("--eval-every", o.evaluateEvery, "evaluate every so many steps too");
  app.add_option("--eval-batches", o.evaluationBatches, "at most so many batches; 0: all")->capture_default_str();
  app.add_option("--lr", o.learningRate, "learning rate")->check(CLI::NonNegativeNumber);
  app.add_option("--schedule", o.schedule, "of the learning rate")->check(CLI::IsMember({"constant", "linear", "cosine"}));
  app.add_option("--warmup", o.warmup, "steps over which the learning rate rises")->check(CLI::NonNegativeNumber);
  app.add_option("--total-steps", o.totalSteps, "step at which the decay ends; 0: --steps")->check(CLI::NonNegativeNumber);
  app.add_option("--final-ratio", o.finalRatio, "learning rate at the end of the decay, as a ratio")->check(CLI::NonNegativeNumber);
  app.add_option("--clip", o.clip, "clip the gradient's norm; 0: off")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", o.seed, "of dropout");
  app.add_option("--metrics", o.metrics, "one JSON object a step");
  app.add_option("--trace", o.trace, "what every queue did, for Perfetto (https://ui.perfetto.dev)");
  app.add_option("--trace-steps", o.traceSteps, "so many steps from the first")->capture_default_str();
  app.add_option("--cluster", o.cluster, "check that the bundle was compiled for these devices");
  app.add_option("--dump-gradients", o.gradients, "the first step's gradients before clipping (safetensors)");
  app.add_option("--per-sample-losses", o.lossRows, "the first step's loss numerators by term and sample (JSON)");
  app.add_flag("--poison", o.poison, "fill memory with NaNs first: shows reads of what nobody wrote");
  app.add_option("--report-memory", o.memoryReport, "planned and touched bytes (JSON; implies --poison)");
  app.add_option("--stall-seconds", o.stallSeconds, "give up when nothing finishes for so long")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--thread-per-queue", o.threadPerQueue, "serve every queue by a thread of its own");
  app.add_flag("--quiet", o.quiet, "print errors only");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &problem) {
    fprintf(stderr, "error: %s\n(zorse-run --help lists the options)\n", problem.what());
    return 1;
  }

  catchSignals();
  std::unique_ptr<StepGate> gate = makeSoloGate();
  std::thread([gate = gate.get()] {
    awaitSignal();
    gate->requestStop(); // the steps under way end, and what was asked for is written.
    awaitSignal();
    ::_exit(130);
  }).detach();
  uint64_t stepsDone = 0;
  Status status = Status::success();
  try {
    status = run(o, *gate, stepsDone);
  } catch (const std::bad_alloc &) {
    status = userError("this machine has too little memory for the run");
  }
  if (status.failed())
    return report(status.error());
  return stepsDone < o.steps ? 130 : 0;
}
