#include "ModelFlags.h"

using namespace zorse;

void ModelFlags::addTo(CLI::App &app, pipelines::CompileOptions &o) {
  app.add_option("--seq", o.sequence, "length of symbolic sequence dimensions");
  app.add_option("--precision", precision, "f32 (default), tf32, bf16 or f16; for tests f64, f64:bf16, f64:f16 (docs/precision.md)");
  app.add_option("--residual", residual, "with bf16 and f16: compute (default: as in a module of that type) or f32 (as under torch.autocast)")
      ->check(CLI::IsMember({"compute", "f32"}));
  app.add_option("--accumulate", accumulate, "with f16: the type of sums in products on GPUs, f32 (default) or f16, twice as fast on GeForce cards")
      ->check(CLI::IsMember({"f32", "f16"}));
  app.add_option("--save", o.saved,
                 "what a unit's forward keeps for its backward: min-cut (default: what products and attention made), keep (all that is read) "
                 "or full (nothing: all is computed again)")
      ->check(CLI::IsMember({"min-cut", "keep", "full"}));
  const char *model = "Model";
  app.add_option("--batch-norm-rows", o.batchNormRows, "batch norm takes its statistics over groups of so many samples in a row (docs/training.md)")
      ->group(model);
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
  app.add_option("--train", o.train, "initializers that are trained: names or patterns, * stands for any characters")->group(model)->delimiter(',');
  app.add_option("--freeze", o.freeze, "initializers that stay as they are: names or patterns")->group(model)->delimiter(',');
  app.add_flag("--trust-guess", o.trustGuess, "where the file does not say what is trained (docs/training.md), take the likelier answer")
      ->group(model);
  app.add_flag("--trust-import", o.trustImport, "do not compare the imported loss with the file's own nodes by numbers")->group(model);
  app.add_option("--decay", o.decay, "which parameters decay: rank (default), all, none, names:P,Q")->group("Training (docs/training.md)");
}

Status ModelFlags::resolve(pipelines::CompileOptions &o) const {
  std::optional<Precision> known = parsePrecision(precision);
  if (!known)
    return userError("--precision: expects f32, tf32, bf16, f16, f64, f64:bf16 or f64:f16, got '" + precision + "'");
  o.precision = *known;
  o.precision.wideResidual = residual == "f32";
  if (o.precision.wideResidual && !o.precision.rounds())
    return userError("--residual: in " + precision + " nothing is rounded, the residual neither: leave it out, or choose --precision bf16 or f16");
  o.precision.sumsF16 = accumulate == "f16";
  if (o.precision.sumsF16 && (o.precision.rounded != bundle::F16 || o.precision.compute != bundle::F32))
    return userError("--accumulate: f16 is for --precision f16, got --precision " + precision + "; leave it out");
  if (!shifted.empty())
    o.shiftedInGraph = shifted == "yes";
  if (o.batchNormRows < 0)
    return userError("--batch-norm-rows: expects a positive number, got " + std::to_string(o.batchNormRows));
  if (o.sequence < 0)
    return userError("--seq: expects a positive number, got " + std::to_string(o.sequence));
  for (const std::string &dim : dims) {
    size_t equals = dim.find('=');
    char *end = nullptr;
    int64_t value = equals == std::string::npos ? 0 : strtoll(dim.c_str() + equals + 1, &end, 10);
    if (value < 1 || *end)
      return userError("--dim: expects NAME=VALUE with a value of at least 1, got '" + dim + "'");
    o.dims[dim.substr(0, equals)] = value;
  }
  if (o.decay != "rank" && o.decay != "all" && o.decay != "none" && o.decay.rfind("names:", 0) != 0)
    return userError("--decay: expects rank, all, none or names:P,Q, got '" + o.decay + "'");
  return Status::success();
}
