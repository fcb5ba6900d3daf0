// The command line of zorse-run.
#include "Options.h"

#include "Numbers.h"
#include "ParseFlags.h"
#include "zorse/runtime/Data.h"

#include <cstdio>

using namespace zorse;
using namespace zorse::run;

namespace {

void addRunOptions(CLI::App &app, Options &o, std::string &dataType) {
  app.add_option("bundle", o.bundle, "the bundle, a directory")->required();
  app.add_option("--expect", o.expect,
                 "run this bundle only if its digest is this one, as zorse-compile and zorse-inspect print it (64 hexadecimal digits)");
  app.add_option(
      "--data", o.data,
      "tokens (llm.c or nanoGPT .bin, or plain text as bytes; bytes:FILE for any file), or NAME=FILE.npy,... for each input; several files: "
      "'part-*.bin' or A.bin,B.bin");
  app.add_option("--data-type", dataType,
                 "type of the token ids in files of --data and --eval that have no header (without it: by size, contents and vocabulary)")
      ->check(CLI::IsMember({"uint8", "uint16", "uint32", "int32", "int64"}));
  app.add_option("--steps", o.steps, "number of the last step; with --simulate how many (4)")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40));
  app.add_option("--shuffle", o.shuffle, "shuffle the samples of every epoch, with this seed; file order without it")->check(wholeNumber());
  app.add_option(
      "--init", o.initial,
      "initial parameters: a safetensors file with the ONNX names, or a checkpoint of the Hugging Face hub (a directory, model.safetensors, or "
      "an index of shards)");
  app.add_option("--init-skip", o.initialSkip, "tensors of --init that are not used: names, * stands for any characters")->delimiter(',');
  app.add_option("--eval", o.evaluation, "held-back data, evaluated at the end without dropout");
  app.add_flag(
      "--evaluate", o.evaluate,
      "train nothing: the loss and the perplexity on --eval (or --data) of the newest of --snapshots (frozen parameters from --init or the bundle), "
      "of --init, or of the bundle's weights");
  app.add_option("--eval-every", o.evaluateEvery, "evaluate every so many steps too")->check(wholeNumber());
  app.add_option("--eval-batches", o.evaluationBatches, "at most so many batches; 0: all, as with --evaluate")
      ->check(wholeNumber())
      ->capture_default_str();
  app.add_option("--lr", o.learningRate, "learning rate")->check(finiteNumber());
  app.add_option("--schedule", o.schedule, "of the learning rate")->check(CLI::IsMember({"constant", "linear", "cosine"}));
  app.add_option("--warmup", o.warmup, "steps over which the learning rate rises")->check(wholeNumber(INT64_MAX));
  app.add_option("--total-steps", o.totalSteps, "step at which the decay ends; 0: --steps")->check(wholeNumber(INT64_MAX));
  app.add_option("--final-ratio", o.finalRatio, "learning rate at the end of the decay, as a ratio")->check(finiteNumber());
  app.add_option("--clip", o.clip, "clip the gradient's norm; 0: off")->check(finiteNumber());
  app.add_option("--seed", o.seed, "of dropout")->check(wholeNumber());
  app.add_option("--nonfinite", o.nonFinite, "a step whose loss or gradients are not finite: skip its update and count it (as without this), or stop")
      ->check(CLI::IsMember({"skip", "stop"}));
}

void addOutputOptions(CLI::App &app, Options &o) {
  const char *outputs = "Outputs";
  app.add_option("--checkpoint", o.checkpoint, "write the trained parameters here (safetensors, ONNX names)")->group(outputs);
  app.add_option("--metrics", o.metrics, "one JSON object a step")->group(outputs);
  app.add_option("--tensorboard", o.tensorboard, "write losses, gradient norms, learning rates and rates here (a folder), for TensorBoard")
      ->group(outputs);
  app.add_option("--page", o.page, "write a page of HTML with the losses and where the time went, at the end")->group(outputs);
  app.add_option("--trace", o.trace, "what every queue did, for Perfetto (https://ui.perfetto.dev)")->group(outputs);
  app.add_option("--trace-steps", o.traceSteps, "so many steps from the first")->check(wholeNumber())->capture_default_str()->group(outputs);
  app.add_option("--dump-gradients", o.gradients, "the first step's gradients before clipping (safetensors)")->group(outputs);
  app.add_option("--per-sample-losses", o.lossRows, "the first step's loss numerators by term and sample (JSON)")->group(outputs);
  app.add_option("--report-memory", o.memoryReport, "planned and touched bytes (JSON; implies --poison)")->group(outputs);
  app.add_flag("--quiet", o.quiet, "print errors only")->group(outputs);
}

void addTextOptions(CLI::App &app, Options &o) {
  const char *text = "Text (docs/running.md)";
  app.add_option("--sample-every", o.sampleEvery,
                 "of a model of text: let it go on with the prompt every so many steps; needs zorse-compile --sampling")
      ->check(wholeNumber())
      ->group(text);
  app.add_option("--sample-tokens", o.sampleTokens, "that are drawn")
      ->check(wholeNumber())
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 20))
      ->capture_default_str()
      ->group(text);
  app.add_option("--sample-prompt", o.samplePrompt, "token ids (1,2,3), or text:TEXT where tokens are bytes; without it the first ones of --data")
      ->group(text);
  app.add_option("--sample-temperature", o.sampleTemperature, "0 (default): the likeliest token; 1: as the model has them")
      ->check(finiteNumber())
      ->group(text);
}

void addSnapshotOptions(CLI::App &app, Options &o) {
  const char *snapshots = "Snapshots";
  app.add_option("--snapshots", o.snapshots, "keep the training state in this directory, which all ranks share")->group(snapshots);
  app.add_option("--snapshot-every", o.snapshotEvery, "steps; 0: at the end only")->check(wholeNumber())->capture_default_str()->group(snapshots);
  app.add_option("--keep-snapshots", o.keepSnapshots, "remove older ones")->capture_default_str()->check(CLI::Range(1, 1 << 20))->group(snapshots);
  app.add_flag("--resume", o.resume, "go on from the newest good snapshot; from the beginning where there is none")->group(snapshots);
  app.add_flag("--allow-change", o.allowChange, "resume although batch, data, seed or optimizer differ, which changes the mathematics")
      ->group(snapshots);
}

void addProcessOptions(CLI::App &app, Options &o) {
  const char *processes = "Processes";
  app.add_flag("--processes", o.processes, "start one process per device on this machine")->group(processes);
  app.add_flag("--threads", o.threads, "all devices as threads of this process, whatever the environment says")
      ->excludes("--processes")
      ->group(processes);
  app.add_option("--restarts", o.restarts, "start the job again so often after a failure, from the newest snapshot")
      ->check(CLI::Range(0, 1 << 20))
      ->group(processes);
  app.add_option("--secret-file", o.secretFile, "the job's secret; otherwise ZORSE_SECRET, ZORSE_SECRET_FILE, ~/.config/zorse/secret")
      ->group(processes);
  app.add_option("--listen", o.listen,
                 "this host's address for the other ranks, or a network interface, or a network (10.1.0.0/16); loopback for ranks of one host, else "
                 "the one that reaches rank 0")
      ->group(processes);
  app.add_option("--node-connections", o.nodeConnections,
                 "connections between two ranks of different nodes: several for links whose bandwidth times delay is large")
      ->check(CLI::Range(1, 16))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--heartbeat-seconds", o.heartbeatSeconds, "how often ranks say that they live")
      ->check(finiteNumber())
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--deadline-seconds", o.deadlineSeconds, "a rank that says nothing for so long is lost")
      ->check(finiteNumber())
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--join-seconds", o.joinSeconds, "all ranks must be there so long after the start")
      ->check(finiteNumber())
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->group(processes);
  app.add_option("--stall-seconds", o.stallSeconds, "give up when nothing at all has been done for so long")
      ->check(finiteNumber())
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(processes);
  app.add_flag("--share-gpus", o.shareGpus, "let several devices be one GPU where a host has fewer GPUs than devices")->group(processes);
  app.add_flag("--staged", o.staged, "let GPUs exchange by way of the host although they could directly")->group(processes);
  app.add_option("--throttle", o.throttle,
                 "DEVICE=SHARE: let a device's bodies take 1/SHARE of their time, as if it had that share of a processor; * in names stands for any "
                 "characters")
      ->group(processes);
  app.add_option("--cluster", o.cluster, "check that the bundle was compiled for these devices")->group(processes);
}

void addSimulationOptions(CLI::App &app, Options &o) {
  const char *simulation = "Simulation";
  app.add_flag("--simulate", o.simulate, "what the programs would do, on a simulated clock: nothing is executed and no data needed")
      ->group(simulation);
  app.add_option("--links-times", o.linkTimes, "if links were so many times as fast (latencies stay)")
      ->check(finiteNumber())
      ->check(CLI::Range(1e-6, 1e6))
      ->group(simulation);
  app.add_option("--speed-times", o.speedTimes, "DEVICE=FACTOR: if the device computed so many times as fast; * in names stands for any characters")
      ->group(simulation);
  app.add_flag("--simulate-evaluation", o.simulateEvaluation, "evaluations instead of training steps")->group(simulation);
  app.add_option("--json", o.json, "what the simulation found")->group(simulation);
}

void addInspectionOptions(CLI::App &app, Options &o) {
  const char *inside = "Looking inside";
  app.add_flag("--poison", o.poison, "fill memory with NaNs first: shows reads of what nobody wrote")->group(inside);
  app.add_flag("--spoil", o.spoil, "fill memory with NaNs as soon as nobody reads it any more: shows reads of what is gone; slow")->group(inside);
  app.add_flag("--thread-per-queue", o.threadPerQueue, "serve every queue by a thread of its own")->group(inside);
}

/// The first of `options` that the command line has; null: none.
const char *firstGiven(const CLI::App &app, std::initializer_list<const char *> options) {
  for (const char *option : options)
    if (app.count(option) > 0)
      return option;
  return nullptr;
}

bool checkSimulation(const CLI::App &app, Options &o) {
  if (o.steps == 0)
    o.steps = 4;
  if (const char *option =
          firstGiven(app, {"--data", "--eval", "--init", "--checkpoint", "--metrics", "--tensorboard", "--page", "--evaluate", "--sample-every",
                           "--dump-gradients", "--per-sample-losses", "--report-memory", "--snapshots", "--processes", "--throttle"})) {
    fprintf(stderr, "error: --simulate executes nothing: it cannot be used with %s\n", option);
    return false;
  }
  if (o.steps > 100000) {
    fprintf(stderr, "error: --steps %llu: a simulation is of at most 100000 steps\n", (unsigned long long)o.steps);
    return false;
  }
  return true;
}

bool checkEvaluation(const CLI::App &app, Options &o) {
  if (const char *option = firstGiven(app, {"--steps", "--shuffle", "--eval-every", "--lr", "--schedule", "--warmup", "--total-steps",
                                            "--final-ratio", "--clip", "--nonfinite", "--checkpoint", "--page", "--sample-every", "--dump-gradients",
                                            "--per-sample-losses", "--snapshot-every", "--resume", "--allow-change", "--restarts"})) {
    fprintf(stderr, "error: --evaluate trains nothing: it cannot be used with %s\n", option);
    return false;
  }
  if (app.count("--eval-batches") == 0)
    o.evaluationBatches = 0;
  if (o.evaluation.empty())
    o.evaluation = o.data;
  if (o.data.empty())
    o.data = o.evaluation;
  if (o.evaluation.empty()) {
    fprintf(stderr, "error: --evaluate needs --eval, the data to evaluate on (zorse-run --help lists the options)\n");
    return false;
  }
  return true;
}

/// Checks what one kind of run needs and what it has no use for, and sets what it implies.
bool checkKind(const CLI::App &app, Options &o) {
  o.simulate = o.simulate || o.simulateEvaluation;
  if (const char *option = o.simulate ? nullptr : firstGiven(app, {"--links-times", "--speed-times", "--json"})) {
    fprintf(stderr, "error: %s is for --simulate\n", option);
    return false;
  }
  if (o.simulate)
    return checkSimulation(app, o);
  if (o.evaluate)
    return checkEvaluation(app, o);
  if (o.data.empty() || o.steps == 0) {
    fprintf(stderr, "error: %s is required (zorse-run --help lists the options)\n", o.data.empty() ? "--data" : "--steps");
    return false;
  }
  return true;
}

/// Checks options that need others beside them.
bool checkTogether(const CLI::App &app, const Options &o) {
  if (const char *option = o.sampleEvery > 0 ? nullptr : firstGiven(app, {"--sample-tokens", "--sample-prompt", "--sample-temperature"})) {
    fprintf(stderr, "error: %s needs --sample-every, the steps after which text is sampled\n", option);
    return false;
  }
  if (o.initial.empty() && !o.initialSkip.empty()) {
    fprintf(stderr, "error: --init-skip needs --init, whose tensors it leaves out\n");
    return false;
  }
  if (o.snapshots.empty() && (o.snapshotEvery > 0 || o.resume)) {
    fprintf(stderr, "error: %s needs --snapshots DIR, where they are kept\n", o.resume ? "--resume" : "--snapshot-every");
    return false;
  }
  if (o.deadlineSeconds < 2 * o.heartbeatSeconds) {
    fprintf(stderr, "error: --deadline-seconds %g: expected at least twice --heartbeat-seconds %g, or one late heartbeat ends the job\n",
            o.deadlineSeconds, o.heartbeatSeconds);
    return false;
  }
  return true;
}

} // namespace

std::optional<int> zorse::run::parseOptions(int argc, char **argv, Options &o) {
  o.words.assign(argv, argv + argc);
  CLI::App app{"Trains from a bundle that zorse-compile wrote: as threads of one process, as processes it starts, or as a rank of a launcher's job "
               "(docs/launching.md).\n"
               "A bundle is a program: its kernels are machine code that runs in every rank, with your rights. Run those that you have compiled, or "
               "whose digest you know (--expect)."};
  std::string dataType;
  addRunOptions(app, o, dataType);
  addOutputOptions(app, o);
  addTextOptions(app, o);
  addSnapshotOptions(app, o);
  addProcessOptions(app, o);
  addSimulationOptions(app, o);
  addInspectionOptions(app, o);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-run"))
    return *done;
  o.dataType = runtime::tokenTypeNamed(dataType);
  if (app.count("--expect") > 0 && (o.expect.size() != 64 || o.expect.find_first_not_of("0123456789abcdef") != std::string::npos)) {
    fprintf(stderr,
            "error: --expect: expected the digest of a bundle, 64 hexadecimal digits in lower case, got '%s'; zorse-inspect BUNDLE prints it\n",
            o.expect.c_str());
    return 1;
  }
  return checkKind(app, o) && checkTogether(app, o) ? std::nullopt : std::optional<int>(1);
}
