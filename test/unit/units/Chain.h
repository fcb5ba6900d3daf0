// A training step of a unit model as a chain of unit functions on one device, through the reference evaluator.
#pragma once

#include "../autodiff/UnitFunctions.h"

#include "zorse/Units/Units.h"

namespace zorse::testing {

struct Step {
  double loss = 0;
  std::vector<Tensor> gradients; ///< by ParameterInfo
  bool ok = true;
};

inline mlir::func::FuncOp functionOf(units::UnitModel &model, llvm::StringRef name) {
  return model.functions->lookupSymbol<mlir::func::FuncOp>(name);
}

/// Denominators D_k of a batch.
inline std::vector<double> denominators(units::UnitModel &model, const std::vector<Tensor> &inputs, const reference::Options &options) {
  const bundle::ModelSummary &summary = model.summary;
  Slots slots, out;
  if (auto function = functionOf(model, "denominators")) {
    for (int i = 0; i < summary.denominator_inputs_size(); ++i)
      slots[{"input", i}] = inputs[summary.denominator_inputs(i)];
    out = run(function, slots, options);
  }
  std::vector<double> result;
  for (const bundle::LossTerm &term : summary.loss()) {
    double sum = term.constant_denominator() ? term.denominator_per_row() * options.rows : 0;
    if (!term.constant_denominator())
      for (double v : out.at({"loss", term.denominator_output()}).values)
        sum += v;
    result.push_back(sum);
  }
  return result;
}

/// Forward of all units, and backward too if asked; `split`: in two parts where there are two.
inline Step runStep(units::UnitModel &model, const std::vector<Tensor> &parameters, const std::vector<Tensor> &inputs, reference::Options options,
                    bool backward, bool split = false) {
  const bundle::ModelSummary &summary = model.summary;
  Step step;
  std::vector<double> denominator = denominators(model, inputs, options);
  std::vector<Tensor> values(summary.values_size());
  std::vector<Slots> kept(summary.units_size());
  for (int u = 0; u < summary.units_size(); ++u) {
    const bundle::UnitInfo &unit = summary.units(u);
    options.instanceBase = unit.instance_base();
    Slots &slots = kept[u];
    for (int i = 0; i < unit.parameters_size(); ++i)
      slots[{"parameter", i}] = parameters[unit.parameters(i)];
    for (int i = 0; i < unit.inputs_size(); ++i)
      slots[{"input", i}] = inputs[unit.inputs(i)];
    for (int i = 0; i < unit.values_in_size(); ++i)
      slots[{"boundary_in", i}] = values[unit.values_in(i)];
    Slots out = run(functionOf(model, model.classes[unit.class_id()].forward), slots, options);
    if (out.empty())
      return step.ok = false, step;
    for (auto &[key, value] : out) {
      if (key.first == "boundary_out")
        values[unit.values_out(key.second)] = value;
      if (key.first == "saved")
        slots[key] = value;
      if (key.first == "loss")
        for (double v : value.values)
          step.loss += summary.loss(unit.loss_terms(key.second)).coefficient() * v / denominator[unit.loss_terms(key.second)];
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
    options.instanceBase = unit.instance_base();
    Slots slots = kept[u];
    for (int i = 0; i < unit.values_out_size(); ++i)
      slots[{"boundary_out_gradient", i}] = valueGradients[unit.values_out(i)];
    for (int i = 0; i < unit.loss_terms_size(); ++i)
      slots[{"scalars", i}] = Tensor{{}, {summary.loss(unit.loss_terms(i)).coefficient() / denominator[unit.loss_terms(i)]}};
    const units::UnitClass &unitClass = model.classes[unit.class_id()];
    std::vector<std::string> functions{unitClass.backward};
    if (split && unit.splits())
      functions = {unitClass.backwardInputs, unitClass.backwardWeights};
    for (const std::string &function : functions) {
      Slots out = run(functionOf(model, function), slots, options);
      if (out.empty() && functionOf(model, function).getNumResults())
        return step.ok = false, step;
      for (auto &[key, value] : out)
        if (key.first == "deferred")
          slots[key] = value;
        else
          addTo(key.first == "parameter_gradient" ? step.gradients[unit.parameters(key.second)] : valueGradients[unit.values_in(key.second)], value);
    }
  }
  return step;
}

} // namespace zorse::testing
