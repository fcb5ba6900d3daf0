#include "ModelFlags.h"

#include "zorse/Step/Plan.h"

using namespace zorse;

void ModelFlags::addTo(CLI::App &app, pipelines::CompileOptions &o) {
  app.add_option("--seq-length", o.sequence, "length of symbolic sequence dimensions");
  app.add_option("--precision", precision,
                 "compute type: f32 (default), tf32, bf16 or f16; for tests f64, f64:bf16, f64:f16 "
                 "(docs/concepts/precision.md)");
  app.add_flag("--fp32-residual-connection", fp32Residual,
               "with bf16 and f16: residual connection in f32, as under torch.autocast (default: "
               "the type of --precision)");
  app.add_option("--accumulate", accumulate,
                 "accumulation type of f16 matrix products on GPUs: f32 (default) or f16 (twice as "
                 "fast on GeForce GPUs)")
      ->check(CLI::IsMember({"f32", "f16"}));
  app.add_option("--recompute", o.saved,
                 "activation recomputation within units: min-cut (default: the forward saves "
                 "results of matrix products and attention), none (it saves "
                 "all that the backward reads) or full (it saves nothing)")
      ->check(CLI::IsMember({"min-cut", "none", "full"}));
  const char *model = "Model";
  app.add_option("--group-rows", o.groupRows,
                 "number of consecutive samples that losses of several samples and batch norms "
                 "combine; the loss is the mean over these groups (docs/reference/training.md). 0: "
                 "none. Default: all samples of a step if the model combines samples, else none")
      ->group(model);
  app.add_option("--dim", dims, "sizes of other symbolic dimensions: NAME=VALUE")->group(model);
  app.add_option("--loss", o.loss,
                 "loss to add to the graph, computed from --logits and --labels: cross_entropy")
      ->group(model)
      ->check(CLI::IsMember({"cross_entropy"}));
  app.add_option("--loss-output", o.lossOutput, "name of the output that is the loss")
      ->group(model);
  app.add_option("--logits", o.logits, "output with the logits of the added loss")->group(model);
  app.add_option("--labels", o.labels, "input with the labels; a new name adds an input")
      ->group(model);
  app.add_flag("--shift-labels", o.shiftLabels,
               "compare position i with label i + 1 in the added loss")
      ->group(model);
  app.add_option(
         "--labels-shifted-in-graph", shifted,
         "whether the graph shifts its labels itself: yes or no; overrides the importer's guess")
      ->group(model)
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_option("--ignore-index", o.ignoreIndex, "label that the loss ignores (default: -100)")
      ->group(model);
  app.add_option("--train", o.train,
                 "initializers to train: names or patterns (* matches any characters)")
      ->group(model)
      ->delimiter(',');
  app.add_option("--freeze", o.freeze, "initializers to freeze: names or patterns")
      ->group(model)
      ->delimiter(',');
  app.add_flag("--infer-trainable", o.trustGuess,
               "infer which initializers are trained if the file does not specify it "
               "(docs/reference/training.md)")
      ->group(model);
  app.add_flag("--trust-import", o.trustImport,
               "skip the numerical comparison of the imported loss with the ONNX nodes")
      ->group(model);
  app.add_option("--weight-decay-params", o.decay,
                 "parameters with weight decay: rank (default), all, none, names:P,Q")
      ->group("Training (docs/reference/training.md)");
}

void zorse::addGradientWire(CLI::App &app, pipelines::CompileOptions &options) {
  app.add_option("--gradient-wire", options.gradientWire,
                 "type in which gradients travel in sums between nodes: bf16, which halves these "
                 "bytes; bf16:sites, only in sums between sites; or f32 (default: as in --plan, or "
                 "f32)")
      ->check(CLI::Validator(
          [](std::string &text) {
            const Result<step::GradientWire> wire = step::gradientWireNamed(text);
            return wire.failed() ? wire.message() : std::string();
          },
          ""));
}

Status ModelFlags::resolve(pipelines::CompileOptions &o) const {
  std::optional<Precision> known = parsePrecision(precision);
  if (!known)
    return userError("--precision: expects f32, tf32, bf16, f16, f64, f64:bf16 or f64:f16, got '" +
                     precision + "'");
  o.precision = *known;
  o.precision.wideResidual = fp32Residual;
  if (o.precision.wideResidual && !o.precision.rounds())
    return userError("--fp32-residual-connection: " + precision +
                     " does not round, so the option has no effect: remove it, or set --precision "
                     "to bf16 or f16");
  o.precision.sumsF16 = accumulate == "f16";
  if (o.precision.sumsF16 &&
      (o.precision.rounded != bundle::F16 || o.precision.compute != bundle::F32))
    return userError("--accumulate: f16 is for --precision f16, got --precision " + precision +
                     "; leave it out");
  if (!shifted.empty())
    o.shiftedInGraph = shifted == "yes";
  if (o.groupRows < -1)
    return userError("--group-rows: expects a number from 0, got " + std::to_string(o.groupRows));
  if (o.sequence < 0)
    return userError("--seq-length: expects a positive number, got " + std::to_string(o.sequence));
  for (const std::string &dim : dims) {
    size_t equals = dim.find('=');
    char *end = nullptr;
    int64_t value = equals == std::string::npos ? 0 : strtoll(dim.c_str() + equals + 1, &end, 10);
    if (value < 1 || *end)
      return userError("--dim: expects NAME=VALUE with a value of at least 1, got '" + dim + "'");
    o.dims[dim.substr(0, equals)] = value;
  }
  if (o.decay != "rank" && o.decay != "all" && o.decay != "none" && o.decay.rfind("names:", 0) != 0)
    return userError("--weight-decay-params: expects rank, all, none or names:P,Q, got '" +
                     o.decay + "'");
  return Status::success();
}
