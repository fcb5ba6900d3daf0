// Runs a training step of a unit model as a chain of unit functions on one device, with the
// reference evaluator.
#pragma once

#include "../autodiff/UnitFunctions.h"

#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"
#include "zorse/runtime/Expression.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace zorse::testing {

struct Step {
  double loss = 0;
  std::vector<Tensor> gradients; ///< by ParameterInfo
  bool ok = true;
};

/// A model after all passes on units.
struct UnitModel {
  mlir::OwningOpRef<mlir::ModuleOp> functions;
  bundle::ModelSummary summary;
};

struct UnitOptions {
  autodiff::RecomputePolicy saved = autodiff::RecomputePolicy::MinCut;
  bundle::TrainingOptions training;
  std::string decay = "rank";
};

/// Builds the units of a copy of the module, which is not changed.
inline mlir::FailureOr<UnitModel> buildUnits(mlir::ModuleOp module, const UnitOptions &options) {
  UnitModel model{mlir::OwningOpRef<mlir::ModuleOp>(module.clone()), {}};
  bundle::ModelSummary settings;
  *settings.mutable_training() = options.training;
  mlir::PassManager passes(module.getContext());
  passes.addPass(units::createHashModel());
  passes.addPass(units::createConfigure({units::settingsText(settings), options.decay, 1}));
  passes.addPass(units::createFindUnits());
  units::addFunctionPasses(passes, {options.saved, {}, false});
  if (failed(passes.run(*model.functions)))
    return mlir::failure();
  mlir::FailureOr<bundle::ModelSummary> summary = units::summarize(*model.functions);
  if (failed(summary))
    return mlir::failure();
  model.summary = *summary;
  return model;
}

inline mlir::func::FuncOp functionOf(UnitModel &model, llvm::StringRef name) {
  return model.functions->lookupSymbol<mlir::func::FuncOp>(name);
}
inline mlir::func::FuncOp functionOp(UnitModel &model, const bundle::UnitClass &unitClass,
                                     bundle::UnitFunction::Task task) {
  return units::functionOp(*model.functions, unitClass, task);
}

/// Numbers known for a batch: its counts, and the values of expressions of counts.
struct KnownOfBatch {
  std::vector<double> counts, factors, known;
};

inline double reduced(const std::vector<double> &rows, llvm::StringRef reduce) {
  return reduce == "sum"   ? std::accumulate(rows.begin(), rows.end(), 0.0)
         : reduce == "max" ? *std::max_element(rows.begin(), rows.end())
                           : *std::min_element(rows.begin(), rows.end());
}

inline double valueOf(const std::string &text, int64_t samples, const std::vector<double> &counts) {
  auto expression = Expression::parse(text);
  EXPECT_FALSE(expression.failed()) << text << ": " << expression.message();
  return expression.failed() ? 0 : expression->evaluate(double(samples), counts);
}

inline KnownOfBatch knownOf(UnitModel &model, const std::vector<Tensor> &inputs,
                            const reference::Options &options) {
  const bundle::ModelSummary &summary = model.summary;
  Arguments arguments, out;
  KnownOfBatch result;
  result.counts.assign(summary.counts_size(), std::nan(""));
  // Counts are computed in order, because each may read numbers that depend on earlier counts.
  for (int level = 0; level < summary.counts_size(); ++level) {
    for (int i = 0; i < summary.count_inputs_size(); ++i)
      arguments[{"input", i}] = inputs[summary.count_inputs(i)];
    for (int k = 0; k < summary.known_size(); ++k)
      arguments[{"known", k}] =
          Tensor{{}, {valueOf(summary.known(k), options.rows, result.counts)}};
    out = run(functionOf(model, "counts"), arguments, options);
    result.counts[level] =
        reduced(out.at({"loss", level}).values, reduceName(summary.counts(level).reduce()));
  }
  for (const bundle::LossTerm &term : summary.loss())
    result.factors.push_back(valueOf(term.factor(), options.rows, result.counts));
  for (const std::string &text : summary.known())
    result.known.push_back(valueOf(text, options.rows, result.counts));
  return result;
}

/// Runs the forward of all units and, if `backward` is set, the backward. `split`: use split
/// backwards if a unit has them.
inline Step runStep(UnitModel &model, const std::vector<Tensor> &parameters,
                    const std::vector<Tensor> &inputs, reference::Options options, bool backward,
                    bool split = false) {
  const bundle::ModelSummary &summary = model.summary;
  Step step;
  const KnownOfBatch batch = knownOf(model, inputs, options);
  std::vector<Tensor> values(summary.values_size());
  std::vector<Arguments> kept(summary.units_size());
  for (int u = 0; u < summary.units_size(); ++u) {
    const bundle::UnitInfo &unit = summary.units(u);
    options.rngIdBase = unit.rng_id_base();
    Arguments &arguments = kept[u];
    for (int i = 0; i < unit.parameters_size(); ++i)
      arguments[{"parameter", i}] = parameters[unit.parameters(i)];
    for (int i = 0; i < unit.inputs_size(); ++i)
      arguments[{"input", i}] = inputs[unit.inputs(i)];
    for (int i = 0; i < unit.values_in_size(); ++i)
      arguments[{"boundary_in", i}] = values[unit.values_in(i)];
    for (int j = 0; j < summary.known_size(); ++j)
      arguments[{"known", j}] = Tensor{{}, {batch.known[j]}};
    Arguments out = run(functionOp(model, classOf(summary, unit), bundle::UnitFunction::FORWARD),
                        arguments, options);
    if (out.empty())
      return step.ok = false, step;
    for (auto &[key, value] : out) {
      if (key.first == "boundary_out")
        values[unit.values_out(key.second)] = value;
      if (key.first == "saved")
        arguments[key] = value;
      if (key.first == "loss")
        for (double v : value.values)
          step.loss += batch.factors[unit.loss_terms(key.second)] * v;
    }
  }
  if (!backward)
    return step;

  for (const Tensor &parameter : parameters)
    step.gradients.push_back(Tensor::filled(parameter.shape, 0.0));
  std::vector<Tensor> valueGradients;
  for (const Tensor &value : values)
    valueGradients.push_back(Tensor::filled(value.shape, 0.0));
  auto addTo = [](Tensor &sum, const Tensor &term) {
    for (int64_t i = 0; i < sum.size(); ++i)
      sum.values[i] += term.values[i];
  };
  for (int u = summary.units_size() - 1; u >= 0; --u) {
    const bundle::UnitInfo &unit = summary.units(u);
    options.rngIdBase = unit.rng_id_base();
    Arguments arguments = kept[u];
    for (int i = 0; i < unit.values_out_size(); ++i)
      arguments[{"boundary_out_gradient", i}] = valueGradients[unit.values_out(i)];
    for (int i = 0; i < unit.loss_terms_size(); ++i)
      arguments[{"scalars", i}] = Tensor{{}, {batch.factors[unit.loss_terms(i)]}};
    std::vector<bundle::UnitFunction::Task> tasks{bundle::UnitFunction::BACKWARD};
    if (split && unit.splits())
      tasks = {bundle::UnitFunction::INPUT_GRADIENTS, bundle::UnitFunction::WEIGHT_GRADIENTS};
    for (bundle::UnitFunction::Task task : tasks) {
      mlir::func::FuncOp function = functionOp(model, classOf(summary, unit), task);
      Arguments out = run(function, arguments, options);
      if (out.empty() && function.getNumResults())
        return step.ok = false, step;
      for (auto &[key, value] : out)
        if (key.first == "saved_for_weight_grad")
          arguments[key] = value;
        else
          addTo(key.first == "parameter_gradient" ? step.gradients[unit.parameters(key.second)]
                                                  : valueGradients[unit.values_in(key.second)],
                value);
    }
  }
  return step;
}

} // namespace zorse::testing
