// Stages of about equal time: boundaries from the stages' times, in whole units or parts.

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Returns the seconds of a sample on all of the devices together.
double secondsOf(const StageModel &model, const std::vector<uint32_t> &devices, size_t rows,
                 int32_t begin, int32_t end) {
  double rate = 0;
  for (uint32_t d : devices)
    rate += static_cast<double>(model.rows()[rows]) /
            model.cell(model.deviceTypeOf(d), rows, begin, end);
  return 1 / rate;
}

} // namespace

void zorse::planning::setSamplesPerVariant(Strategy &strategy) {
  strategy.samplesPerVariant = 1; // a multiple of all row counts, so that cells end at turns
  for (const Pipeline &pipeline : strategy.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const step::StageDevice &member : stage.members)
        strategy.samplesPerVariant = std::max(strategy.samplesPerVariant, member.microBatchSize);
}

Candidate zorse::planning::withFractionalBoundaries(const SearchContext &context,
                                                    const Candidate &from) {
  Candidate to = from;
  if (to.strategy.boundaryDenominator > 1)
    return to;
  if (to.strategy.schedule.kind != step::ScheduleKind::SteadyState) { // other schedules support one
                                                                      // range of units per device
    const bool split = to.strategy.schedule.splitBackward;
    to.strategy.schedule = {};
    to.strategy.schedule.kind = step::ScheduleKind::SteadyState;
    to.strategy.schedule.splitBackward = split;
    to.strategy.schedule.inFlightFactor = 1.5;
  }
  to.strategy.boundaryDenominator = context.fractionalModel->boundaryVariants();
  for (Pipeline &pipeline : to.strategy.pipelines)
    for (Stage &stage : pipeline.stages) {
      stage.unitBegin *= to.strategy.boundaryDenominator;
      stage.unitEnd *= to.strategy.boundaryDenominator;
    }
  setSamplesPerVariant(to.strategy);
  return to;
}

bool zorse::planning::keepTimes(const StageModel &model, const std::vector<DeviceSet> &groups,
                                double level, Pipeline &pipeline) {
  const int32_t units = model.units();
  std::vector<double> before;
  std::vector<size_t> rows;
  for (const Stage &stage : pipeline.stages) {
    rows.push_back(rowsOf(model, stage));
    before.push_back(
        secondsOf(model, devicesOf(stage), rows.back(), stage.unitBegin, stage.unitEnd));
  }
  const double mean = std::accumulate(before.begin(), before.end(), 0.0) /
                      static_cast<double>(before.size());
  for (double &seconds : before)
    seconds += level * (mean - seconds);
  double low = 0, high = 16; // factor by which times change
  std::vector<int32_t> ends(groups.size());
  for (int i = 0; i < 40; ++i) {
    const double factor = (low + high) / 2;
    int32_t begin = 0;
    double owed = 0; // rounding error, carried to the next stages
    for (size_t s = 0; s < groups.size(); ++s) {
      const double target = factor * before[s] + owed;
      int32_t end = begin + 1;
      double now = begin < units ? secondsOf(model, groups[s].devices, rows[s], begin, end) : 0;
      while (end < units) {
        double next = secondsOf(model, groups[s].devices, rows[s], begin, end + 1);
        if (next - target > target - now)
          break;
        now = next;
        ++end;
      }
      ends[s] = end;
      owed = std::clamp(target - now, -before[s], before[s]);
      begin = end;
    }
    (begin >= units ? high : low) = factor;
    if (begin == units && i > 12)
      break;
  }
  ends.back() = units;
  int32_t begin = 0;
  for (size_t s = 0; s < groups.size(); ++s) {
    if (ends[s] <= begin || ends[s] > units)
      return false;
    pipeline.stages[s] =
        makeStage(model, groups[s].devices, begin, ends[s], pipeline.samples, rows[s]);
    begin = ends[s];
  }
  return true;
}

bool zorse::planning::fromBusiest(const StageModel &model, const Pipeline &pipeline,
                                  const std::vector<float> &busy, SplitMix64 &random, size_t &a,
                                  size_t &b, int32_t &by) {
  auto busyOf = [&](size_t s) {
    float max = 0;
    for (const step::StageDevice &member : pipeline.stages[s].members)
      max = std::max(max, busy[member.device]);
    return max;
  };
  size_t max = 0, min = 0;
  for (size_t s = 1; s < pipeline.stages.size(); ++s) {
    if (busyOf(s) > busyOf(max))
      max = s;
    if (busyOf(s) < busyOf(min))
      min = s;
  }
  size_t other = random.chance(50) ? min : random.below(pipeline.stages.size());
  if (other == max)
    return false;
  const Stage &giver = pipeline.stages[max], &taker = pipeline.stages[other];
  float eachGiver = busyOf(max) / static_cast<float>(giver.unitEnd - giver.unitBegin),
        eachTaker = busyOf(other) / static_cast<float>(taker.unitEnd - taker.unitBegin);
  auto equal =
      static_cast<int32_t>((busyOf(max) - busyOf(other)) / std::max(eachGiver + eachTaker, 1e-30f));
  by = 1 + static_cast<int32_t>(random.below(
               static_cast<size_t>(std::clamp(equal, 1, 4 * model.boundaryVariants()))));
  a = std::min(max, other);
  b = std::max(max, other);
  if (a == max) // to a later stage
    by = -by;
  return true;
}
