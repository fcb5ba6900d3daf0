// schedule_comparison: step times of the schedules on stages of unequal times over slow links, as
// multiples of a lower bound for every order:
//
//   T >= max over stages s of  m (F_s + B_s + W_s) + sum over i < s of (F_i + B_i + 2 c_i)
//
// c_i is the time of a transfer, latency included.
//
// If the backward is split, W may follow after all others. The bound then has only the way in, the
// sum of (F_i + c_i).
//
// Then compares the schedules with the optimal order of small instances, found by branch and bound
// (ExactOrder.h).
#include "../../lib/Planning/Search/SplitMix64.h"
#include "ChainModel.h"

#include "ExactOrder.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

struct Random : planning::SplitMix64 {
  using SplitMix64::SplitMix64;
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11) / 9007199254740992.0);
  }
};

struct Case {
  std::vector<ChainUnit> units;
  std::vector<double> speeds;
  double latency = 0, bandwidth = 0;
  int stages = 0, microBatches = 0;
};

Case draw(uint64_t seed) {
  Random random{seed * 7919};
  Case c;
  c.stages = 3 + static_cast<int>(random.next() % 6);
  c.microBatches = c.stages * (2 + static_cast<int>(random.next() % 4));
  double spread = random.uniform(0, 0.6);
  for (int s = 0; s < c.stages; ++s) {
    ChainUnit unit;
    double size = random.uniform(1 - spread, 1 + spread);
    unit.forward = size;
    unit.inputs = size * random.uniform(0.9, 1.3);
    unit.weights = size * random.uniform(0.7, 1.0);
    unit.boundary = 64;
    unit.saved = 1024;
    c.units.push_back(unit);
    c.speeds.push_back(1);
  }
  c.latency = random.uniform(0, 1.5);
  c.bandwidth = 64 / random.uniform(0.05, 0.7); // a boundary takes 0.05 to 0.7 s
  return c;
}

struct Times {
  double bound = 0, splitBound = 0;
};

/// The best time of every schedule over the in-flight factors.
double bestTimed(const bundle::ModelSummary &summary, Plan plan, const Costs &costs, bool split) {
  double best = 1e300;
  for (double factor : {1.0, 1.25, 1.5, 2.0, 3.0, 8.0}) {
    plan.schedule = {};
    plan.schedule.kind = ScheduleKind::SteadyState;
    plan.schedule.splitBackward = split;
    plan.schedule.inFlightFactor = factor;
    TimeOptions options;
    options.costs = &costs;
    if (auto times = timeStep(summary, plan, options); !times.failed())
      best = std::min(best, times->stepTime);
  }
  return best;
}

/// Compares timed orders with optimal ones.
void certify(int cases) {
  for (bool split : {false, true}) {
    int known = 0, equal = 0;
    double worst = 0, sum = 0;
    for (int i = 1; i <= cases; ++i) {
      Random random{static_cast<uint64_t>(i) * 104729};
      int stages = 2 + static_cast<int>(random.next() % 2);
      int64_t batch = 2 + static_cast<int64_t>(random.next() % (split ? 2 : 3));
      std::vector<ChainUnit> units;
      for (int s = 0; s < stages; ++s)
        units.push_back({random.uniform(0.5, 1.5), random.uniform(0.5, 1.5),
                         random.uniform(0.5, 1.5), 1024, 64});
      double latency = random.uniform(0, 1);
      bundle::ModelSummary summary = chainSummary(units);
      ChainCosts costs(units, std::vector<double>(units.size(), 1),
                       oneDevicePerNode(units.size(), 0, latency));
      Plan plan = chainPlan(stages, batch);
      plan.schedule.splitBackward = split;
      std::optional<double> min = planning::bestOrder(summary, plan, costs, 300000);
      if (!min)
        continue;
      double gap = bestTimed(summary, plan, costs, split) / *min - 1;
      ++known;
      equal += gap < 1e-6;
      worst = std::max(worst, gap);
      sum += gap;
    }
    printf("%s against the best order, %d of %d instances solved: %.0f %% at 0 %%, mean gap %.2f "
           "%%, worst %.2f %%\n",
           split ? "timed with W as filler" : "timed", known, cases,
           known ? 100.0 * equal / known : 0, known ? 100 * sum / known : 0, 100 * worst);
  }
}

Times bounds(const Case &c) {
  Times t;
  for (bool split : {false, true}) {
    double path = 0, max = 0;
    for (int s = 0; s < c.stages; ++s) {
      const ChainUnit &u = c.units[static_cast<size_t>(s)];
      max = std::max(max, c.microBatches * (u.forward + u.inputs + u.weights) + path);
      path += u.forward + (split ? 1 : 2) * (c.latency + 64 / c.bandwidth) +
              (split ? 0 : u.inputs + u.weights);
    }
    (split ? t.splitBound : t.bound) = max;
  }
  return t;
}

/// The number of forwards before the first backward that hides the link latency (HARP): one-way
/// trips to the end and back, divided by the stage's period.
std::vector<uint32_t> launchCounts(const Case &c) {
  double slowest = 0;
  for (const ChainUnit &u : c.units)
    slowest = std::max(slowest, u.forward + u.inputs + u.weights);
  std::vector<uint32_t> counts(c.units.size());
  double trip = 0;
  for (size_t s = c.units.size(); s-- > 0;) {
    trip += c.units[s].forward + c.units[s].inputs + c.units[s].weights;
    counts[s] = static_cast<uint32_t>(std::ceil(trip / slowest - 1e-9));
    trip += 2 * (c.latency + 64 / c.bandwidth);
  }
  return counts;
}

} // namespace

int main(int argc, char **argv) {
  int cases = 12;
  if (argc == 2 && !strncmp(argv[1], "--cases=", 8))
    cases = atoi(argv[1] + 8);
  else if (argc > 1) {
    fprintf(stderr, "schedule_comparison [--cases=N]\n");
    return 2;
  }
  struct Column {
    const char *name;
    Schedule schedule;
    double sum = 0, worst = 0;
    double peak = 0;
  };
  std::vector<Column> columns;
  auto add = [&](const char *name, ScheduleKind kind, bool split, double inFlight) {
    Column column{name, {}};
    column.schedule.kind = kind;
    column.schedule.splitBackward = split;
    column.schedule.inFlightFactor = inFlight;
    columns.push_back(column);
  };
  add("gpipe", ScheduleKind::GPipe, false, 1);
  add("1f1b", ScheduleKind::OneForwardOneBackward, false, 1);
  add("harp", ScheduleKind::OneForwardOneBackward, false, 1);
  add("timed", ScheduleKind::SteadyState, false, 1);
  add("timed 1.5", ScheduleKind::SteadyState, false, 1.5);
  add("timed 2", ScheduleKind::SteadyState, false, 2);
  add("timed*", ScheduleKind::SteadyState, false, 0);
  add("gpipe+w", ScheduleKind::GPipe, true, 1);
  add("1f1b+w", ScheduleKind::OneForwardOneBackward, true, 1);
  add("harp+w", ScheduleKind::OneForwardOneBackward, true, 1);
  add("timed+w", ScheduleKind::SteadyState, true, 1);
  add("timed+w 1.5", ScheduleKind::SteadyState, true, 1.5);
  add("timed+w*", ScheduleKind::SteadyState, true, 0);
  printf("%-34s", "stages x micro-batches, link/F");
  for (const Column &column : columns)
    printf(" %11s", column.name);
  printf("\n");
  for (int i = 1; i <= cases; ++i) {
    Case c = draw(static_cast<uint64_t>(i));
    bundle::ModelSummary summary = chainSummary(c.units);
    ChainCosts costs(c.units, c.speeds, oneDevicePerNode(c.speeds.size(), c.bandwidth, c.latency));
    Plan plan = chainPlan(c.stages, c.microBatches);
    Times min = bounds(c);
    printf("%2d: %d x %2d, link %.2f + %.2f        ", i, c.stages, c.microBatches, c.latency,
           64 / c.bandwidth);
    for (Column &column : columns) {
      std::vector<double> factors{column.schedule.inFlightFactor};
      if (column.schedule.inFlightFactor == 0)
        factors = {1, 1.25, 1.5, 2, 3, 5, 10};
      double best = 1e300;
      for (double factor : factors) {
        plan.schedule = column.schedule;
        plan.schedule.inFlightFactor = factor;
        if (std::string(column.name).find("harp") == 0)
          plan.schedule.warmupForwards = launchCounts(c);
        LoweringOptions options;
        options.costs = &costs;
        auto graph = lowerPlan(summary, plan, options);
        if (graph.failed()) {
          fprintf(stderr, "%s\n", graph.message().c_str());
          return 1;
        }
        best = std::min(best, graph->stepTime /
                                  (column.schedule.splitBackward ? min.splitBound : min.bound));
      }
      column.sum += best;
      column.worst = std::max(column.worst, best);
      printf(" %11.3f", best);
    }
    printf("\n");
  }
  printf("%-34s", "mean");
  for (const Column &column : columns)
    printf(" %11.3f", column.sum / cases);
  printf("\n%-34s", "worst");
  for (const Column &column : columns)
    printf(" %11.3f", column.worst);
  printf("\n");
  certify(3 * cases);
  return 0;
}
