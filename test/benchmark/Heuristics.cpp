#include "Heuristics.h"

#include "Search/Candidates.h"
#include "Search/Neighborhood.h"

#include <algorithm>
#include <atomic>
#include <iterator>

using namespace zorse;
using namespace zorse::planning;

namespace {

enum Heuristic : size_t {
  AnotherSeed,
  CanonicalOrder,
  Negligible,
  // Initial solutions.
  Orders,
  BothSides,
  Copies,
  OwnRows,
  Pieces,
  Assumptions,
  LateStarts,
  CutsWithWaits,
  CutsWithoutWaits,
  KindsInTurn,
  // Subsets of the cluster.
  Parts,
  LaterParts,
  WholeStages,
  // First simulations.
  Singles,
  Schedules,
  // Local search; moves in the order of Move.
  LocalSearch,
  SeveralStarts,
  AdaptedMoves,
  WholeGroups,
  AlikePipelines,
  FirstMove,
  // Fractional stage boundaries.
  SharedUnits = FirstMove + kMoves,
  SharedInitialSolutions,
  FromBusiest,
  KeptTimes,
  // Descents; neighbors in the order of Neighborhood::Kind.
  Descents,
  BestNeighbour,
  Kicks,
  SharedStarts,
  StagesStarts,
  FirstNeighbour,
  // Judging.
  SeveralJudged = FirstNeighbour + Neighborhood::Tilings + 1,
  PlacedFirst,
  Gaps,
  // Memory optimizations.
  AnyOptimization,
  RelievedStages,
  Phases,
  // Timer.
  OwnersByMemory,
  Replicas,
  kHeuristics
};

constexpr const char *kNames[] = {"another-seed",
                                  "canonical-order",
                                  "negligible-devices",
                                  "orders",
                                  "both-sides",
                                  "copies",
                                  "own-rows",
                                  "pieces-of-nodes",
                                  "assumptions",
                                  "late-starts",
                                  "cuts-with-waits",
                                  "cuts-without-waits",
                                  "kinds-in-turn",
                                  "parts",
                                  "later-parts",
                                  "whole-stages",
                                  "singles",
                                  "schedules",
                                  "walks",
                                  "several-walks",
                                  "adapted-moves",
                                  "whole-groups",
                                  "equal-pipelines",
                                  "move-units",
                                  "move-rows",
                                  "move-schedule",
                                  "move-owners",
                                  "move-level",
                                  "move-samples",
                                  "move-groups",
                                  "move-memory",
                                  "move-pipelines",
                                  "shared-units",
                                  "shared-seeds",
                                  "from-busiest",
                                  "kept-times",
                                  "descents",
                                  "best-neighbor",
                                  "kicks",
                                  "shared-starts",
                                  "stages-starts",
                                  "neighbor-orders",
                                  "neighbor-shares",
                                  "neighbor-rows",
                                  "neighbor-units",
                                  "neighbor-devices",
                                  "neighbor-exchanges",
                                  "neighbor-structure",
                                  "neighbor-relief",
                                  "neighbor-tilings",
                                  "several-judged",
                                  "placed-first",
                                  "gaps",
                                  "techniques",
                                  "relieved-stages",
                                  "phases",
                                  "owners-by-memory",
                                  "twins"};
static_assert(std::size(kNames) == kHeuristics);

size_t missing = kHeuristics;
std::atomic<bool> used[kHeuristics];

/// Whether the heuristic is omitted. Records that the search has reached it.
bool isOmitted(size_t heuristic) {
  used[heuristic].store(true, std::memory_order_relaxed);
  return missing == heuristic;
}

/// A heuristic that is a number in SearchEffort.
struct Limit {
  Heuristic heuristic;
  bool (*leaveOut)(SearchEffort &); ///< returns whether the number changes
};

template <typename T, typename V> bool set(T &field, V value) {
  const bool changes = field != static_cast<T>(value);
  field = static_cast<T>(value);
  return changes;
}

constexpr Limit kLimits[] = {
    {Orders,
     [](SearchEffort &e) {
       const bool ofOne = set(e.seedOrders, 1), ofSeveral = set(e.copyOrders, 1);
       return ofOne || ofSeveral;
     }},
    {BothSides, [](SearchEffort &e) { return set(e.bothSides, false); }},
    {Copies, [](SearchEffort &e) { return set(e.maxCopies, 1); }},
    {OwnRows, [](SearchEffort &e) { return set(e.seedRows, 2); }},
    {Pieces, [](SearchEffort &e) { return set(e.seedsInPieces, 0); }},
    {Assumptions, [](SearchEffort &e) { return set(e.seedsAgain, 0); }},
    {Parts, [](SearchEffort &e) { return set(e.subclusters, 0); }},
    {LaterParts, [](SearchEffort &e) { return set(e.laterSubclusters, 0); }},
    {WholeStages, [](SearchEffort &e) { return set(e.wholeStages, false); }},
    {Singles, [](SearchEffort &e) { return set(e.singles, 0); }},
    {SeveralStarts, [](SearchEffort &e) { return set(e.maxStarts, 1); }},
    {AdaptedMoves, [](SearchEffort &e) { return set(e.adaptsMoves, false); }},
    {WholeGroups, [](SearchEffort &e) { return set(e.wholeGroups, 0); }},
    {SharedUnits, [](SearchEffort &e) { return set(e.boundaryVariants, 1); }},
    {SharedInitialSolutions, [](SearchEffort &e) { return set(e.seedsInParts, 0); }},
    {BestNeighbour, [](SearchEffort &e) { return set(e.bestNeighbour, false); }},
    {Kicks, [](SearchEffort &e) { return e.descentWork > 0 && set(e.kicks, 0); }},
    {SharedStarts, [](SearchEffort &e) { return e.descentWork > 0 && set(e.sharingStarts, 0); }},
    {StagesStarts, [](SearchEffort &e) { return e.descentWork > 0 && set(e.stagesStarts, 0); }},
    {SeveralJudged, [](SearchEffort &e) { return set(e.judged, 1); }},
    {PlacedFirst, [](SearchEffort &e) { return set(e.placesFirst, false); }},
    {Gaps, [](SearchEffort &e) { return set(e.fragmentationDivisor, 0); }},
    {RelievedStages, [](SearchEffort &e) { return set(e.relievedStages, 0); }},
};

Strategy withoutFreeMemory(const Strategy &from) {
  Strategy strategy = from;
  if (strategy.state == ShardSizing::ByFreeMemory && isOmitted(OwnersByMemory))
    strategy.state = ShardSizing::Proportional;
  return strategy;
}

} // namespace

// Defines the replacement of a search function, given its linker symbol. The original function is
// real::name. Methods take the object as their first argument.
#define ZORSE_BETWEEN(symbol, result, name, ...)                                                   \
  namespace real {                                                                                 \
  result name(__VA_ARGS__) __asm__("__real_" symbol);                                              \
  }                                                                                                \
  result name(__VA_ARGS__) __asm__("__wrap_" symbol);                                              \
  result name(__VA_ARGS__)

namespace zorse::planning::between {

ZORSE_BETWEEN("_ZN5zorse8planning12SearchEffort10forDevicesEmll", SearchEffort, forDevices,
              size_t devices, int64_t units, int64_t samples) {
  SearchEffort effort = real::forDevices(devices, units, samples);
  for (const Limit &limit : kLimits)
    if (SearchEffort changed = effort; limit.leaveOut(changed) && isOmitted(limit.heuristic))
      effort = changed;
  return effort;
}

ZORSE_BETWEEN("_ZN5zorse8planning17withoutNegligibleERKNS0_13SearchContextE", std::vector<uint32_t>,
              withoutNegligible, const SearchContext &context) {
  std::vector<uint32_t> devices = real::withoutNegligible(context);
  if (devices != context.devices && isOmitted(Negligible))
    return context.devices;
  return devices;
}

ZORSE_BETWEEN("_ZN5zorse8planning16StagePartitioner5solveERKSt6vectorINS0_9DeviceSetESaIS3_EERKNS0_"
              "16PartitionOptionsE",
              Partition, solve, StagePartitioner *partitioner,
              const std::vector<DeviceSet> &deviceSets, const PartitionOptions &options) {
  PartitionOptions changed = options;
  if (options.lateStart != PartitionOptions().lateStart && isOmitted(LateStarts))
    changed.lateStart = PartitionOptions().lateStart;
  if (!options.rough && isOmitted(options.waits ? CutsWithWaits : CutsWithoutWaits))
    changed.waits = !options.waits;
  return real::solve(partitioner, deviceSets, changed);
}

ZORSE_BETWEEN("_ZN5zorse8planning20makeInitialSolutionsERNS0_13SearchContextEb",
              std::vector<Candidate>, makeSeeds, SearchContext &context, bool thorough) {
  std::vector<Candidate> seeds = real::makeSeeds(context, thorough);
  auto before = [](const Candidate &a, const Candidate &b) { return a.estimate < b.estimate; };
  if (!std::is_sorted(seeds.begin(), seeds.end(), before) && isOmitted(KindsInTurn))
    std::stable_sort(seeds.begin(), seeds.end(), before);
  return seeds;
}

ZORSE_BETWEEN("_ZN5zorse8planning15scheduleChoicesERKNS0_13SearchContextEb",
              std::vector<step::Schedule>, scheduleChoices, const SearchContext &context,
              bool every) {
  std::vector<step::Schedule> choices = real::scheduleChoices(context, every);
  if (choices.size() > 1 && isOmitted(Schedules))
    choices.resize(1);
  return choices;
}

ZORSE_BETWEEN("_ZN5zorse8planning6refineERNS0_13SearchContextERSt6vectorINS0_9CandidateESaIS4_EE",
              void, refine, SearchContext &context, std::vector<Candidate> &pool) {
  if (!isOmitted(LocalSearch))
    real::refine(context, pool);
}

ZORSE_BETWEEN("_ZNK5zorse8planning21AdaptiveMoveSelection4pickERNS0_10SplitMix64Eb", Move, drawMove,
              const AdaptiveMoveSelection *shares, SplitMix64 &random, bool parts) {
  Move move = real::drawMove(shares, random, parts);
  while (isOmitted(FirstMove + static_cast<size_t>(move)))
    move = real::drawMove(shares, random, parts);
  return move;
}

ZORSE_BETWEEN("_ZN5zorse8planning8areAlikeERKNS0_10StageModelERKNS0_8StrategyE", bool, areAlike,
              const StageModel &model, const Strategy &strategy) {
  return real::areAlike(model, strategy) && !isOmitted(AlikePipelines);
}

ZORSE_BETWEEN("_ZN5zorse8planning11fromBusiestERKNS0_10StageModelERKNS0_"
              "8PipelineERKSt6vectorIfSaIfEERNS0_10SplitMix64ERmSE_Ri",
              bool, fromBusiest, const StageModel &model, const Pipeline &pipeline,
              const std::vector<float> &busy, SplitMix64 &random, size_t &a, size_t &b,
              int32_t &by) {
  return isOmitted(FromBusiest) || real::fromBusiest(model, pipeline, busy, random, a, b,
                                                     by); // if omitted, the stages stay as drawn
}

ZORSE_BETWEEN("_ZN5zorse8planning9keepTimesERKNS0_10StageModelERKSt6vectorINS0_9DeviceSetESaIS5_"
              "EEdRNS0_8PipelineE",
              bool, keepTimes, const StageModel &model, const std::vector<DeviceSet> &groups,
              double level, Pipeline &pipeline) {
  return !isOmitted(KeptTimes) && real::keepTimes(model, groups, level, pipeline);
}

ZORSE_BETWEEN(
    "_ZN5zorse8planning9hillClimbERNS0_13SearchContextERSt6vectorINS0_9CandidateESaIS4_EEj", void,
    hillClimb, SearchContext &context, std::vector<Candidate> &pool, uint32_t simulations) {
  if (!isOmitted(Descents))
    real::hillClimb(context, pool, simulations);
}

ZORSE_BETWEEN("_ZN5zorse8planning12Neighborhood5visitENS1_4KindEmRKNS0_9CandidateE", void, visit,
              Neighborhood *neighborhood, Neighborhood::Kind kind, size_t worker,
              const Candidate &candidate) {
  if (!isOmitted(FirstNeighbour + kind))
    real::visit(neighborhood, kind, worker, candidate);
}

ZORSE_BETWEEN("_ZN5zorse8planning29searchWithMemoryOptimizationsERKNS0_7ProblemERKNS0_"
              "13SearchOptionsEdRKNS0_8StrategyE",
              std::optional<SearchResult>, searchWithOptimizations, const Problem &problem,
              const SearchOptions &options, double toBeat, const Strategy &start) {
  return isOmitted(AnyOptimization)
             ? std::nullopt
             : real::searchWithOptimizations(problem, options, toBeat, start);
}

ZORSE_BETWEEN(
    "_ZN5zorse8planning25searchReshardAfterForwardERKNS0_7ProblemERKNS0_13SearchOptionsEb",
    std::optional<SearchResult>, searchByPhase, const Problem &problem,
    const SearchOptions &options, bool briefly) {
  return isOmitted(Phases) ? std::nullopt : real::searchByPhase(problem, options, briefly);
}

ZORSE_BETWEEN("_ZN5zorse8planning17StrategySimulator3runERKNS0_8StrategyE",
              const StrategySimulator::Result &, runTimer, StrategySimulator *simulator,
              const Strategy &strategy) {
  return real::runTimer(simulator, withoutFreeMemory(strategy));
}

ZORSE_BETWEEN("_ZN5zorse8planning17StrategySimulator4planERKNS0_8StrategyE", step::Plan,
              planByTimer, StrategySimulator *simulator, const Strategy &strategy) {
  return real::planByTimer(simulator, withoutFreeMemory(strategy));
}

ZORSE_BETWEEN("_ZN5zorse8planning13ReplicaFinder4findERKNS0_8StrategyE", void, findReplicas,
              ReplicaFinder *finder, const Strategy &strategy) {
  real::findReplicas(finder, strategy);
  if (!finder->devices().empty() && isOmitted(Replicas))
    finder->forget(strategy);
}

} // namespace zorse::planning::between

const std::vector<std::string> &zorse::planning::heuristicNames() {
  static const std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  return names;
}

Trial zorse::planning::searchWithout(size_t heuristic, const Problem &problem,
                                     const SearchOptions &asked) {
  missing = heuristic;
  for (std::atomic<bool> &one : used)
    one = false;
  Trial trial;
  SearchOptions options = asked;
  if (isOmitted(AnotherSeed))
    options.seed += 1000;
  Result<SearchResult> found = isOmitted(CanonicalOrder) ? searchParts(problem, options)
                                                         : searchPlan(problem, options);
  if (!found.failed())
    trial.result = std::move(*found);
  for (const std::atomic<bool> &one : used)
    trial.used.push_back(one);
  missing = kHeuristics;
  return trial;
}
