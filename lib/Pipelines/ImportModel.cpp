#include "Diagnostics.h"
#include "Phases.h"

#include "zorse/Base/Patterns.h"
#include "zorse/Bundle/DescribeTraining.h"
#include "zorse/Step/Plan.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace zorse::pipelines {

/// Converts the compiler's options to options of the importer. Errors name the option.
static Result<ImportOptions> importOptions(const CompileOptions &options) {
  if (options.batchNormRows > 0 && options.batch % options.batchNormRows != 0)
    return userError(step::brokenGroups(options.batch, options.batchNormRows));
  ImportOptions import;
  import.dims = options.dims;
  import.sequence = options.sequence;
  import.batchNormRows = options.batchNormRows;
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
    if (llvm::is_contained(options.train, name))
      return userError("--freeze: '" + name + "' is also named by --train");
    import.trainable[name] = TrainableChoice::Freeze;
  }
  import.trustGuess = options.trustGuess;
  import.trustImport = options.trustImport;
  return import;
}

/// Returns the first weight decay pattern that matches no parameter name, or nothing.
static std::string unknownPattern(const Model &model) {
  if (const std::optional<units::WeightDecayFilter> rule = units::parseDecay(model.decay))
    for (const std::string &pattern : rule->patterns)
      if (llvm::none_of(model.imported.weights, [&](const WeightSource &weight) {
            return StringRef(weight.parameter).contains(pattern);
          }))
        return pattern;
  return {};
}

/// Returns an error for the first --param-group pattern that matches no trained parameter, or
/// nothing.
static std::string unknownGroup(const Model &model) {
  for (const auto &group : model.training.parameter_groups())
    for (const std::string &pattern : group.parameters())
      if (llvm::none_of(model.imported.weights, [&](const WeightSource &weight) {
            return matchesPattern(pattern, weight.parameter);
          }))
        return "--param-group: no parameter's name matches '" + pattern + "'";
  return {};
}

std::optional<Model> importModel(const CompileOptions &options, MLIRContext &context) {
  auto refuse = [](const std::string &message) {
    printError(message);
    return std::nullopt;
  };
  Result<ImportOptions> import = importOptions(options);
  if (import.failed())
    return refuse(import.message());
  FailureOr<ImportedModel> result = importOnnx(options.model, *import, context);
  if (failed(result))
    return std::nullopt;
  Model model{std::move(*result), options.training, options.decay};
  ImportedModel &imported = model.imported;
  if (imported.training)
    if (std::string note = adoptOptimizer(*imported.training, options, model.training, model.decay);
        !note.empty())
      imported.notes.push_back(note);
  imported.notes.push_back(
      "training: " + describeTraining(model.training) +
      (options.optimizerGiven || options.learningRateGiven || options.clipGiven || imported.training
           ? ""
           : "; these are the defaults (--optimizer, --lr, --weight-decay, --max-grad-norm, "
             "--lr-scheduler-type)"));
  // Printed even with --quiet, because changes that the exporter made to parameters affect
  // training.
  for (const std::string &warning : imported.warnings)
    emitWarning(UnknownLoc::get(&context), warning);
  if (failed(mlir::verify(*imported.module)))
    return std::nullopt;
  if (const std::string pattern = unknownPattern(model); !pattern.empty())
    return refuse("--weight-decay-params: no parameter's name contains '" + pattern + "'");
  if (const std::string problem = unknownGroup(model); !problem.empty())
    return refuse(problem);
  size_t ops = 0;
  imported.module->walk([&](Operation *op) { ops += op->getNumResults() > 0; });
  std::string remark = counted(imported.nodesRead, "node") + " read, " + std::to_string(ops) +
                       " after folding, " + counted(imported.weights.size(), "parameter");
  for (const std::string &note : imported.notes)
    remark += "\n             " + note;
  emitRemark(UnknownLoc::get(&context), remark);
  return model;
}

} // namespace zorse::pipelines
