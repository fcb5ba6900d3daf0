// Trains the model on one device, without programs: units run in order, gradients of values are
// summed over their users, and one update follows.
#include "Functions.h"
#include "Interpreter.h"

#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::interpret;

namespace {

class Reference {
public:
  Reference(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
            const Training &how)
      : summary(summary), functions(functions), batch(how.batch), splitBackward(how.splitBackward),
        commitsByGroup(how.commitsByGroup) {
    for (const auto &p : summary.parameters())
      parameters.push_back(initial(p, bundle::Value::PARAMETERS, 0));
    moments.resize(maxOptimizerStates(summary));
    for (uint32_t m = 0; m < moments.size(); ++m)
      for (const auto &p : summary.parameters())
        moments[m].push_back(initial(p, bundle::Value::MOMENTS, m));
    optimizerStep.assign(summary.training().loss_scale() != 0 ? 8 : 2, 0);
  }

  void step(int number, bool training, Result &result) {
    scalars.resize(kScalarWords);
    for (size_t w = 0; w < kScalarWords; ++w)
      scalars[w] = scalarWord(w, number);
    sums.assign(kSumWords, 0);
    inputs.clear();
    for (int i = 0; i < summary.inputs_size(); ++i) {
      size_t words = size_t(summary.inputs(i).bytes_per_row()) / 4;
      Words rows;
      for (int64_t r = 0; r < batch; ++r)
        for (size_t w = 0; w < words; ++w)
          rows.push_back(inputWord(uint32_t(i), r, w, number));
      inputs.push_back(std::move(rows));
    }
    values.assign(summary.values_size(), {});
    valueGradients.assign(summary.values_size(), {});
    for (int v = 0; v < summary.values_size(); ++v)
      valueGradients[v].assign(size_t(batch * summary.values(v).bytes_per_row() / 4), 0);
    gradients.clear();
    for (const auto &p : parameters)
      gradients.push_back(Words(p.size(), 0));
    saved.assign(summary.units_size(), {});
    deferred.assign(summary.units_size(), {});
    loss.clear();
    for (int u = 0; u < summary.units_size(); ++u)
      unit(u, functionOf(summary, summary.units(u), bundle::UnitFunction::FORWARD).function());
    call(summary.sum_loss_function(), 0, [&](const bundle::FunctionArgument &argument) {
      return argument.kind() == bundle::LOSS ? &loss[argument.index()] : &sums;
    });
    if (training) {
      if (summary.training().loss_scale() != 0)
        call(summary.scale_loss_gradient_function(), 0,
             [&](const bundle::FunctionArgument &argument) {
               return argument.kind() == bundle::SCALARS ? &scalars : &optimizerStep;
             });
      for (int u = summary.units_size() - 1; u >= 0; --u) {
        const auto &info = summary.units(u);
        using Function = bundle::UnitFunction;
        const bool splits = splitBackward && info.splits();
        unit(u, functionOf(summary, info, splits ? Function::INPUT_GRADIENTS : Function::BACKWARD)
                    .function());
        if (splits)
          unit(u, functionOf(summary, info, Function::WEIGHT_GRADIENTS).function());
      }
      for (int p = 0; p < summary.parameters_size(); ++p)
        if (summary.parameters(p).trainable())
          call(summary.norm_function(), int64_t(parameters[p].size()),
               [&](const bundle::FunctionArgument &argument) {
                 return argument.kind() == bundle::STATE ? &gradients[p] : &sums;
               });
      Words none(kSumWords, 0); // the sums of a decision that precedes all sums
      call(summary.clip_and_check_function(), 0, [&](const bundle::FunctionArgument &argument) {
        return argument.kind() == bundle::LOCAL_METRICS ? (commitsByGroup ? &none : &sums)
               : argument.kind() == bundle::SCALARS     ? &scalars
                                                        : &optimizerStep;
      });
      for (int p = 0; p < summary.parameters_size(); ++p) {
        const auto &info = summary.parameters(p);
        if (info.trainable())
          call(summary.update_rules(int(info.update_rule())).function(), rowsOf(info),
               [&](const bundle::FunctionArgument &argument) {
                 if (argument.kind() == bundle::SCALARS)
                   return &scalars;
                 if (argument.kind() == bundle::OPTIMIZER_STEP)
                   return &optimizerStep;
                 return argument.index() == 0   ? &parameters[p]
                        : argument.index() == 1 ? &gradients[p]
                                                : &moments[argument.index() - 2][p];
               });
      }
    }
    Words report;
    if (training)
      report.assign(scalars.begin() + kDecidedBegin, scalars.begin() + kDecidedEnd);
    report.insert(report.end(), sums.begin() + kNormWords,
                  sums.begin() + kNormWords + 2 * summary.loss_size());
    result.reports.push_back(report);
  }

  void finish(Result &result) const {
    for (int p = 0; p < summary.parameters_size(); ++p) {
      const auto &info = summary.parameters(p);
      for (size_t e = 0; e < parameters[p].size(); ++e)
        result.state[{bundle::Value::PARAMETERS, info.group(), 0}][info.offset() + int64_t(e)] =
            parameters[p][e];
      for (uint32_t m = 0; m < optimizerStates(summary, summary.groups(int(info.group()))); ++m) {
        const int64_t first = StateLayout(summary, info.group(), m).begin(info.offset());
        for (size_t e = 0; e < moments[m][p].size(); ++e)
          result.state[{bundle::Value::MOMENTS, info.group(), m}][first + int64_t(e)] =
              moments[m][p][e];
      }
    }
    result.optimizerSteps.assign(1, hashOfStep(optimizerStep));
  }

private:
  const bundle::ModelSummary &summary;
  const bundle::FunctionLibrary &functions;
  int64_t batch;
  bool splitBackward, commitsByGroup;
  std::vector<Words> parameters, gradients, inputs, values, valueGradients, saved, deferred;
  std::vector<std::vector<Words>> moments;
  std::map<uint32_t, Words> loss;
  Words scalars, sums, optimizerStep;

  Words initial(const bundle::ParameterInfo &p, int kind, uint32_t moment) const {
    int64_t elements = 1;
    for (int64_t extent : p.shape())
      elements *= extent;
    if (kind == bundle::Value::MOMENTS && p.trainable()) {
      const auto &rule = summary.update_rules(int(p.update_rule()));
      if (moment < uint32_t(rule.states_size()))
        elements = elements / blockElements(rule) * rule.states(int(moment)).entries();
    }
    Words words;
    for (int64_t e = 0; e < elements; ++e)
      words.push_back(initialWord(kind, p.group(), moment, p.offset() + e));
    return words;
  }

  /// Returns the rows of a parameter's update.
  int64_t rowsOf(const bundle::ParameterInfo &parameter) const {
    const auto &rule = summary.update_rules(int(parameter.update_rule()));
    return elementsOf(parameter) / blockElements(rule);
  }

  template <typename Find>
  void call(uint32_t function, int64_t rows, Find find, uint64_t rngIdBase = 0) {
    std::vector<Words> arguments;
    std::vector<bool> overwrite;
    for (const auto &argument : functions.functions(int(function)).arguments()) {
      Words *words = find(argument);
      arguments.push_back(words ? *words : Words());
      arguments.back().resize(words && rows == 0 ? words->size()
                                                 : size_t(argumentBytes(argument, rows)) / 4);
      overwrite.push_back(false); // every accumulator starts at zero
    }
    execute(summary, functions, function, rows, 0, rngIdBase, arguments, overwrite);
    int s = 0;
    for (const auto &argument : functions.functions(int(function)).arguments()) {
      if (Words *words = find(argument); words && argument.mode() != bundle::READ)
        *words = arguments[s];
      ++s;
    }
  }

  void unit(int u, uint32_t function) {
    const auto &info = summary.units(u);
    call(
        function, batch,
        [&](const bundle::FunctionArgument &argument) -> Words * {
          int i = int(argument.index());
          switch (argument.kind()) {
          case bundle::PARAMETER:
            return &parameters[info.parameters(i)];
          case bundle::PARAMETER_GRADIENT:
            return &gradients[info.parameters(i)];
          case bundle::INPUT:
            return &inputs[info.inputs(i)];
          case bundle::BOUNDARY_IN:
            return &values[info.values_in(i)];
          case bundle::BOUNDARY_OUT:
            return &values[info.values_out(i)];
          case bundle::BOUNDARY_IN_GRADIENT:
            return &valueGradients[info.values_in(i)];
          case bundle::BOUNDARY_OUT_GRADIENT:
            return &valueGradients[info.values_out(i)];
          case bundle::SAVED:
            return &saved[u];
          case bundle::SAVED_FOR_WEIGHT_GRAD:
            return &deferred[u];
          case bundle::SCALARS:
            return &scalars;
          case bundle::LOSS:
            return &loss[info.loss_terms(i)];
          default:
            return nullptr;
          }
        },
        info.rng_id_base());
  }
};

} // namespace

Result interpret::reference(const bundle::ModelSummary &summary,
                            const bundle::FunctionLibrary &functions, const Training &how,
                            const Steps &steps) {
  Result result;
  Reference machine(summary, functions, how);
  for (size_t s = 0; s < steps.size(); ++s)
    machine.step(int(s), steps[s] == 'T', result);
  machine.finish(result);
  return result;
}
