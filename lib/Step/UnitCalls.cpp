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
  using Segment = bundle::UnitFunction::Segment;

  /// \param segment  segment of the function; null: it has no segments
  UnitCallBuilder(const LoweringTables &tables, int32_t u, UnitTask task,
                  const Segment *segment = nullptr)
      : tables(tables), summary(tables.summary), unit(summary.units(u)),
        u(static_cast<uint32_t>(u)), task(task), segment(segment),
        forward(task == UnitTask::Forward || task == UnitTask::Recompute) {
    // Functions of other devices have the same arguments.
    call.function = segment ? segment->functions(0) : unitFunction(summary, u, task).function();
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
    for (int i = 0; i < unit.values_out_size() && (task == UnitTask::Forward || segment); ++i)
      add(bundle::BOUNDARY_OUT, i, arrives(i) ? bundle::READ : bundle::WRITE, Operand::Value,
          unit.values_out(i));
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
    return std::move(call);
  }

private:
  bool arrives(int out) const {
    return segment && segment->before() != Segment::NOTHING &&
           segment->value() == static_cast<uint32_t>(out);
  }

  void add(bundle::ArgumentKind argument, int index, bundle::AccessMode mode, Operand of,
           uint32_t id, uint32_t cut = 0) {
    if (tables.functionHas(call.function, argument, static_cast<uint32_t>(index)))
      call.arguments.push_back({argument, static_cast<uint32_t>(index), mode, of, id, cut});
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
  const Segment *const segment;
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
      const auto &segments = unitFunction(tables.summary, u, task).segments();
      for (const auto &segment : segments)
        calls.back().push_back(UnitCallBuilder(tables, u, task, &segment).run());
      if (segments.empty())
        calls.back().push_back(UnitCallBuilder(tables, u, task).run());
    }
}
