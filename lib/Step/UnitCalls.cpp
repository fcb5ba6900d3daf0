// The arguments of unit functions and their operands, computed once per model for planning and for
// programs.

#include "CellTemplates.h"
#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

/// Returns the first user of a value at or after `unit`, which identifies the contributions in a
/// gradient.
uint32_t firstUser(const bundle::ModelSummary &summary, uint32_t v, uint32_t unit) {
  const auto &users = summary.values(static_cast<int>(v)).users();
  auto it = std::lower_bound(users.begin(), users.end(), unit);
  return it == users.end() ? unit : *it;
}

class UnitCallBuilder {
public:
  /// \param segment  number of exchanges of the function before the call
  UnitCallBuilder(const LoweringTables &tables, int32_t u, UnitTask task, uint32_t segment)
      : tables(tables), summary(tables.summary), unit(summary.units(u)),
        u(static_cast<uint32_t>(u)), task(task), function(unitFunction(summary, u, task)),
        forward(task == UnitTask::Forward || task == UnitTask::Recompute) {
    call.function = function.function();
    call.segment = segment;
  }

  UnitCall run() {
    for (int i = 0; i < unit.parameters_size(); ++i)
      add(bundle::PARAMETER, i, bundle::READ, Operand::Parameter, unit.parameters(i));
    for (int i = 0; i < unit.parameters_size() && !forward && task != UnitTask::InputGradients; ++i)
      if (summary.parameters(static_cast<int>(unit.parameters(i))).trainable())
        add(bundle::PARAMETER_GRADIENT, i, bundle::ACCUMULATE, Operand::ParameterGradient,
            unit.parameters(i));
    for (int i = 0; i < unit.inputs_size(); ++i)
      add(bundle::INPUT, i, bundle::READ, Operand::Input, unit.inputs(i));
    for (int i = 0; i < unit.values_in_size(); ++i)
      add(bundle::BOUNDARY_IN, i, bundle::READ, Operand::Value, unit.values_in(i));
    for (int i = 0; i < unit.values_out_size() && task == UnitTask::Forward; ++i)
      add(bundle::BOUNDARY_OUT, i, bundle::WRITE, Operand::Value, unit.values_out(i));
    if (!forward)
      addGradients();
    add(bundle::SAVED, 0, forward ? bundle::WRITE : bundle::READ, Operand::Saved, 0);
    add(bundle::WORKSPACE, 0, bundle::WRITE, Operand::Workspace, 0);
    add(bundle::SCALARS, 0, bundle::READ, Operand::Scalars, 0);
    if (task == UnitTask::InputGradients || task == UnitTask::WeightGradients)
      add(bundle::SAVED_FOR_WEIGHT_GRAD, 0,
          task == UnitTask::InputGradients ? bundle::WRITE : bundle::READ, Operand::Deferred, 0);
    for (int k = 0; k < unit.loss_terms_size() && task == UnitTask::Forward; ++k)
      add(bundle::LOSS, k, bundle::WRITE, Operand::Loss, unit.loss_terms(k));
    addExchanges();
    return std::move(call);
  }

private:
  void add(bundle::ArgumentKind argument, int index, bundle::AccessMode mode, Operand of,
           uint32_t id, uint32_t cut = 0) {
    if (tables.functionHas(call.function, argument, static_cast<uint32_t>(index)) &&
        tables.segmentHas(call.function, call.segment, argument, static_cast<uint32_t>(index)))
      call.arguments.push_back({argument, static_cast<uint32_t>(index), mode, of, id, cut});
  }

  /// Launches before an exchange write the device's part, later ones read the result.
  void addExchanges() {
    for (uint32_t k = 0; k < static_cast<uint32_t>(function.exchanges_size()); ++k) {
      const uint32_t number = function.exchanges(static_cast<int>(k)).number();
      const bool done = k < call.segment;
      add(bundle::EXCHANGE, static_cast<int>(number), done ? bundle::READ : bundle::WRITE,
          Operand::Exchange, number, done);
    }
  }

  void addGradients() {
    auto hasGradient = [&](uint32_t v) {
      return summary.values(static_cast<int>(v)).needs_gradient();
    };
    for (int i = 0; i < unit.values_in_size() && task != UnitTask::WeightGradients; ++i) {
      const uint32_t v = unit.values_in(i);
      // Half precision: complete, since only one unit reads the value.
      const bool adds = !zorse::isHalf(summary.values(static_cast<int>(v)).type());
      if (hasGradient(v))
        add(bundle::BOUNDARY_IN_GRADIENT, i, adds ? bundle::ACCUMULATE : bundle::WRITE,
            Operand::Gradient, v, u);
    }
    for (int i = 0; i < unit.values_out_size(); ++i)
      if (const uint32_t v = unit.values_out(i); hasGradient(v))
        add(bundle::BOUNDARY_OUT_GRADIENT, i, bundle::READ, Operand::Gradient, v,
            firstUser(summary, v, u + 1));
  }

  const LoweringTables &tables;
  const bundle::ModelSummary &summary;
  const bundle::UnitInfo &unit;
  const uint32_t u;
  const UnitTask task;
  const bundle::UnitFunction &function;
  const bool forward;
  UnitCall call;
};

} // namespace

UnitCalls::UnitCalls(const LoweringTables &tables) {
  calls.reserve(static_cast<size_t>(tables.summary.units_size()) * kTasks);
  for (int32_t u = 0; u < tables.summary.units_size(); ++u)
    for (UnitTask task : {UnitTask::Forward, UnitTask::Backward, UnitTask::InputGradients,
                          UnitTask::WeightGradients, UnitTask::Recompute}) {
      calls.emplace_back();
      const auto segments =
          static_cast<uint32_t>(unitFunction(tables.summary, u, task).exchanges_size()) + 1;
      for (uint32_t segment = 0; segment < segments; ++segment)
        calls.back().push_back(UnitCallBuilder(tables, u, task, segment).run());
    }
}
