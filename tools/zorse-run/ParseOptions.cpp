// Parses the command line of zorse-run.
#include "Options.h"

#include "Numbers.h"
#include "ParseFlags.h"
#include "zorse/runtime/Data.h"

#include <cstdio>

using namespace zorse;
using namespace zorse::run;

namespace {

void addRunOptions(CLI::App &app, Options &o, std::string &dataType) {
  app.add_option("bundle", o.bundle, "bundle directory")->required();
  app.add_option("--expect-digest", o.expect,
                 "required digest of the bundle, as printed by zorse-compile and zorse-inspect (64 "
                 "hexadecimal digits)");
  app.add_option("--data", o.data,
                 "training data: token file (llm.c or nanoGPT .bin, or plain text as bytes; "
                 "bytes:FILE for any file), or NAME=FILE.npy,... for each "
                 "input; several files: "
                 "'part-*.bin' or A.bin,B.bin");
  app.add_option("--data-type", dataType,
                 "type of the token ids in --data and --eval-data files without a header (default: "
                 "detected from size, contents and vocabulary)")
      ->check(CLI::IsMember({"uint8", "uint16", "uint32", "int32", "int64"}));
  app.add_option("--max-steps", o.steps, "number of the last step")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40));
  app.add_option("--shuffle-seed", o.shuffle,
                 "random seed for shuffling the samples of every epoch (default: file order)")
      ->check(wholeNumber());
  app.add_option("--load-weights", o.initial,
                 "initial parameters: safetensors file with the ONNX names, or checkpoint of the "
                 "Hugging Face hub (directory, model.safetensors, or "
                 "index of shards)");
  app.add_option(
         "--ignore-tensors", o.initialSkip,
         "tensors of --load-weights to ignore: names or patterns (* matches any characters)")
      ->delimiter(',');
  app.add_option("--eval-data", o.evaluation,
                 "evaluation data, evaluated at the end without dropout");
  app.add_flag("--eval-only", o.evaluate,
               "only evaluate: print loss and perplexity on --eval-data (or --data) of the newest "
               "checkpoint in --checkpoint-dir (frozen parameters "
               "from --load-weights "
               "or the bundle), "
               "of --load-weights, or of the bundle's weights");
  app.add_option("--eval-interval", o.evaluateEvery, "also evaluate every N steps")
      ->check(wholeNumber());
  app.add_option("--eval-iters", o.evaluationBatches,
                 "maximum number of evaluation batches; 0: all (default with --eval-only)")
      ->check(wholeNumber())
      ->capture_default_str();
  o.schedule.addTo(app, "Options", /*compiled=*/true);
  app.add_option("--max-grad-norm", o.clip,
                 "maximum global gradient norm; 0: no clipping (default: as compiled)")
      ->check(finiteNumber());
  app.add_option("--seed", o.seed, "random seed of dropout (default: as compiled)")
      ->check(wholeNumber());
  app.add_option("--on-nonfinite", o.nonFinite,
                 "action if the loss or gradients of a step are not finite: skip the update and "
                 "count the step (default), or stop")
      ->check(CLI::IsMember({"skip", "stop"}));
}

void addOutputOptions(CLI::App &app, Options &o) {
  const char *outputs = "Outputs";
  app.add_option("--save-weights", o.checkpoint,
                 "output file for the trained parameters (safetensors, ONNX names)")
      ->group(outputs);
  app.add_option("--save-ema", o.averages,
                 "output file for the moving averages of the parameters (zorse-compile "
                 "--ema-decay), as --save-weights")
      ->group(outputs);
  app.add_option("--metrics-file", o.metrics, "output file for metrics, one JSON object per step")
      ->group(outputs);
  app.add_option(
         "--tensorboard-dir", o.tensorboard,
         "output directory for TensorBoard: losses, gradient norms, learning rates, throughput")
      ->group(outputs);
  app.add_option(
         "--html-report", o.page,
         "output file for an HTML report with losses and time breakdown, written at the end; with "
         "--metrics-file also the steps before a resumption, and changes of devices")
      ->group(outputs);
  app.add_option("--trace", o.trace,
                 "output file for a trace of every queue, for Perfetto (https://ui.perfetto.dev)")
      ->group(outputs);
  app.add_option("--trace-steps", o.traceSteps, "number of steps to trace, from the first")
      ->check(wholeNumber())
      ->capture_default_str()
      ->group(outputs);
  app.add_option("--dump-gradients", o.gradients,
                 "output file for the first step's gradients before clipping (safetensors)")
      ->group(outputs);
  app.add_option("--dump-losses", o.lossRows,
                 "output file for the first step's loss numerators by term and sample (JSON)")
      ->group(outputs);
  app.add_option("--memory-report", o.memoryReport,
                 "output file for planned and touched bytes (JSON; implies --poison)")
      ->group(outputs);
  app.add_flag("--quiet", o.quiet, "print errors only")->group(outputs);
}

void addTextOptions(CLI::App &app, Options &o) {
  const char *text = "Text generation";
  app.add_option("--generate-interval", o.generateInterval,
                 "generate text from the prompt every N steps (language models); needs "
                 "zorse-compile --with-generation")
      ->check(wholeNumber())
      ->group(text);
  app.add_option("--max-new-tokens", o.maxNewTokens, "number of tokens to generate")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 20))
      ->capture_default_str()
      ->group(text);
  app.add_option("--prompt", o.prompt,
                 "prompt: token ids (1,2,3), or text:TEXT if tokens are bytes (default: first "
                 "tokens of --data)")
      ->group(text);
  app.add_option("--temperature", o.temperature,
                 "sampling temperature; 0 (default): likeliest token; 1: the model's distribution")
      ->check(finiteNumber())
      ->group(text);
}

void addCheckpointOptions(CLI::App &app, Options &o) {
  const char *checkpoints = "Checkpoints";
  app.add_option("--checkpoint-dir", o.checkpointDirectory,
                 "directory for checkpoints of the training state, shared by all ranks")
      ->group(checkpoints);
  app.add_option("--save-interval", o.saveInterval, "steps between checkpoints; 0: only at the end")
      ->check(wholeNumber())
      ->capture_default_str()
      ->group(checkpoints);
  app.add_option("--save-total-limit", o.saveTotalLimit,
                 "number of checkpoints to keep; older ones are removed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(checkpoints);
  app.add_option("--memory-checkpoint-interval", o.memoryInterval,
                 "steps between checkpoints in memory, from which --elastic, --max-restarts and "
                 "--resume go on after processes have failed; they need twice the bytes of the "
                 "state. 0: none")
      ->check(wholeNumber())
      ->capture_default_str()
      ->group(checkpoints);
  app.add_option("--memory-checkpoint-dir", o.memoryDirectory,
                 "folder on a memory file system of each node, for checkpoints in memory")
      ->capture_default_str()
      ->group(checkpoints);
  app.add_flag("--replicate-memory-checkpoints", o.replicateMemory,
               "copy checkpoints in memory to a second node, so that they survive the loss of the "
               "first one; they then need four times the bytes of the state")
      ->group(checkpoints);
  app.add_flag(
         "--resume", o.resume,
         "resume from the newest valid checkpoint, or start from the beginning if there is none")
      ->group(checkpoints);
  app.add_flag("--allow-config-change", o.allowChange,
               "resume even if batch, data, seed or optimizer differ, which changes the results")
      ->group(checkpoints);
}

void addProcessOptions(CLI::App &app, Options &o) {
  const char *processes = "Processes";
  app.add_flag("--spawn", o.processes, "start one process per device on this machine")
      ->group(processes);
  app.add_flag("--in-process", o.threads,
               "run all devices as threads of this process, whatever the launcher's environment")
      ->excludes("--spawn")
      ->group(processes);
  app.add_option(
         "--max-restarts", o.restarts,
         "maximum number of restarts after a failure, from the newest checkpoint (default: 0)")
      ->check(CLI::Range(0, 1 << 20))
      ->group(processes);
  app.add_option("--secret-file", o.secretFile,
                 "file with the job's secret (default: ZORSE_SECRET, ZORSE_SECRET_FILE, "
                 "~/.config/zorse/secret)")
      ->group(processes);
  app.add_option("--local-addr", o.listen,
                 "address of this host for other ranks: address, network interface or network "
                 "(10.1.0.0/16); default: loopback if all ranks are on "
                 "one host, otherwise "
                 "the address that reaches rank 0")
      ->group(processes);
  app.add_option("--connections-per-peer", o.nodeConnections,
                 "connections between two ranks of different nodes; use several for links with a "
                 "large bandwidth-delay product")
      ->check(CLI::Range(1, 16))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--heartbeat-interval", o.heartbeatSeconds,
                 "interval between heartbeats of a rank, in seconds")
      ->check(finiteNumber())
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--heartbeat-timeout", o.heartbeatTimeoutSeconds,
                 "seconds without a heartbeat after which a rank is declared lost")
      ->check(finiteNumber())
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--rdzv-timeout", o.joinSeconds,
                 "seconds after the start within which all ranks must connect")
      ->check(finiteNumber())
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--watchdog-timeout", o.watchdogTimeoutSeconds,
                 "seconds without any progress after which the job fails")
      ->check(finiteNumber())
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(processes);
  app.add_flag("--share-gpus", o.shareGpus,
               "let devices share a GPU if a host has fewer GPUs than devices")
      ->group(processes);
  app.add_flag("--host-staged", o.hostStaged,
               "stage GPU transfers through host memory even if direct transfers are possible")
      ->group(processes);
  app.add_option("--throttle", o.throttle,
                 "DEVICE=SHARE: slow a device down to the fraction SHARE of its speed, as if it "
                 "had that fraction of a CPU; * in names matches any "
                 "characters")
      ->group(processes);
  app.add_option("--cluster", o.cluster,
                 "cluster.yaml; check that the bundle was compiled for its devices")
      ->group(processes);
}

void addElasticOptions(CLI::App &app, Options &o) {
  const char *elastic = "Elastic jobs";
  app.add_flag("--elastic", o.elastic,
               "with --spawn: after a failure, go on from the newest checkpoint with the devices "
               "that are left")
      ->excludes("--max-restarts")
      ->group(elastic);
  app.add_option("--min-devices", o.minDevices, "minimum number of devices to go on with")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 20))
      ->capture_default_str()
      ->group(elastic);
  app.add_option("--rejoin-seconds", o.rejoinSeconds,
                 "seconds after which a device that failed is tried again, doubled if it fails "
                 "again soon; 0: never")
      ->check(finiteNumber())
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str()
      ->group(elastic);
  app.add_option(
         "--device-discovery-script", o.discoveryScript,
         "shell command that prints the names of the available devices or nodes, run every second: "
         "devices leave and join after a step")
      ->group(elastic);
  app.add_option("--start-command", o.startCommand,
                 "shell command that starts a rank on a node, such as 'ssh {node}': {node} is the "
                 "node's name in the cluster, {command} one word for a shell there (appended if it "
                 "is missing); default: ranks run on this host")
      ->group(elastic);
  app.add_option("--wait-seconds", o.waitSeconds,
                 "seconds to wait for --min-devices before the job ends")
      ->check(finiteNumber())
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str()
      ->group(elastic);
}

void addSimulationOptions(CLI::App &app, Options &o) {
  const char *simulation = "Simulation";
  app.add_flag("--simulate", o.simulate,
               "simulate the programs on a simulated clock; executes nothing and needs no data")
      ->group(simulation);
  app.add_option("--simulate-steps", o.simulateSteps, "number of steps to simulate")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40))
      ->capture_default_str()
      ->group(simulation);
  app.add_option("--bandwidth-scale", o.linkTimes,
                 "factor by which the bandwidth of links is multiplied in the simulation; "
                 "latencies are unchanged (default: 1)")
      ->check(finiteNumber())
      ->check(CLI::Range(1e-6, 1e6))
      ->group(simulation);
  app.add_option("--compute-scale", o.speedTimes,
                 "DEVICE=FACTOR: factor by which the device's compute speed is multiplied in the "
                 "simulation; * in names matches any characters")
      ->group(simulation);
  app.add_flag("--simulate-eval", o.simulateEvaluation,
               "simulate evaluations instead of training steps")
      ->group(simulation);
  app.add_option("--json", o.json, "output file for the results of the simulation (JSON)")
      ->group(simulation);
}

void addInspectionOptions(CLI::App &app, Options &o) {
  const char *inside = "Looking inside";
  app.add_flag("--poison", o.poison,
               "fill memory with NaNs at the start, which reveals reads of uninitialized memory")
      ->group(inside);
  app.add_flag(
         "--poison-after-last-use", o.poisonAfterLastUse,
         "fill memory with NaNs after its last use, which reveals reads after the last use; slow")
      ->group(inside);
  app.add_flag("--thread-per-queue", o.threadPerQueue, "use a separate thread for every queue")
      ->group(inside);
}

/// Returns the first of `options` that was given on the command line, or null.
const char *firstGiven(const CLI::App &app, std::initializer_list<const char *> options) {
  for (const char *option : options)
    if (app.count(option) > 0)
      return option;
  return nullptr;
}

const char *firstOfSchedule(const CLI::App &app) {
  for (const std::string &option : ScheduleFlags::names())
    if (app.count(option) > 0)
      return option.c_str();
  return nullptr;
}

bool checkSimulation(const CLI::App &app, Options &o) {
  if (app.count("--max-steps") > 0) {
    fprintf(stderr, "error: --simulate: expected --simulate-steps, the number of steps to "
                    "simulate, got --max-steps\n");
    return false;
  }
  o.steps = o.simulateSteps;
  if (const char *option = firstGiven(
          app, {"--data", "--eval-data", "--load-weights", "--save-weights", "--save-ema",
                "--metrics-file", "--tensorboard-dir", "--html-report", "--eval-only",
                "--generate-interval", "--dump-gradients", "--dump-losses", "--memory-report",
                "--checkpoint-dir", "--spawn", "--throttle"})) {
    fprintf(stderr, "error: --simulate executes nothing and cannot be combined with %s\n", option);
    return false;
  }
  if (o.steps > 100000) {
    fprintf(stderr, "error: --simulate-steps %llu: a simulation is limited to 100000 steps\n",
            (unsigned long long)o.steps);
    return false;
  }
  return true;
}

bool checkEvaluation(const CLI::App &app, Options &o) {
  const char *option =
      firstGiven(app, {"--max-steps", "--shuffle-seed", "--eval-interval", "--max-grad-norm",
                       "--on-nonfinite", "--save-weights", "--save-ema", "--html-report",
                       "--generate-interval", "--dump-gradients", "--dump-losses",
                       "--save-interval", "--resume", "--allow-config-change", "--max-restarts"});
  if (!option)
    option = firstOfSchedule(app);
  if (option) {
    fprintf(stderr, "error: --eval-only does not train and cannot be combined with %s\n", option);
    return false;
  }
  if (app.count("--eval-iters") == 0)
    o.evaluationBatches = 0;
  if (o.evaluation.empty())
    o.evaluation = o.data;
  if (o.data.empty())
    o.data = o.evaluation;
  if (o.evaluation.empty()) {
    fprintf(stderr, "error: --eval-only needs --eval-data, the data to evaluate on (zorse-run "
                    "--help lists the options)\n");
    return false;
  }
  return true;
}

/// Checks the options that one kind of run requires or does not support, and sets options that it
/// implies.
bool checkKind(const CLI::App &app, Options &o) {
  o.simulate = o.simulate || o.simulateEvaluation;
  if (const char *option = o.simulate ? nullptr
                                      : firstGiven(app, {"--simulate-steps", "--bandwidth-scale",
                                                         "--compute-scale", "--json"})) {
    fprintf(stderr, "error: %s requires --simulate\n", option);
    return false;
  }
  if (o.simulate)
    return checkSimulation(app, o);
  if (o.evaluate)
    return checkEvaluation(app, o);
  if (o.data.empty() || o.steps == 0) {
    fprintf(stderr, "error: %s is required (zorse-run --help lists the options)\n",
            o.data.empty() ? "--data" : "--max-steps");
    return false;
  }
  return true;
}

/// Checks options that require other options.
bool checkTogether(const CLI::App &app, const Options &o) {
  if (const char *option = o.generateInterval > 0 ? nullptr
                                                  : firstGiven(app, {"--max-new-tokens", "--prompt",
                                                                     "--temperature"})) {
    fprintf(stderr, "error: %s needs --generate-interval, the steps after which text is sampled\n",
            option);
    return false;
  }
  if (o.initial.empty() && !o.initialSkip.empty()) {
    fprintf(stderr,
            "error: --ignore-tensors needs --load-weights, the file with the tensors to ignore\n");
    return false;
  }
  if (o.evaluation.empty() && o.evaluateEvery > 0) {
    fprintf(stderr, "error: --eval-interval needs --eval-data, the data to evaluate on\n");
    return false;
  }
  if (o.checkpointDirectory.empty() && (o.saveInterval > 0 || o.resume || o.memoryInterval > 0)) {
    fprintf(stderr, "error: %s needs --checkpoint-dir DIR, the directory of the checkpoints\n",
            o.resume             ? "--resume"
            : o.saveInterval > 0 ? "--save-interval"
                                 : "--memory-checkpoint-interval");
    return false;
  }
  if (o.replicateMemory && o.memoryInterval == 0) {
    fprintf(stderr, "error: --replicate-memory-checkpoints needs --memory-checkpoint-interval N, "
                    "the steps between checkpoints in memory\n");
    return false;
  }
  if (o.heartbeatTimeoutSeconds < 2 * o.heartbeatSeconds) {
    fprintf(stderr,
            "error: --heartbeat-timeout %g: expected at least twice --heartbeat-interval %g, or "
            "one late heartbeat ends the job\n",
            o.heartbeatTimeoutSeconds, o.heartbeatSeconds);
    return false;
  }
  return true;
}

bool checkElastic(const CLI::App &app, const Options &o) {
  if (const char *option = o.elastic ? nullptr
                                     : firstGiven(app, {"--min-devices", "--rejoin-seconds",
                                                        "--device-discovery-script",
                                                        "--start-command", "--wait-seconds"})) {
    fprintf(stderr, "error: %s needs --elastic\n", option);
    return false;
  }
  if (!o.elastic)
    return true;
  if (!o.processes) {
    fprintf(stderr, "error: --elastic needs --spawn: it starts a process per device\n");
    return false;
  }
  if (o.checkpointDirectory.empty() || o.saveInterval == 0) {
    fprintf(stderr, "error: --elastic needs --checkpoint-dir DIR and --save-interval N: after a "
                    "failure, the job continues from the newest checkpoint\n");
    return false;
  }
  return true;
}

} // namespace

std::optional<int> zorse::run::parseOptions(int argc, char **argv, Options &o) {
  o.words.assign(argv, argv + argc);
  CLI::App app{"Trains from a bundle that zorse-compile wrote: as threads of one process, as "
               "processes that it starts, or as a rank of a launcher's job "
               "(docs/guides/clusters.md).\n"
               "A bundle is a program: its kernels are machine code that runs in every rank with "
               "your permissions. Run only bundles that you compiled, or "
               "whose digest you know (--expect-digest)."};
  std::string dataType;
  addRunOptions(app, o, dataType);
  addOutputOptions(app, o);
  addTextOptions(app, o);
  addCheckpointOptions(app, o);
  addProcessOptions(app, o);
  addElasticOptions(app, o);
  addSimulationOptions(app, o);
  addInspectionOptions(app, o);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-run"))
    return *done;
  o.dataType = runtime::tokenTypeNamed(dataType);
  if (app.count("--expect-digest") > 0 &&
      (o.expect.size() != 64 ||
       o.expect.find_first_not_of("0123456789abcdef") != std::string::npos)) {
    fprintf(stderr,
            "error: --expect-digest: expected the digest of a bundle, 64 hexadecimal digits in "
            "lower case, got '%s'; zorse-inspect BUNDLE prints it\n",
            o.expect.c_str());
    return 1;
  }
  return checkKind(app, o) && checkTogether(app, o) && checkElastic(app, o) ? std::nullopt
                                                                            : std::optional<int>(1);
}
