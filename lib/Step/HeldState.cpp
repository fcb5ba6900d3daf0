// Which device keeps which elements of the state between steps.

#include "PlanLowering.h"
#include "Tables.h"

using namespace zorse;
using namespace zorse::step;

std::vector<std::vector<Shard>> zorse::step::findHeldState(const bundle::ModelSummary &summary,
                                                           const Plan &plan) {
  const std::unique_ptr<Costs> costs = planCosts(summary, plan);
  StepOptions options;
  options.costs = costs.get();
  const std::shared_ptr<LoweringTables> tables = makeLoweringTables(summary, nullptr, costs.get());
  PlanLowering x(summary, plan, options, *tables);
  findOwners(x);
  std::vector<std::vector<Shard>> held(static_cast<size_t>(summary.groups_size()));
  for (uint32_t d = 0; d < x.groupStates.size(); ++d)
    for (const GroupState &state : x.groupStates[d]) {
      const bool trainable = summary.groups(static_cast<int>(state.group)).trainable();
      for (const Compact::Run &run : (trainable ? state.owned : state.read).runs())
        held[state.group].push_back({d, run.begin, run.end});
    }
  return held;
}
