// Phases of a search:
//
// - order: sort devices, nodes and sites by their properties (CanonicalProblem.h)
// - seeds: order devices by class and site and partition stages by a dynamic program, for several
//   assumptions; best estimates first
// - parts: the same for subsets of the cluster, without each site, class or node (Subclusters.cpp)
// - simulate: simulate the best seeds with the most promising schedules
// - refine: moves, each partitioning units and samples again; then the best strategy without each
//   group of devices that it uses, and moves from it
// - descend: for few devices, try all small changes of the best few strategies until none helps,
//   repeatedly after random moves
// - judge: choose among the best few by the full expansion, which alone decides

#include "Candidates.h"
#include "CanonicalProblem.h"

#include "../Repair/NearPlan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Number of simulations of descents, in addition to the budget of the moves.
uint32_t descents(const SearchContext &context, const Candidate &best) {
  const SearchEffort effort = context.effort();
  return static_cast<uint32_t>(std::min<double>(
      effort.maxDescents, effort.descentWork / double(std::max<uint64_t>(best.work, 1))));
}

Status checkOptions(const SearchContext &context) {
  const Problem &problem = context.problem;
  if (context.tables.units() == 0)
    return userError("the model has no units");
  if (problem.cluster.devices.empty())
    return userError("the cluster has no devices");
  if (problem.batch < 1)
    return userError("batch is " + std::to_string(problem.batch) + ", expected at least 1");
  if (context.devices.empty())
    return userError("every device of the cluster is excluded; leave at least one");
  const size_t stages = context.options.stages,
               max = std::min<size_t>(static_cast<size_t>(context.tables.units()),
                                      context.devices.size());
  if (stages > max)
    return userError(std::to_string(stages) + " stages are asked for; the model has " +
                     std::to_string(context.tables.units()) + " units and the cluster " +
                     std::to_string(context.devices.size()) + " devices, so at most " +
                     std::to_string(max) + " are possible");
  return Status::success();
}

void keepAsAsked(const SearchOptions &options, std::vector<Candidate> &candidates) {
  if (options.stages == 0)
    return;
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate &c) {
                                    return std::any_of(c.strategy.pipelines.begin(),
                                                       c.strategy.pipelines.end(),
                                                       [&](const Pipeline &p) {
                                                         return p.stages.size() != options.stages;
                                                       });
                                  }),
                   candidates.end());
}

/// Adds, for every class, its fastest device alone, because no plan may be slower than one device.
void addSingles(SearchContext &context, std::vector<Candidate> &batch) {
  size_t left = context.effort().singles;
  for (uint32_t c = 0; c < context.model.deviceTypes(); ++c)
    for (uint32_t d : context.devices) {
      if (context.model.deviceTypeOf(d) != c)
        continue;
      for (size_t r = 0; r < context.model.rows().size() && left > 0; ++r, --left) {
        Candidate candidate;
        candidate.strategy.pipelines.push_back(
            {context.problem.batch,
             {makeStage(context.model, {d}, 0, context.model.units(), context.problem.batch, r)}});
        candidate.id = context.nextId();
        batch.push_back(std::move(candidate));
      }
      break;
    }
}

/// Returns the first candidates to simulate, with one schedule: copies of a plan, the best
/// estimates, those for subsets of the cluster, and single devices.
std::vector<Candidate> firstCandidates(SearchContext &context,
                                       const std::vector<Candidate> &solutions,
                                       const step::Schedule &schedule) {
  const SearchOptions &options = context.options;
  const SearchEffort effort = context.effort();
  std::vector<Candidate> seeds;
  const size_t best = std::min<size_t>(
      solutions.size(),
      std::max<size_t>(effort.minInitialSolutions, context.budget / effort.seedsPart));
  seeds.insert(seeds.end(), solutions.begin(), solutions.begin() + static_cast<long>(best));
  // Subsets of the cluster contribute their best estimates; the walks decide.
  std::vector<Candidate> ofParts;
  addSubclusterSolutions(context, context.devices, effort.subclusters, effort.seedsOfEach, ofParts);
  keepAsAsked(options, ofParts);
  context.budget += static_cast<uint32_t>(ofParts.size());
  std::move(ofParts.begin(), ofParts.end(), std::back_inserter(seeds));
  if (options.stages <= 1 && options.pipelines <= 1)
    addSingles(context, seeds);
  if (seeds.empty() && options.stages > 0 && options.pipelines <= 1)
    if (std::optional<Candidate> plain = proportionalPartition(context, options.stages)) {
      plain->id = context.nextId();
      seeds.push_back(std::move(*plain));
    }
  for (Candidate &candidate : seeds)
    candidate.strategy.schedule = schedule;

  std::vector<Candidate> all;
  if (options.near)
    all = options.near->repairs(context);
  addSymmetricCopies(context, all);
  for (const Strategy &start : options.starts) {
    all.emplace_back().strategy = start;
    all.back().id = context.nextId();
  }
  std::move(seeds.begin(), seeds.end(), std::back_inserter(all));
  if (options.near && !all.empty()) { // the plan without the lost devices, then by estimate
    auto estimateOf = [](const Candidate &candidate) {
      return candidate.estimate > 0 ? candidate.estimate : INFINITY;
    };
    std::stable_sort(all.begin() + 1, all.end(), [&](const Candidate &a, const Candidate &b) {
      return estimateOf(a) < estimateOf(b);
    });
  }
  return all;
}

std::string nothingFound(const SearchOptions &options, size_t devices, int64_t batch) {
  const std::string stages = options.stages > 0
                                 ? " with " + std::to_string(options.stages) + " stages"
                                 : "",
                    pipelines = options.pipelines > 1
                                    ? " in " + std::to_string(options.pipelines) + " pipelines"
                                    : "";
  const uint64_t needed = uint64_t(std::max(options.stages, 1u)) * std::max(options.pipelines, 1u);
  if (needed > devices)
    return "no plan was found" + stages + pipelines + ": they need " + std::to_string(needed) +
           " devices, and the cluster has " + std::to_string(devices) + "; choose other numbers";
  if (options.pipelines > batch)
    return "no plan was found" + stages + pipelines + ": a step has " + std::to_string(batch) +
           " samples; choose other numbers";
  return "no plan was found" + stages + pipelines +
         (stages.empty() && pipelines.empty()
              ? ""
              : ": in every partition a stage exceeds its memory or has more devices than samples; "
                "choose other numbers, or let the search choose them");
}

/// Tries the best of the pool with the other schedules.
void varySchedules(SearchContext &context, const std::vector<step::Schedule> &schedules,
                   std::vector<Candidate> &pool) {
  const SearchEffort effort = context.effort();
  const size_t affordable = context.budget / effort.seedsPart /
                            std::max<size_t>(schedules.size(), 1);
  const size_t leaders =
      std::min({pool.size(), std::max(effort.minLeaders, affordable), effort.maxLeaders});
  std::vector<Candidate> varied;
  for (size_t i = 0; i < leaders; ++i)
    for (size_t s = 1; s < schedules.size(); ++s) {
      if (pool[i].strategy.boundaryDenominator > 1 &&
          schedules[s].kind != step::ScheduleKind::SteadyState)
        continue; // other schedules support one range of units per device
      Candidate candidate = pool[i];
      candidate.strategy.schedule = schedules[s];
      candidate.id = context.nextId();
      varied.push_back(std::move(candidate));
    }
  addSimulated(context, std::move(varied), effort.scheduleWork, pool);
}

} // namespace

/// Tries the best strategy without each site and class that it uses, and these alone. The remaining
/// devices may do better, also with devices that could not be used together with the removed ones.
static void tryWithout(SearchContext &context, const std::vector<step::Schedule> &schedules,
                       std::vector<Candidate> &pool) {
  std::vector<Candidate> tried;
  std::vector<uint32_t> used = context.devices;
  for (uint32_t d : unusedDevices(context, pool.front().strategy))
    used.erase(std::remove(used.begin(), used.end(), d), used.end());
  addSubclusterSolutions(context, used, context.effort().laterSubclusters,
                         context.effort().seedsOfEach, tried);
  keepAsAsked(context.options, tried);
  std::vector<Candidate> varied;
  for (const Candidate &candidate : tried)
    for (const step::Schedule &schedule : {schedules.front(), pool.front().strategy.schedule}) {
      if (candidate.strategy.boundaryDenominator > 1 &&
          schedule.kind != step::ScheduleKind::SteadyState)
        continue;
      varied.push_back(candidate);
      varied.back().strategy.schedule = schedule;
      varied.back().id = context.nextId();
    }
  context.budget += static_cast<uint32_t>(varied.size());
  addSimulated(context, std::move(varied), context.effort().scheduleWork, pool);
}

/// Returns the number of candidates to simulate.
/// \param work  of the simulation of one candidate
static uint32_t budgetOf(const SearchOptions &options, const SearchEffort &effort, uint64_t work) {
  constexpr uint32_t kRanking = 300, kPart = 4;
  const uint32_t bySize = effort.budgetFor(double(std::max<uint64_t>(work, 1)));
  const uint32_t whole = options.candidates ? options.candidates : bySize;
  return options.ranks ? std::min({whole, kRanking, bySize / kPart + 1}) : whole;
}

/// Returns the work of simulating one candidate: the best estimate.
static uint64_t workOfOne(SearchContext &context, const std::vector<Candidate> &solutions,
                          const step::Schedule &schedule) {
  if (solutions.empty())
    return 1000;
  Strategy strategy = solutions.front().strategy;
  strategy.schedule = schedule;
  return context.simulator(0).run(strategy).work;
}

/// A repair that moves little state must not be slower than the first candidate.
static void limitScore(SearchContext &context, uint64_t id, const std::vector<Candidate> &pool) {
  for (const Candidate &candidate : pool)
    if (candidate.id == id && candidate.shortfallBytes == 0)
      context.maxScore = candidate.score;
}

/// Runs a search that starts with the devices `first` of all usable ones.
static Result<SearchResult> searchFrom(SearchContext &context, const std::vector<uint32_t> &first) {
  const SearchOptions &options = context.options;
  const std::vector<uint32_t> all = context.devices;
  context.devices = first;
  const SearchEffort effort = context.effort();
  std::vector<Candidate> solutions = makeInitialSolutions(context, effort.thoroughSeeds);
  keepAsAsked(options, solutions);
  if (options.near)
    addEasedSolutions(context, solutions);
  if (const std::optional<Problem> eased = withRecomputation(context, solutions)) {
    SearchContext other(*eased, options);
    return searchFrom(other, first);
  }
  std::vector<step::Schedule> schedules = scheduleChoices(context, effort.everySchedule);
  if (schedules.empty())
    return userError("no schedule is left to choose from: this model's backward cannot be split");
  context.budget = budgetOf(options, effort, workOfOne(context, solutions, schedules.front()));
  std::vector<Candidate> firstOnes = firstCandidates(context, solutions, schedules.front()), pool;
  if (firstOnes.empty())
    return userError(nothingFound(options, context.devices.size(), context.problem.batch));
  const uint64_t firstId = firstOnes.front().id;
  addSimulated(context, std::move(firstOnes), effort.seedWork, pool);
  if (options.near) // the first one is the plan without the lost devices
    limitScore(context, firstId, pool);
  // Keeps the best single device to the end.
  std::optional<Candidate> alone;
  if (auto best = std::find_if(pool.begin(), pool.end(),
                               [](const Candidate &c) { return isSingle(c.strategy); });
      best != pool.end())
    alone = *best;
  varySchedules(context, schedules, pool);

  const uint32_t budget = context.budget;
  context.budget -= budget / effort.laterPart; // reserved for the later phases
  refine(context, pool);
  context.budget = budget;
  tryWithout(context, schedules, pool);
  context.devices = all;
  refine(context, pool);
  const bool hopeless = std::all_of(pool.begin(), pool.end(), [&](const Candidate &candidate) {
    return context.isHopeless(candidate);
  });
  if (context.effort().descentWork > 0 && !hopeless)
    hillClimb(context, pool,
              options.candidates || options.ranks
                  ? context.budget - std::min(context.budget, context.tried())
                  : descents(context, pool.front()));

  if (alone)
    pool.push_back(*alone);

  return selectBest(context, pool);
}

Result<SearchResult> zorse::planning::searchInOrder(const Problem &problem,
                                                    const SearchOptions &options) {
  SearchContext context(problem, options);
  if (Status status = checkOptions(context); status.failed())
    return status;
  const std::vector<uint32_t> all = context.devices, first = withoutNegligible(context);
  Result<SearchResult> result = searchFrom(context, first);
  if (!result.failed() || first == all)
    return result;
  SearchContext again(problem, options); // the memory of the other devices may be necessary
  return searchFrom(again, again.devices);
}

Result<SearchResult> zorse::planning::searchPlan(const Problem &problem,
                                                 const SearchOptions &options) {
  return searchInCanonicalOrder(problem, options);
}

Result<SearchResult> zorse::planning::searchInCanonicalOrder(const Problem &problem,
                                                             const SearchOptions &options) {
  if (problem.cluster.devices.empty() || problem.summary.units_size() == 0)
    return searchInOrder(problem, options); // reports the error
  if (Status status = step::checkGradientWire(problem.gradientWire, problem.summary);
      status.failed())
    return status;
  const CanonicalProblem canonical =
      CanonicalProblem::make(problem, /*byName=*/options.near != nullptr);
  SearchOptions translated = options;
  translated.excluded = canonical.translate(options.excluded);
  for (Strategy &start : translated.starts)
    start = canonical.translate(std::move(start));
  Result<SearchResult> result = searchParts(canonical.on(problem), translated);
  if (result.failed() || std::is_sorted(canonical.original.begin(), canonical.original.end()))
    return result;
  result->strategy = canonical.restore(result->strategy);
  result->plan = makePlan(problem, result->strategy);
  const SearchEffort effort = SearchEffort::forDevices(problem.cluster.devices.size());
  Result<Evaluation> evaluation =
      options.near
          ? StrategySimulator(problem, 0, step::LoweringOptions().tries).estimate(result->strategy)
      : effort.placesFirst ? evaluate(problem, result->plan)
                           : estimate(problem, result->plan);
  if (!evaluation.failed() && evaluation->shortfallBytes == 0) {
    result->evaluation = std::move(*evaluation);
    return result;
  }
  // With devices in the original order, tasks that could run at the same time were ordered
  // differently, and the plan no longer fits in memory.
  return searchParts(problem, options);
}
