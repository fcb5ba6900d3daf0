#include "Diagnostics.h"
#include "Phases.h"

#include "zorse/Base/Patterns.h"
#include "zorse/Bundle/DescribeTraining.h"
#include "zorse/Step/Plan.h"
#include "zorse/Summary/UpdateRules.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace zorse::pipelines {

/// Converts the compiler's options to options of the importer. Errors name the option.
static Result<ImportOptions> importOptions(const CompileOptions &options) {
  if (options.groupRows > 0 && options.batch % options.groupRows != 0)
    return userError(step::brokenGroups(options.batch, options.groupRows));
  ImportOptions import;
  import.dims = options.dims;
  import.sequence = options.sequence;
  import.groupRows = std::max<int64_t>(options.groupRows, 0);
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
  if (const std::optional<WeightDecayFilter> rule = parseDecay(model.decay))
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

/// An attempt to import, whose diagnostics are kept.
struct Attempt {
  FailureOr<ImportedModel> model = failure();
  std::vector<std::pair<DiagnosticSeverity, std::string>> said;

  Attempt(const std::string &path, const ImportOptions &import, MLIRContext &context) {
    ScopedDiagnosticHandler keep(&context, [&](Diagnostic &diagnostic) {
      said.emplace_back(diagnostic.getSeverity(), diagnostic.str());
      return success();
    });
    model = importOnnx(path, import, context);
  }
  void print(MLIRContext &context) const {
    for (auto &[severity, text] : said)
      context.getDiagEngine().emit(UnknownLoc::get(&context), severity) << text;
  }
  /// The node that needs several samples, as the error names it. Empty if none does.
  std::string combining() const {
    for (auto &[severity, text] : said)
      if (const size_t node = text.find("node '"); severity == DiagnosticSeverity::Error &&
                                                   node != std::string::npos &&
                                                   StringRef(text).contains("sample"))
        return text.substr(node, text.find("; its operands") - node);
    return {};
  }
};

/// Imports the file. If it combines samples and the options give no group, all samples of a step
/// become one.
static FailureOr<ImportedModel> importInGroups(const CompileOptions &options, ImportOptions import,
                                               MLIRContext &context, int64_t &group) {
  group = import.groupRows;
  if (options.groupRows >= 0 || options.batch <= 1)
    return importOnnx(options.model, import, context);
  Attempt apart(options.model, import, context);
  const bool frozen = succeeded(apart.model) && apart.model->freezesTraining;
  std::string reason = frozen ? "batch norms take their statistics over them" : apart.combining();
  if (reason.empty()) {
    apart.print(context);
    return std::move(apart.model);
  }
  import.groupRows = options.batch;
  Attempt together(options.model, import, context);
  if (failed(together.model)) {
    apart.print(context);
    if (failed(apart.model) && !together.said.empty())
      emitError(UnknownLoc::get(&context))
          << "with all samples of a step as one group (--group-rows=" << options.batch
          << "): " << together.said.front().second;
    return std::move(apart.model);
  }
  together.print(context);
  group = options.batch;
  together.model->notes.push_back(
      "all " + std::to_string(group) + " samples of a step are one group, because " +
      (frozen ? reason : reason.substr(0, reason.find("): ") + 1) + " combines samples") +
      ". --group-rows=G takes the mean over groups of G consecutive samples, as "
      "DistributedDataParallel with a local batch of G");
  return std::move(together.model);
}

std::optional<Model> importModel(const CompileOptions &options, MLIRContext &context) {
  auto refuse = [](const std::string &message) {
    printError(message);
    return std::nullopt;
  };
  Result<ImportOptions> import = importOptions(options);
  if (import.failed())
    return refuse(import.message());
  int64_t group = 0;
  FailureOr<ImportedModel> result = importInGroups(options, *import, context, group);
  if (failed(result))
    return std::nullopt;
  Model model{std::move(*result), options.training, options.decay, group};
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
