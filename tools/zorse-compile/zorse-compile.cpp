// zorse-compile: compiles an ONNX model for a cluster into a bundle. Parses options; lib/Pipelines
// does the work.
#include "DeepStack.h"
#include "ModelFlags.h"
#include "ParseFlags.h"
#include "RenamedFlags.h"
#include "TrainingFlags.h"

#include "zorse/Pipelines/Compile.h"
#include "zorse/Pipelines/MlirFlags.h"
#include "zorse/runtime/StandardStreams.h"

#include "zorse/runtime/Overwrites.h"

#include <cstdio>
#include <filesystem>
#include <set>

using namespace zorse;

namespace {

int fail(const std::string &message) {
  fprintf(stderr, "error: %s\n", message.c_str());
  return 1;
}

/// Options with named values, before conversion.
struct Words {
  std::string compileTo, emit, weights = "auto";
};

void addOptions(CLI::App &app, pipelines::CompileOptions &o, Words &words) {
  app.add_option("model", o.model,
                 "ONNX file with the forward graph and its loss; none with --near");
  app.add_option("--cluster", o.cluster,
                 "cluster.yaml with devices and links (docs/reference/cluster-yaml.md)");
  app.add_option("--global-batch-size", o.batch, "samples per step");
  app.add_option("--profile", o.profiles,
                 "profile with measured times of the model's functions and of links "
                 "(docs/reference/profile-json.md); repeatable, later files take "
                 "precedence")
      ->expected(1);
  app.add_option("--plan", o.plan,
                 "plan.json to use (docs/reference/plan-json.md); default: search for a plan");
  app.add_option("--tensor-parallel-size", o.tensorParallelSize,
                 "without --plan: maximum number of devices of a node that divide units among them "
                 "(tensor parallelism), where that is faster (default: 1)")
      ->check(CLI::Range(1, 64));
  addGradientWire(app, o);
  app.add_option("-o,--output", o.output, "output directory for the bundle");
  app.add_option("--rebuild-kernels", o.rebuild,
                 "bundle from another source to recompile from this model, including its machine "
                 "code, with its plan, cluster, batch, training options and "
                 "weights; refused if this compiler derives another summary from the model. Repeat "
                 "options about the model (--train, --loss, ...) as they were "
                 "given");
  app.add_option("--near", o.near,
                 "bundle whose model is compiled for other devices, without its file: a plan near "
                 "the bundle's is searched within about a second, functions and machine code stay. "
                 "Its cluster is used unless --cluster is given");
  app.add_option("--exclude", o.exclude, "with --near: devices to leave out, separated by commas")
      ->delimiter(',');
  app.add_option("--slowdown", o.slowdown,
                 "with --near: devices that compute slower than described or measured, as "
                 "NAME=FACTOR, separated by commas")
      ->delimiter(',');
  app.add_option("--weights", words.weights,
                 "initial weights: embed (copied into the bundle), reference (to the model's "
                 "files) or defer (the files may be created later); default "
                 "auto: embed up to 64 MiB")
      ->check(renamedValues({{"copy", "embed"}, {"later", "defer"}}))
      ->check(CLI::IsMember({"auto", "embed", "reference", "defer"}));
  app.add_option("--num-threads", o.threads,
                 "compiler threads; the bundle does not depend on their number");
  app.add_option("--cpu-arch", o.arch, "CPU to compile for, an LLVM CPU name (default: this CPU)");
  app.add_flag(
      "--simulate-only", o.simulateOnly,
      "compile only for zorse-run --simulate; permits device types that cannot run the bundle");
  app.add_flag("--quiet", o.quiet, "print no line per phase");
}

void addRareOptions(CLI::App &app, pipelines::CompileOptions &o, Words &words) {
  app.add_flag("--compile-all-functions", o.allFunctions,
               "also compile functions that only other plans use (activation recomputation, split "
               "backward): for zorse-profile, --near and elastic jobs");

  app.add_flag(
      "--with-generation", o.sampling,
      "also compile text generation (logits of one position), for zorse-run --generate-interval");

  const char *look = "Looking inside";
  app.add_option("--compile-to", words.compileTo,
                 "phase to stop after: import, recognize, units, backward, lower, plan, kernels, "
                 "step, exec, verify or bundle")
      ->group(look);
  app.add_option("--emit", words.emit,
                 "representation to print: graph, pipeline (of passes, for zorse-opt "
                 "--pass-pipeline), units, plan, exec or llvm")
      ->group(look)
      ->check(CLI::IsMember({"graph", "pipeline", "units", "plan", "exec", "llvm"}));
  app.add_option("--dump-dir", o.dumpDir, "directory for the output of every phase")->group(look);
}

Status readWords(const Words &words, pipelines::CompileOptions &o) {
  const auto &[compileTo, emit, weights] = words;
  o.weights = weights == "embed"       ? pipelines::Weights::Copy
              : weights == "reference" ? pipelines::Weights::Reference
              : weights == "defer"     ? pipelines::Weights::Later
                                       : pipelines::Weights::Auto;
  if (!compileTo.empty()) {
    std::optional<pipelines::Stage> made = pipelines::findPhase(compileTo);
    if (!made)
      return userError("--compile-to: expects import, recognize, units, backward, lower, plan, "
                       "kernels, step, exec, verify or bundle, got '" +
                       compileTo + "'");
    o.last = *made;
  }
  if (!emit.empty())
    o.emit = emit == "graph"      ? pipelines::Emit::Graph
             : emit == "pipeline" ? pipelines::Emit::Pipeline
             : emit == "units"    ? pipelines::Emit::Units
             : emit == "plan"     ? pipelines::Emit::Plan
             : emit == "exec"     ? pipelines::Emit::Exec
                                  : pipelines::Emit::Llvm;
  return Status::success();
}

/// Checks that outputs do not overwrite inputs. The plan and cluster of the output bundle itself
/// are allowed as inputs: they are read completely before they are rewritten.
Status checkPaths(const pipelines::CompileOptions &o) {
  std::error_code none;
  auto unlessOwn = [&](const std::string &file, const char *name) {
    return std::filesystem::equivalent(file, std::filesystem::path(o.output) / name, none)
               ? std::string()
               : file;
  };
  std::vector<runtime::NamedPath> inputs = {{"the model", o.model},
                                            {"--cluster", unlessOwn(o.cluster, "cluster.yaml")},
                                            {"--plan", unlessOwn(o.plan, "plan.json")},
                                            {"--rebuild-kernels", o.rebuild},
                                            {"--near", o.near}};
  for (const std::string &profile : o.profiles)
    inputs.push_back({"--profile", profile});
  return runtime::checkOverwrites(
      inputs, {{"--output", o.output, /*replaced=*/true}, {"--dump-dir", o.dumpDir}});
}

/// Returns an error message if options that the requested phases need are missing; empty if none
/// is.
std::string missing(const pipelines::CompileOptions &o) {
  if (o.model.empty())
    return "expects an ONNX file, or --near BUNDLE to compile a bundle's model for other devices";
  bool stopsEarly = o.emit != pipelines::Emit::Nothing || o.last < pipelines::Stage::Bundle;
  bool needsPlan = (o.emit == pipelines::Emit::Nothing && o.last >= pipelines::Stage::Plan) ||
                   o.emit == pipelines::Emit::Plan || o.emit == pipelines::Emit::Exec;
  if (o.output.empty() && !stopsEarly)
    return "expects -o BUNDLE, the directory to write, or --compile-to or --emit to stop earlier";
  if (needsPlan && o.cluster.empty())
    return "expects --cluster CLUSTER.yaml, the devices to compile for "
           "(docs/reference/cluster-yaml.md)";
  if (needsPlan && o.batch < 1)
    return "expects --global-batch-size, the samples per step, of at least 1";
  if (o.batch < 0)
    return "--global-batch-size: expects a positive number";
  return "";
}

/// Returns an error for options that contradict --near, or that need it; empty if there are none.
std::string nearProblem(const CLI::App &app, const pipelines::CompileOptions &o) {
  if (o.near.empty() && !o.exclude.empty())
    return "--exclude: needs --near BUNDLE; without it, remove the device from the cluster file";
  if (o.near.empty())
    return o.slowdown.empty() ? ""
                              : "--slowdown: needs --near BUNDLE; without it, give the device the "
                                "key 'slowdown' in the cluster file";
  static const std::set<std::string> allowed = {"--near",
                                                "--exclude",
                                                "--slowdown",
                                                "--cluster",
                                                "--profile",
                                                "--plan",
                                                "--output",
                                                "--gradient-wire",
                                                "--weights",
                                                "--num-threads",
                                                "--global-batch-size",
                                                "--quiet",
                                                "--compile-to",
                                                "--emit",
                                                "--dump-dir",
                                                "--simulate-only",
                                                "--cpu-arch",
                                                "--config"};
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 0 && !allowed.count(option->get_name(false, false)))
      return option->get_name(false, false) + ": " + o.near +
             " has the compiled model and its options: leave this out with --near, or compile the "
             "model again without --near";
  if (o.weights == pipelines::Weights::Later)
    return "--weights=defer: " + o.near + " has its weights: use embed or reference";
  return "";
}

} // namespace

static int run(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  std::vector<char *> words(argv, argv + argc);
  const bool mlirFlags = pipelines::takeMlirFlags(words);
  CLI::App app("Compiles an ONNX model for the devices of a cluster: one verified program per "
               "device, and kernels.\n"
               "  zorse-compile model.onnx --cluster cluster.yaml --global-batch-size 64 "
               "--seq-length 512 -o model.zorse\n");
  pipelines::CompileOptions o;
  Words named;
  addOptions(app, o, named);
  ModelFlags model;
  model.addTo(app, o);
  TrainingFlags training;
  training.addTo(app);
  addRareOptions(app, o, named);
  if (std::optional<int> done = parseFlags(app, int(words.size()), words.data(), "zorse-compile"))
    return *done;

  Status status = model.resolve(o);
  if (status.succeeded())
    status = readWords(named, o);
  if (status.failed())
    return fail(status.message());
  o.threads = std::max(1u, o.threads);
  o.mlirFlags = mlirFlags;
  if (status = training.resolve(o.training); status.failed())
    return fail(status.message());
  o.optimizerGiven = training.optimizerGiven();
  o.learningRateGiven = training.learningRateGiven();
  o.clipGiven = training.clipGiven();
  o.decayGiven = app.count("--weight-decay-params") > 0;
  if (!o.precision.needsScaling() &&
      (o.training.loss_scale() > 0 || o.training.loss_scale_interval() > 0))
    return fail(
        std::string(o.training.loss_scale() > 0 ? "--initial-loss-scale" : "--loss-scale-window") +
        ": belongs to --precision f16, in which gradients below 6e-8 underflow; " +
        o.precision.name() + " needs no loss scale");
  if (const std::string problem = nearProblem(app, o); !problem.empty())
    return fail(problem);
  if (status = o.near.empty() ? Status::success() : pipelines::adoptNearBundle(o); status.failed())
    return fail(status.message());
  if (status = o.rebuild.empty() ? Status::success() : pipelines::adoptBundle(o); status.failed())
    return fail(status.message());
  if (status = checkPaths(o); status.failed())
    return fail(status.message());
  if (const std::string lacking = missing(o); !lacking.empty())
    return fail(lacking);
  return pipelines::compileModel(o) ? 0 : 1;
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(run, argc, argv); }
