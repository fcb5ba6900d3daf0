// zorse-compile: an ONNX model and a cluster become a bundle. The options are read here; lib/Pipelines does the work.
#include "TrainingFlags.h"

#include "zorse/Pipelines/Compile.h"

#include <CLI/CLI.hpp>

#include <cstdio>

using namespace zorse;

namespace {

int fail(const std::string &message) {
  fprintf(stderr, "error: %s\n", message.c_str());
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app("Compiles an ONNX model for the devices of a cluster: one verified program per device, and kernels.\n"
               "  zorse-compile model.onnx --cluster cluster.yaml --batch 64 --seq 512 -o model.zorse\n");
  pipelines::CompileOptions o;
  std::string precision = "f32", compileTo, emit, weights = "auto", shifted;
  std::vector<std::string> dims;

  app.add_option("model", o.model, "ONNX file: the forward graph with its loss")->required();
  app.add_option("--cluster", o.cluster, "devices and links (docs/cluster.md)");
  app.add_option("--batch", o.batch, "samples per step");
  app.add_option("--seq", o.sequence, "length of symbolic sequence dimensions");
  app.add_option("--plan", o.plan, "plan.json (docs/plan.md); without it a default plan is made");
  app.add_option("-o,--output", o.output, "the bundle, a directory");
  app.add_option("--precision", precision, "f32 (default), or f64 for tests")->check(CLI::IsMember({"f32", "f64"}));
  app.add_option("--weights", weights, "copy the initial weights into the bundle, or reference the model's files; auto (default): copy up to 64 MiB")
      ->check(CLI::IsMember({"auto", "copy", "reference"}));
  app.add_option("--threads", o.threads, "threads of the compiler; the bundle does not depend on them");
  app.add_option("--arch", o.arch, "CPU to compile for, as LLVM names it; default: this one");
  app.add_flag("--quiet", o.quiet, "no line per phase");

  const char *model = "Model";
  app.add_option("--dim", dims, "other symbolic dimensions: NAME=VALUE")->group(model);
  app.add_option("--loss", o.loss, "cross_entropy: add the loss to --logits and --labels")->group(model)->check(CLI::IsMember({"cross_entropy"}));
  app.add_option("--loss-output", o.lossOutput, "which output is the loss")->group(model);
  app.add_option("--logits", o.logits, "output the added loss compares")->group(model);
  app.add_option("--labels", o.labels, "input with the labels, or the name of a new one")->group(model);
  app.add_flag("--shift-labels", o.shiftLabels, "the added loss compares position i with label i + 1")->group(model);
  app.add_option("--shifted-in-graph", shifted, "yes or no: whether the graph shifts its labels, where the importer guesses wrongly")
      ->group(model)
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_option("--ignore-index", o.ignoreIndex, "label that counts for nothing, default -100")->group(model);
  app.add_option("--train", o.train, "initializers that are trained")->group(model)->delimiter(',');
  app.add_option("--freeze", o.freeze, "initializers that stay as they are")->group(model)->delimiter(',');

  TrainingFlags training;
  training.addTo(app);
  app.add_option("--decay", o.decay, "which parameters decay: rank (default), all, none, names:P,Q")->group("Training (docs/training.md)");

  const char *look = "Looking inside";
  app.add_option("--compile-to", compileTo, "stop after: import, recognize, units, backward, bodies, plan, kernels, step, exec, verify or bundle")->group(look);
  app.add_option("--emit", emit, "print: graph, units, plan, exec or llvm")->group(look)->check(CLI::IsMember({"graph", "units", "plan", "exec", "llvm"}));
  app.add_option("--dump-dir", o.dumpDir, "what every phase made, as files")->group(look);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return error.get_exit_code() == 0 ? app.exit(error) : fail(std::string(error.what()) + ". --help lists the options");
  }

  o.f64 = precision == "f64";
  o.weights = weights == "copy" ? pipelines::Weights::Copy : weights == "reference" ? pipelines::Weights::Reference : pipelines::Weights::Auto;
  if (!shifted.empty())
    o.shiftedInGraph = shifted == "yes";
  for (const std::string &dim : dims) {
    size_t equals = dim.find('=');
    char *end = nullptr;
    int64_t value = equals == std::string::npos ? 0 : strtoll(dim.c_str() + equals + 1, &end, 10);
    if (value < 1 || *end)
      return fail("--dim: expects NAME=VALUE with a value of at least 1, got '" + dim + "'");
    o.dims[dim.substr(0, equals)] = value;
  }
  if (o.decay != "rank" && o.decay != "all" && o.decay != "none" && o.decay.rfind("names:", 0) != 0)
    return fail("--decay: expects rank, all, none or names:P,Q, got '" + o.decay + "'");
  if (!compileTo.empty()) {
    std::optional<pipelines::Phase> phase = pipelines::findPhase(compileTo);
    if (!phase)
      return fail("--compile-to: expects import, recognize, units, backward, bodies, plan, kernels, step, exec, verify or bundle, got '" + compileTo + "'");
    o.last = *phase;
  }
  if (!emit.empty())
    o.emit = emit == "graph"   ? pipelines::Emit::Graph
             : emit == "units" ? pipelines::Emit::Units
             : emit == "plan"  ? pipelines::Emit::Plan
             : emit == "exec"  ? pipelines::Emit::Exec
                               : pipelines::Emit::Llvm;
  bool stopsEarly = o.emit != pipelines::Emit::Nothing || o.last < pipelines::Phase::Bundle;
  bool needsPlan = (o.emit == pipelines::Emit::Nothing && o.last >= pipelines::Phase::Plan) || o.emit == pipelines::Emit::Plan || o.emit == pipelines::Emit::Exec;
  if (o.output.empty() && !stopsEarly)
    return fail("expects -o BUNDLE, the directory to write, or --compile-to or --emit to stop before");
  if (needsPlan && o.cluster.empty())
    return fail("expects --cluster CLUSTER.yaml, the devices to compile for (docs/cluster.md)");
  if (needsPlan && o.batch < 1)
    return fail("expects --batch, the samples per step, of at least 1");
  if (o.sequence < 0 || o.batch < 0)
    return fail("--batch and --seq: expect positive numbers");
  o.threads = std::max(1u, o.threads);
  std::string error;
  if (!training.resolve(o.training, error))
    return fail(error);

  return pipelines::compileModel(o) ? 0 : 1;
}
