// "gpipe": on every device all forwards before the first backward (Huang et al., 2019).
//
//   device 0   0 1 2 3 . . a b c d        0 1 2 3: forwards of micro-batches
//   device 1   . 0 1 2 3 a b c d .        a b c d: their backwards

#include "Ordering.h"
#include "Rules.h"

using namespace zorse::step;

namespace {

class GPipe final : public ScheduleRule {
public:
  GPipe() : ScheduleRule(ScheduleKind::GPipe, "gpipe") {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &,
                        Order &result) const override {
    fillWithWeights(x, result);
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      if (x.cellsOf[d].size() < 2)
        continue;
      uint32_t barrier = result.addBarrier();
      for (uint32_t c : x.cellsOf[d]) {
        result.addEdge(x.cells[c].forward.end, barrier);
        result.addEdge(barrier, x.cells[c].backward.begin);
      }
    }
    return DeadlockFreedom::MustCheck;
  }

  std::string memoryHint() const override { return "schedule \"1f1b\""; }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::gpipeRule() { return std::make_unique<GPipe>(); }
