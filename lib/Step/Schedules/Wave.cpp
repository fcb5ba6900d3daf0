// "wave": every device holds several ranges of units, and micro-batches pass along the devices and
// back (the V of Qi et al., 2024; the waves of Hanayo, Liu et al., 2023). At a turn, a device keeps
// the micro-batch for its next range. The last range ends on the device of the first, so gradients
// return early and all devices hold the same amount.
//
//   units 0-2 on a, 2-4 on b, 4-6 on b, 6-8 on a:
//     a   0 1 . 0'a'1'b'2 a 3 b
//     b   . 0 0'1 1'a'. b'a 2 b
//
//   0 1 2 3: forwards of the first range, 0' of the second; a b: backwards
//
// Micro-batches enter in groups, one micro-batch per stage of devices. Tasks run in the order of
// their steady-state times, because no fixed pattern suits ranges and devices of unequal speed.

#include "LoopedSchedule.h"

#include <cassert>

using namespace zorse::step;

namespace {

class WaveSchedule final : public LoopedSchedule {
public:
  WaveSchedule() : LoopedSchedule(ScheduleKind::Wave, "wave", LoopStyle::V) {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &less,
                        Order &result) const override {
    const zorse::Result<LoopedTiling> tiling = findLoopedTiling(x.plan, style);
    assert(!laps.failed() && "the plan has been checked");
    constexpr double kUsual = 1.5; // factor on the samples in flight in the steady state: ranges
                                   // wait for each other longer than their ideal times predict
    Schedule schedule = x.plan.schedule;
    schedule.inFlightFactor *= kUsual;
    schedule.microbatchGroupSize = static_cast<uint32_t>(tiling->stages);
    orderByTime(x, schedule, less, result);
    return DeadlockFreedom::Guaranteed;
  }

  bool canReduceInFlight() const override { return true; }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::waveRule() { return std::make_unique<WaveSchedule>(); }
