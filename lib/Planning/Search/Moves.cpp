// Local moves: small changes of a strategy's device groups. Units and samples are then partitioned
// again.

#include "Candidates.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::planning;

namespace {

bool moveSchedule(SearchContext &context, SplitMix64 &random, step::Schedule &schedule) {
  auto choices = scheduleChoices(context, context.effort().everySchedule);
  if (choices.empty())
    return false;
  step::Schedule next = choices[random.below(choices.size())];
  if (next.kind == step::ScheduleKind::SteadyState && random.chance(60)) { // between the fixed
                                                                           // choices
    next = schedule.kind == step::ScheduleKind::SteadyState ? schedule : next;
    next.inFlightFactor *= random.chance(50) ? 1.12 : 1 / 1.12;
    next.inFlightFactor = std::clamp(next.inFlightFactor, 0.7, 4.0);
  }
  if (next == schedule)
    return false;
  schedule = next;
  return true;
}

/// Moves units or parts from one stage to another. Stages in between shift their ranges.
bool moveUnits(const StageModel &model, const Candidate &from, SplitMix64 &random,
               Pipeline &pipeline) {
  const size_t stages = pipeline.stages.size();
  if (stages < 2)
    return false;
  size_t a = random.below(stages - 1),
         b = random.chance(60) ? a + 1 : a + 1 + random.below(stages - 1 - a);
  int32_t by =
      (random.chance(50) ? 1 : -1) *
      (1 + static_cast<int32_t>(random.below(static_cast<size_t>(model.boundaryVariants()))));
  if (from.strategy.boundaryDenominator > 1 && !from.busy.empty() && random.chance(60) &&
      !fromBusiest(model, pipeline, from.busy, random, a, b, by))
    return false;
  for (size_t s = a; s < b; ++s) {
    pipeline.stages[s].unitEnd += by;
    pipeline.stages[s + 1].unitBegin += by;
  }
  if (pipeline.stages[a].unitEnd <= pipeline.stages[a].unitBegin ||
      pipeline.stages[b].unitEnd <= pipeline.stages[b].unitBegin)
    return false;
  for (size_t s = a; s <= b; ++s)
    shareAgain(model, pipeline.stages[s], pipeline.samples);
  return true;
}

bool moveRows(const StageModel &model, SplitMix64 &random, Pipeline &pipeline) {
  Stage &stage = pipeline.stages[random.below(pipeline.stages.size())];
  size_t r = rowsOf(model, stage);
  if (random.chance(50) ? r == 0 : r + 1 == model.rows().size())
    return false;
  r = random.chance(50) ? (r ? r - 1 : 1) : (r + 1 < model.rows().size() ? r + 1 : r - 1);
  if (r >= model.rows().size())
    return false;
  for (step::StageDevice &member : stage.members)
    member.microBatchSize = model.rows()[r];
  shareAgain(model, stage, pipeline.samples);
  return true;
}

bool moveState(SplitMix64 &random, ShardSizing &state) {
  ShardSizing rule = static_cast<ShardSizing>(random.below(3));
  if (rule == state)
    return false;
  state = rule;
  return true;
}

/// Moves samples from one member of a stage to another.
bool moveSamples(SplitMix64 &random, Pipeline &pipeline) {
  Stage &stage = pipeline.stages[random.below(pipeline.stages.size())];
  if (stage.members.size() < 2)
    return false;
  step::StageDevice &a = stage.members[random.below(stage.members.size())],
                    &b = stage.members[random.below(stage.members.size())];
  int64_t by = std::min(a.microBatchSize, a.samples);
  if (&a == &b || (a.samples <= by))
    return false;
  a.samples -= by;
  b.samples += by;
  return true;
}

/// Moves samples from pipeline `p` to another.
bool moveBetweenPipelines(const StageModel &model, SplitMix64 &random, size_t p,
                          Strategy &strategy) {
  if (strategy.pipelines.size() < 2)
    return false;
  Pipeline &pipeline = strategy.pipelines[p];
  size_t q = (p + 1 + random.below(strategy.pipelines.size() - 1)) % strategy.pipelines.size();
  int64_t by = std::min<int64_t>(pipeline.samples - 1,
                                 1 + static_cast<int64_t>(random.below(static_cast<size_t>(
                                         std::max<int64_t>(1, pipeline.samples / 16)))));
  if (by < 1)
    return false;
  return giveSamples(model, pipeline, -by) && giveSamples(model, strategy.pipelines[q], by);
}

bool moveOne(SearchContext &context, StagePartitioner &partitioner, const Candidate &from,
             SplitMix64 &random, size_t p, Candidate &to) {
  const StageModel &model = context.modelOf(from.strategy);
  to = Candidate();
  to.strategy = from.strategy;
  to.inFlight = from.inFlight;
  Strategy &strategy = to.strategy;
  Pipeline &pipeline = strategy.pipelines[p];
  const size_t stages = pipeline.stages.size();
  std::vector<DeviceSet> groups; // for the moves that partition again
  switch (to.move = context.moves.pick(random, strategy.boundaryDenominator > 1)) {
  case Move::Units:
    return moveUnits(model, from, random, pipeline);
  case Move::Rows:
    return moveRows(model, random, pipeline);
  case Move::Schedule:
    return moveSchedule(context, random, strategy.schedule) &&
           (strategy.boundaryDenominator == 1 ||
            strategy.schedule.kind == step::ScheduleKind::SteadyState);
  case Move::State:
    return moveState(random, strategy.state);
  case Move::Level:
    return stages > 1 && keepTimes(model, groupsOf(pipeline),
                                   0.05 * static_cast<double>(1 + random.below(8)), pipeline);
  case Move::Samples:
    return moveSamples(random, pipeline);
  case Move::Pipelines:
    return moveBetweenPipelines(model, random, p, strategy);
  case Move::Groups:
    groups = groupsOf(pipeline);
    if (!moveGroups(model, random, unusedDevices(context, strategy), groups))
      return false;
    if (strategy.boundaryDenominator > 1 && groups.size() == stages && random.chance(50))
      return keepTimes(model, groups, 0, pipeline);
    break;
  case Move::InFlight: // reserve memory for more or fewer samples in flight
    groups = groupsOf(pipeline);
    to.inFlight = std::clamp(to.inFlight * (random.chance(50) ? 1.3 : 0.75), 0.5, 8.0);
    break;
  }
  return cutAgain(partitioner, model, std::move(groups), p, to);
}

} // namespace

bool zorse::planning::mutate(SearchContext &context, size_t worker, const Candidate &from,
                             uint64_t seed, Candidate &to) {
  if (context.fractionalModel && from.strategy.boundaryDenominator == 1 &&
      SplitMix64(~seed).chance(15))
    return mutateAlike(context, worker, withFractionalBoundaries(context, from), seed, to);
  return mutateAlike(context, worker, from, seed, to);
}

bool zorse::planning::mutateAlike(SearchContext &context, size_t worker, const Candidate &from,
                                  uint64_t seed, Candidate &to) {
  SplitMix64 random(seed);
  const StageModel &model = context.modelOf(from.strategy);
  const size_t count = from.strategy.pipelines.size(), p = random.below(count);
  const bool all = count > 1 && random.chance(80) && areAlike(model, from.strategy);
  if (!moveOne(context, context.partitioner(worker, from.strategy.boundaryDenominator), from,
               random, p, to))
    return false;
  // Otherwise the move was between pipelines.
  if (all && to.strategy.pipelines[p].samples == from.strategy.pipelines[p].samples &&
      !mirror(from.strategy, to.strategy, p))
    return false;
  if (to.strategy.boundaryDenominator > 1)
    setSamplesPerVariant(to.strategy);
  return true;
}
