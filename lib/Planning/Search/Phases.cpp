// Plans with parameters gathered by phase: before the forwards of a chunk and again before its
// backwards, with two chunks on a device at the same time.
//
// The candidates vary:
//
// - stages: the devices in N groups of about equal speed, from one group for all to one for each
//   device
// - loops: chunks of each group, around the ring; at most the number of units
// - memory optimizations: activations kept, offloaded or recomputed; state on devices, on hosts, or
//   updated there
// - rows: micro-batch sizes, for the best of these; then descents
//
// The schedule is ministages. In other schedules the phases of a chunk coincide, and nothing is
// saved.

#include "Candidates.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr StateOffload kOffloads[] = {StateOffload::None, StateOffload::AllStates,
                                      StateOffload::CpuOptimizer};
constexpr step::Activations kActivations[] = {step::Activations::Keep, step::Activations::Offload,
                                              step::Activations::Recompute};

/// Returns the powers of two up to `max`, and `max`.
std::set<size_t> steps(size_t max) {
  std::set<size_t> list;
  for (size_t n = 1; n < max; n *= 2)
    list.insert(n);
  if (max > 0)
    list.insert(max);
  return list;
}

} // namespace

std::optional<SearchResult> zorse::planning::searchReshardAfterForward(const Problem &problem,
                                                                       const SearchOptions &options,
                                                                       bool briefly) {
  if (options.pipelines > 1)
    return std::nullopt; // these plans have one pipeline
  Problem phased = problem;
  phased.memoryOptimizations = {
      {step::Activations::Keep, StateOffload::AllStates}, {}, /*reshardAfterForward=*/true};
  SearchContext context(phased, options);
  const SearchEffort effort = context.effort();
  const std::vector<step::Schedule> schedules = scheduleChoices(context, false);
  if (schedules.empty())
    return std::nullopt; // the user requires another schedule
  const size_t units = static_cast<size_t>(context.model.units()),
               rowChoices = context.model.rows().size();
  std::vector<Candidate> grid, pool, varied;
  for (size_t stages : steps(std::min(context.devices.size(), units)))
    if (options.stages == 0 || stages == options.stages)
      for (size_t laps : options.stages ? std::set<size_t>{1} : steps(units / stages))
        if (std::optional<Candidate> candidate =
                proportionalPartition(context, stages, laps, rowChoices / 2))
          for (step::Activations activations : kActivations)
            for (StateOffload state : kOffloads) {
              candidate->strategy.schedule = schedules.front();
              candidate->strategy.state = ShardSizing::ByFreeMemory;
              candidate->strategy.memoryOptimizations = {
                  {activations, state}, {}, /*reshardAfterForward=*/true};
              candidate->id = context.nextId();
              grid.push_back(*candidate);
            }
  // If there are too many, a random subset is simulated.
  std::sort(grid.begin(), grid.end(), [](const Candidate &a, const Candidate &b) {
    return SplitMix64(a.id).next() < SplitMix64(b.id).next();
  });
  addSimulated(context, std::move(grid), briefly ? effort.phaseHintWork : effort.phaseWork, pool);
  for (size_t i = 0; !briefly && i < std::min(pool.size(), effort.phasesRefined); ++i)
    for (size_t r = 0; r < rowChoices; ++r) {
      Candidate candidate = pool[i];
      for (Pipeline &pipeline : candidate.strategy.pipelines)
        for (Stage &stage : pipeline.stages)
          stage = makeStage(context.model, devicesOf(stage), stage.unitBegin, stage.unitEnd,
                            pipeline.samples, r);
      candidate.id = context.nextId();
      varied.push_back(std::move(candidate));
    }
  addSimulated(context, std::move(varied), effort.phaseRowWork, pool);
  if (effort.descentWork > 0 && !pool.empty() && !briefly)
    hillClimb(context, pool,
              static_cast<uint32_t>(std::min(
                  effort.phaseDescents,
                  effort.phaseDescentWork / double(std::max<uint64_t>(pool.front().work, 1)))));
  pool.erase(std::remove_if(pool.begin(), pool.end(),
                            [](const Candidate &c) { return c.shortfallBytes > 0; }),
             pool.end());
  if (pool.empty())
    return std::nullopt;
  Result<SearchResult> result = selectBest(context, pool);
  return result.failed() ? std::nullopt : std::optional(std::move(*result));
}
