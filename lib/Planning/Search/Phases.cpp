// Plans whose parameters come by phase: before the forwards of a chunk and again before its backwards, two chunks at once on a device.
//
//   stages      the devices in so many groups of about equal speed, one group for all up to one for each device
//   laps        chunks of each group, one after the other around the ring; as many as there are units, at most
//   techniques  activations kept, on hosts or computed again; state on devices, on hosts, or updated there
//   rows        of a micro-batch, for the best of these; then descents
//
// Orders are by ministages: under others the phases of a chunk are one, and nothing is saved.

#include "Candidates.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr StatePlace kPlaces[] = {StatePlace::Device, StatePlace::OnHost, StatePlace::UpdatedOnHost};
constexpr step::Activations kActivations[] = {step::Activations::Keep, step::Activations::Offload, step::Activations::Recompute};

/// Powers of two up to `most`, and `most`.
std::set<size_t> steps(size_t most) {
  std::set<size_t> list;
  for (size_t n = 1; n < most; n *= 2)
    list.insert(n);
  if (most > 0)
    list.insert(most);
  return list;
}

/// The first of these, until so many tasks have been listed.
void simulateSome(SearchContext &context, std::vector<Candidate> tried, double mostTasks, std::vector<Candidate> &pool) {
  const size_t atOnce = context.effort().phasesAtOnce;
  for (size_t begin = 0; begin < tried.size() && mostTasks > 0; begin += atOnce) {
    std::vector<Candidate> batch(tried.begin() + static_cast<long>(begin), tried.begin() + static_cast<long>(std::min(tried.size(), begin + atOnce)));
    context.simulate(batch);
    for (Candidate &candidate : batch) {
      mostTasks -= 2.0 * candidate.tasks;
      pool.push_back(std::move(candidate));
    }
  }
  std::sort(pool.begin(), pool.end(), better);
}

} // namespace

std::optional<SearchResult> zorse::planning::searchByPhase(const Problem &problem, const SearchOptions &options) {
  if (options.pipelines > 1)
    return std::nullopt; // these plans have one
  Problem phased = problem;
  phased.techniques = {{step::Activations::Keep, StatePlace::OnHost}, {}, /*byPhase=*/true};
  SearchContext context(phased, options);
  const SearchEffort effort = context.effort();
  const std::vector<step::Schedule> schedules = scheduleChoices(context, false);
  if (schedules.empty())
    return std::nullopt; // another one is asked for
  const size_t units = static_cast<size_t>(context.model.units()), rowChoices = context.model.rows().size();
  std::vector<Candidate> grid, pool, varied;
  for (size_t stages : steps(std::min(context.devices.size(), units)))
    if (options.stages == 0 || stages == options.stages)
      for (size_t laps : options.stages ? std::set<size_t>{1} : steps(units / stages))
        if (std::optional<Candidate> candidate = plainCut(context, stages, laps, rowChoices / 2))
          for (step::Activations activations : kActivations)
            for (StatePlace state : kPlaces) {
              candidate->layout.schedule = schedules.front();
              candidate->layout.state = StateRule::FreeMemory;
              candidate->layout.techniques = {{activations, state}, {}, /*byPhase=*/true};
              candidate->id = context.nextId();
              grid.push_back(*candidate);
            }
  // Where not all of them can be looked at, a fair part is.
  std::sort(grid.begin(), grid.end(), [](const Candidate &a, const Candidate &b) { return Draws(a.id).next() < Draws(b.id).next(); });
  simulateSome(context, std::move(grid), effort.phaseTasks, pool);
  for (size_t i = 0; i < std::min(pool.size(), effort.phasesRefined); ++i)
    for (size_t r = 0; r < rowChoices; ++r) {
      Candidate candidate = pool[i];
      for (Pipeline &pipeline : candidate.layout.pipelines)
        for (Stage &stage : pipeline.stages)
          stage = makeStage(context.model, devicesOf(stage), stage.unitBegin, stage.unitEnd, pipeline.samples, r);
      candidate.id = context.nextId();
      varied.push_back(std::move(candidate));
    }
  simulateSome(context, std::move(varied), effort.phaseRowTasks, pool);
  if (effort.descentTasks > 0 && !pool.empty())
    descend(context, pool,
            static_cast<uint32_t>(std::min(effort.phaseDescents, effort.phaseDescentTasks / (2.0 * std::max(pool.front().tasks, 1u)))));
  pool.erase(std::remove_if(pool.begin(), pool.end(), [](const Candidate &c) { return c.excess > 0; }), pool.end());
  if (pool.empty())
    return std::nullopt;
  Result<SearchResult> result = judge(context, pool);
  return result.failed() ? std::nullopt : std::optional(std::move(*result));
}
