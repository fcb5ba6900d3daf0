// "steady_state": tasks by the time they would run at in a steady state.
//
// Samples enter at the rate of the busiest device. If tasks did not wait for devices, a cell's
// forward would run when its inputs arrive, and its backward when its gradients arrive:
//
//   sample's entry ── F 0 ── link ── F 1 ── link ── F 2, B 2 ── link ── B 1 ── link ── B 0
//                     └────────────── samples in flight at stage 0: this time over the period ──┘
//
// List scheduling runs ready tasks in the order of these times. Each device admits the samples that
// are in flight in the steady state, or a multiple of them, as far as its memory allows. W fills
// idle time.

#include "../Tables.h"
#include "Ordering.h"
#include "Rules.h"

#include <algorithm>
#include <array>

using namespace zorse::step;

namespace {

class SteadyStateOrder {
public:
  SteadyStateOrder(const PlanLowering &x, const Schedule &schedule,
                   const std::vector<uint64_t> &less, Order &order)
      : x(x), schedule(schedule), order(order), admission(order.admission), less(less),
        time(x.tables.listScratch.time), instruction(x.tables.listScratch.instruction) {}

  void run() {
    waits.assign(x.chunkGroups.size(), {-1, -1});
    cycleTime = steadyCycleTime();
    findTimes();
    delayWeights();
    setAdmission();
  }

private:
  /// Returns the seconds in which the busiest device, or the busiest link, executes its part of a
  /// step.
  double steadyCycleTime() const {
    double max = 0;
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      double busy = 0;
      for (uint32_t c : x.cellsOf[d])
        for (const CellTask *task :
             {&x.cells[c].forward, &x.cells[c].backward, &x.cells[c].weights})
          busy += task->seconds;
      max = std::max(max, busy);
    }
    for (double load : x.linkLoads)
      max = std::max(max, load);
    return max;
  }

  /// Visits ops in ascending order, which is a topological order except for state; state is assumed
  /// to be available.
  void findTimes() {
    time.assign(x.ops.size(), 0);
    std::vector<double> after(x.chunks.size(),
                              0); // end of the latest task of this direction on the chunk's device
    setInstructions();
    instruction.assign(x.cells.size(), 1e300);
    std::vector<ModuloReservationTable> slots(x.plan.devices.size());
    uint32_t end = x.cellOps;
    bool backwards = false;
    for (uint32_t op = 0; op < end; ++op) {
      const uint32_t c = x.ops[op].cell;
      if (c != kNone && (op == x.cells[c].forward.begin || op == x.cells[c].backward.begin)) {
        if (!backwards && op == x.cells[c].backward.begin) {
          backwards = true; // every forward has a lower index
          std::fill(after.begin(), after.end(), 0);
        }
        const ModelChunk &chunk = x.chunks[x.chunkOf[c]];
        const ChunkGroup &chunkGroup = x.chunkGroups[chunk.chunkGroup];
        const double seconds = (backwards ? x.cells[c].backward : x.cells[c].forward).seconds;
        double &previous = after[x.chunkOf[c]], &wait = waits[chunk.chunkGroup][backwards];
        if (c == chunk.cells[0] && wait < 0)
          wait = slots[chunk.device].reserve(
              time[op], seconds, cycleTime / static_cast<double>(chunkGroup.cells.size()));
        time[op] = std::max(time[op] + wait, previous);
        previous = time[op] + seconds;
      }
      const ScheduledOp &o = x.ops[op];
      if (o.needsAdmission && o.work == Work::Transfer)
        instruction[c] = std::min(instruction[c], time[op]);
      if (o.priority >> 61 != 0) // short tasks stay first
        order.priority[op] = priorityAt(kSteadyStatePriority, time[op]);
      const double done = time[op] + o.duration;
      for (uint32_t next : x.next[op])
        if (next > op && next < end)
          time[next] = std::max(time[next], done);
    }
  }

  /// Sets the times at which samples enter: evenly over the period, or in groups of
  /// `microbatchGroupSize` consecutive cells.
  void setInstructions() {
    for (uint32_t c : x.cellsByBegin[0])
      time[x.cells[c].forward.begin] = -1;
    struct AdmittedCounts {
      size_t cells = 0;
      int64_t rows = 0, groupRows = 0;
    };
    std::vector<AdmittedCounts> entered(x.chunkGroups.size());
    for (uint32_t c : x.cellsByBegin[0]) { // in sample order
      const ModelChunk &chunk = x.chunks[x.chunkOf[c]];
      const ChunkGroup &chunkGroup = x.chunkGroups[chunk.chunkGroup];
      AdmittedCounts &before = entered[chunk.chunkGroup];
      if (schedule.microbatchGroupSize == 0 || before.cells % schedule.microbatchGroupSize == 0)
        before.groupRows = before.rows;
      time[x.cells[c].forward.begin] = cycleTime / static_cast<double>(chunkGroup.rows) *
                                       (static_cast<double>(before.groupRows) +
                                        static_cast<double>(before.rows - before.groupRows) /
                                            static_cast<double>(x.chunkGroupsOf[chunk.device]));
      before.rows += x.plan.cells[c].rows();
      ++before.cells;
    }
  }

  void delayWeights() {
    for (uint32_t c = 0; c < x.cells.size(); ++c) {
      uint32_t weights = x.cells[c].weights.begin;
      if (weights == kNone)
        continue;
      double wait = schedule.maxWeightGradDelay * cycleTime /
                    static_cast<double>(x.chunkGroups[x.chunks[x.chunkOf[c]].chunkGroup].rows) *
                    static_cast<double>(x.plan.cells[c].rows());
      order.priority[weights] = wait > 0 ? priorityAt(kSteadyStatePriority, time[weights] + wait)
                                         : priorityAt(kSteadyStateFillPriority, time[weights]);
    }
  }

  void setAdmission() {
    for (const ChunkGroup &chunkGroup : x.chunkGroups) {
      Admission::Group group;
      group.device = chunkGroup.device;
      group.cells = chunkGroup.cells;
      double longest = 0;
      int64_t maxRows = 0;
      for (uint32_t c : chunkGroup.cells) {
        const CellTask &backward = x.cells[c].backward;
        longest = std::max(longest, time[backward.begin] + backward.seconds -
                                        std::min(instruction[c], time[x.cells[c].forward.begin]));
        maxRows = std::max(maxRows, x.plan.cells[c].rows());
      }
      const double perRow = cycleTime / static_cast<double>(chunkGroup.rows);
      group.maxRows = schedule.inFlightFactor * longest / std::max(perRow, 1e-30) +
                      static_cast<double>(maxRows) - 1e-9;
      admission.groups.push_back(std::move(group));
    }
    if (std::none_of(x.plan.devices.begin(), x.plan.devices.end(),
                     [](const PlanDevice &d) { return d.memory > 0; }))
      return;
    size_t devices = x.plan.devices.size();
    std::vector<uint64_t> fixed = fixedBytes(x);
    admission.residentBytes.resize(x.cells.size());
    admission.deferred.resize(x.cells.size());
    admission.budget.assign(devices, UINT64_MAX);
    admission.reservedForWeightGrad.assign(devices, 0);
    for (uint32_t d = 0; d < devices; ++d) {
      uint64_t passing = 0;
      for (uint32_t c : x.cellsOf[d]) {
        const CellTemplate &shape = *x.shapeOf[c];
        admission.residentBytes[c] = shape.residentBytes - shape.deferred;
        admission.deferred[c] = shape.deferred;
        admission.reservedForWeightGrad[d] =
            std::max(admission.reservedForWeightGrad[d], shape.deferred);
        passing = std::max(passing, shape.transientBytes);
      }
      uint64_t memory = x.plan.devices[d].memory,
               others = fixed[d] + passing + (less.empty() ? 0 : less[d]);
      if (memory)
        admission.budget[d] = memory > others ? memory - others : 0;
      if (memory && x.options.fragmentationDivisor)
        admission.budget[d] -=
            std::min(admission.budget[d],
                     (admission.budget[d] + passing) / (x.options.fragmentationDivisor + 1));
    }
  }

  const PlanLowering &x;
  const Schedule &schedule;
  Order &order;
  Admission &admission;
  const std::vector<uint64_t> &less;
  std::vector<std::array<double, 2>> waits; ///< per band: seconds that its forwards and backwards
                                            ///< wait for other tasks; < 0: not computed yet
  double cycleTime = 0;
  std::vector<double> &time;        ///< per op of a cell
  std::vector<double> &instruction; ///< per cell: start of its first receive
};

class SteadyStateSchedule final : public ScheduleRule {
public:
  SteadyStateSchedule()
      : ScheduleRule(ScheduleKind::SteadyState, "steady_state",
                     {{"in_flight_factor", &Schedule::inFlightFactor, /*positive=*/true},
                      {"max_weight_grad_delay", &Schedule::maxWeightGradDelay},
                      {"microbatch_group_size", &Schedule::microbatchGroupSize}}) {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &less,
                        Order &result) const override {
    orderByTime(x, x.plan.schedule, less, result);
    return DeadlockFreedom::Guaranteed;
  }

  bool canReduceInFlight() const override { return true; }
};

} // namespace

void zorse::step::orderByTime(const PlanLowering &x, const Schedule &schedule,
                              const std::vector<uint64_t> &less, Order &order) {
  SteadyStateOrder(x, schedule, less, order).run();
}

std::unique_ptr<ScheduleRule> zorse::step::steadyStateRule() {
  return std::make_unique<SteadyStateSchedule>();
}
