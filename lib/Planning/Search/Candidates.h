// Candidate strategies of a search, and the workers that simulate them. Internal to Planning.
#pragma once

#include "../Layout/StrategySimulator.h"
#include "../Layout/UnitTables.h"
#include "SplitMix64.h"
#include "StageModel.h"
#include "StagePartitioner.h"
#include "Stages.h"

#include "zorse/Planning/Search.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace zorse::planning {

/// Kinds of moves, by the part of a strategy that they change.
enum class Move : uint8_t {
  Units,
  Rows,
  Schedule,
  State,
  Level,
  Samples,
  Groups,
  InFlight,
  Pipelines
};
inline constexpr size_t kMoves = 9;

/// Probabilities of the kinds of moves: in proportion to their success in improving walks so far,
/// starting with measured averages. Walks of few devices are short and keep the averages.
class AdaptiveMoveSelection {
public:
  /// \param parts  whether stages may share units
  Move pick(SplitMix64 &random, bool parts) const;
  bool adapt = false;
  void add(Move move, bool improved) {
    if (!adapt)
      return;
    ++tries[size_t(move)];
    improvements[size_t(move)] += improved;
  }

private:
  uint32_t tries[kMoves] = {}, improvements[kMoves] = {};
};

struct Candidate {
  Strategy strategy;
  double inFlight = 1;          ///< PartitionOptions::inFlight with which it was partitioned
  double estimate = 0;          ///< estimated seconds of the step
  double unlimitedEstimate = 0; ///< the same if all samples in flight fit in memory
  double step = 0;              ///< simulated seconds of the step
  double score = 0; ///< objective: seconds or price per sample, with a penalty for missing memory
                    ///< and throughput
  uint64_t shortfallBytes = 0;  ///< bytes
  uint64_t work = 0;            ///< StrategySimulator::Result::work
  Move move = Move::Units;      ///< the move that created it
  std::vector<float> busy = {}; ///< per device: seconds of compute; only if stages may share units
  uint64_t id = 0;              ///< creation order of candidates; breaks ties
};

inline bool better(const Candidate &a, const Candidate &b) {
  return a.score != b.score ? a.score < b.score : a.id < b.id;
}

/// Whether one device executes everything.
inline bool isSingle(const Strategy &strategy) {
  return strategy.pipelines.size() == 1 && strategy.pipelines[0].stages.size() == 1 &&
         strategy.pipelines[0].stages[0].members.size() == 1;
}

/// Returns the price per hour of the devices in use and their nodes.
double priceOf(const Problem &problem, const Strategy &strategy);
/// Returns the objective value. \param missing  missing memory as a share of the devices' memory,
/// summed
double scoreOf(const Problem &problem, const SearchOptions &options, const Strategy &strategy,
               double step, double missing);
/// Whether prices count. A small subset of the devices may then be best.
inline bool countsPrices(const SearchOptions &options) {
  return options.objective == Objective::CostPerSample || options.maxPrice > 0;
}

/// State shared by all parts of a search. Results never depend on the number of threads: work is
/// distributed in batches, and comparisons use whole batches.
class SearchContext {
public:
  SearchContext(const Problem &problem, const SearchOptions &options);

  /// Simulates and scores a candidate with a worker's timer; does not count as tried.
  void evaluate(size_t worker, Candidate &candidate);
  /// Simulates and scores many candidates; they count as tried.
  void simulate(std::vector<Candidate> &batch);
  /// Calls work(worker, i) for i < count, on all threads.
  void parallel(size_t count, const std::function<void(size_t worker, size_t i)> &work);

  StrategySimulator &simulator(size_t worker) { return *simulators[worker]; }
  /// Returns the worker's solver for strategies with this number of parts: 1, or that of `parts`.
  StagePartitioner &partitioner(size_t worker, int32_t parts = 1) {
    return parts > 1 ? *fractionalSolvers[worker] : *partitioners[worker];
  }
  const StageModel &modelOf(const Strategy &strategy) const {
    return strategy.boundaryDenominator > 1 ? *fractionalModel : model;
  }
  uint64_t nextId() { return ids++; }
  double price(const Strategy &strategy) const { return priceOf(problem, strategy); } ///< per hour
  double scoreOf(const Strategy &strategy, double step, double missing) const {
    return planning::scoreOf(problem, options, strategy, step, missing);
  }
  /// Returns the missing memory as a share of the devices' memory, summed.
  double missingMemory(const std::vector<uint64_t> &memory) const;
  /// Whether more than a tenth of the usable devices' memory is missing. Moves will not find a plan
  /// that fits.
  bool isHopeless(const Candidate &candidate) const;
  uint32_t tried() const { return triedCount; }
  void count(uint32_t simulated) { triedCount += simulated; }
  AdaptiveMoveSelection moves;
  uint32_t budget = 0;
  double maxScore = INFINITY; ///< of a repair that moves less state than the best one
  bool budgetExhausted() const { return triedCount >= budget; }
  /// Returns the limits for the devices that may be used now.
  SearchEffort effort() const {
    SearchEffort effort =
        options.near ? SearchEffort::forRepair(devices.size(), tables.units(), problem.batch)
                     : SearchEffort::forDevices(devices.size(), tables.units(), problem.batch);
    if (options.seconds > 0)
      effort.limitTo(options.seconds);
    return effort;
  }

  const Problem &problem;
  const SearchOptions &options;
  UnitTables tables;
  StageModel model;
  std::unique_ptr<StageModel> fractionalModel; ///< for stages that share units; null: none do
  std::vector<uint32_t> devices;               ///< devices that may be used

private:
  std::vector<std::unique_ptr<StrategySimulator>> simulators;
  std::vector<std::unique_ptr<StagePartitioner>> partitioners, fractionalSolvers;
  uint64_t ids = 0;
  uint32_t triedCount = 0;
};

/// Simulates the first candidates, until `maxWork` instructions have been listed, and adds them to
/// the pool, which is sorted, best first. If work is limited, candidates with an estimate above the
/// best score are omitted.
void addSimulated(SearchContext &context, std::vector<Candidate> candidates, double maxWork,
                  std::vector<Candidate> &pool);

/// Returns schedules to try for any strategy, the most promising first. \param every  includes
/// GPipe
std::vector<step::Schedule> scheduleChoices(const SearchContext &context, bool every);

/// Returns strategies from the dynamic program, best estimate first.
/// \param thorough  also splits nodes, and tries several assumptions about memory; this takes most
///   of the time
std::vector<Candidate> makeInitialSolutions(SearchContext &context, bool thorough = true);
/// Returns strategies with one pipeline per set of devices, from one partition for each order of
/// the sets' devices; empty if there are fewer samples than sets.
std::vector<Candidate> solutionsFor(SearchContext &context,
                                    const std::vector<std::vector<uint32_t>> &sets);
/// Returns at most `max` subsets of the devices: without each site, class and node, each of these
/// alone, the strongest together, classes of a site; for few devices, one less of each class. Sites
/// are first, nodes last.
std::vector<std::vector<uint32_t>> subclusters(const SearchContext &context,
                                               const std::vector<uint32_t> &devices, size_t max);
/// Returns the usable devices without those that are much slower than the mean and together
/// contribute almost nothing. A search that starts without them is unaffected by them, and adds
/// them if that helps.
std::vector<uint32_t> withoutNegligible(const SearchContext &context);
/// Adds all devices as one stage, with all micro-batch sizes. Estimates do not model how samples
/// overlap and tend to omit this strategy.
void addWhole(SearchContext &context, std::vector<Candidate> &solutions);
/// Adds the best estimates for subsets of the devices `of`, `each` for every subset.
void addSubclusterSolutions(SearchContext &context, const std::vector<uint32_t> &of, size_t maxSets,
                            size_t each, std::vector<Candidate> &solutions);

/// Adds plans that repeat the best plan of a fraction of the devices, if nodes are equal.
void addSymmetricCopies(SearchContext &context, std::vector<Candidate> &pool);

/// Returns one pipeline with this number of stages, and devices and units in proportion to speed,
/// without regard to memory. If no seed fits, moves start there, or it shows the missing memory.
/// With `loops`, each device has that many stages, in a ring. Micro-batches have rows()[rows] rows.
/// Returns nullopt if there are more stages than devices, units or samples allow.
std::optional<Candidate> proportionalPartition(const SearchContext &context, size_t stages,
                                               size_t loops = 1, size_t rows = 0);

/// Makes a random neighbor of a strategy. Returns false if this draw found none. Some neighbors of
/// a strategy with whole units share units.
bool mutate(SearchContext &context, size_t worker, const Candidate &from, uint64_t seed,
            Candidate &to);
/// As mutate, but whole units stay whole.
bool mutateAlike(SearchContext &context, size_t worker, const Candidate &from, uint64_t seed,
                 Candidate &to);

/// Returns the same strategy with units in parts, which moves may then share. Precondition:
/// context.parts.
Candidate withFractionalBoundaries(const SearchContext &context, const Candidate &from);
/// Sets Strategy::turn to the maximum number of rows of a cell.
void setSamplesPerVariant(Strategy &strategy);
/// Assigns other devices to a pipeline's stages and partitions the units so that the stages' times
/// keep their proportions. These proportions are tuned to the path of the first samples through the
/// stages and of the last ones back. Precondition: one group per stage.
/// \param level  by how much the times approach their mean: 0 not at all, 1 equal
bool keepTimes(const StageModel &model, const std::vector<DeviceSet> &groups, double level,
               Pipeline &pipeline);
/// Finds two stages, and the number of units or parts that the first gets from the second, such
/// that the busiest stage has less work. Returns false if there are none.
bool fromBusiest(const StageModel &model, const Pipeline &pipeline, const std::vector<float> &busy,
                 SplitMix64 &random, size_t &a, size_t &b, int32_t &by);

/// Moves devices to other groups, swaps, merges or splits groups, or adds devices of `rest`.
/// Returns false if this draw found no change.
bool moveGroups(const StageModel &model, SplitMix64 &random, const std::vector<uint32_t> &rest,
                std::vector<DeviceSet> &groups);

/// Returns the devices that a strategy does not use.
std::vector<uint32_t> unusedDevices(const SearchContext &context, const Strategy &strategy);

/// Improves candidates by moves until the budget is spent or no move helps. `pool` is sorted, best
/// first.
void refine(SearchContext &context, std::vector<Candidate> &pool);

/// Returns a key for similar plans: the device classes of every stage.
std::string structureOf(const StageModel &model, const Strategy &strategy);

/// Runs descents from strategies of different structure, with `simulations` simulations in total;
/// for problems with strategies of few tasks.
void hillClimb(SearchContext &context, std::vector<Candidate> &pool, uint32_t simulations);

/// Expands the best candidates of the pool (sorted, best first) and returns the best plan that
/// fits. Fails if none fits or meets the options' limits.
Result<SearchResult> selectBest(SearchContext &context, const std::vector<Candidate> &pool);

/// Returns the memory optimizations to try on all devices, the cheapest first.
std::vector<MemoryOptimization> memoryOptimizationCandidates();
/// Returns the best plan with memory optimizations, on as few devices as necessary, with the
/// devices in the order of `problem`. Returns nullopt if none fits, or if none scores below
/// `toBeat`. \param start  the best strategy without them, or the closest one
std::optional<SearchResult> searchWithMemoryOptimizations(const Problem &problem,
                                                          const SearchOptions &options,
                                                          double toBeat, const Strategy &start);
/// Returns the problem with activations recomputed on all devices, if the initial solutions for it
/// have better estimates; nullopt otherwise. For many devices, where searching twice is too slow.
/// \param solutions  the initial solutions without it
std::optional<Problem> withRecomputation(SearchContext &context,
                                         const std::vector<Candidate> &solutions);
/// For the repair of a plan: adds the best brief solutions with activations offloaded or
/// recomputed, if their estimates are better because memory limits the others.
void addEasedSolutions(SearchContext &context, std::vector<Candidate> &solutions);
/// Returns the best plan with parameters gathered by phase. It remains possible if even one stage's
/// parameters and gradients exceed its devices' memory. Returns nullopt if none fits.
/// \param briefly  only finds out whether one fits
std::optional<SearchResult> searchReshardAfterForward(const Problem &problem,
                                                      const SearchOptions &options,
                                                      bool briefly = false);
/// Searches with devices in canonical order, so that the plan does not depend on that of the
/// cluster.
Result<SearchResult> searchInCanonicalOrder(const Problem &problem, const SearchOptions &options);
/// Runs one search with the memory optimizations of the problem only.
Result<SearchResult> searchInOrder(const Problem &problem, const SearchOptions &options);
/// Returns the score of the best plan of a short search that fits and meets the limits; nullopt if
/// there is none.
/// \param used  receives its devices, ascending
std::optional<double> shortSearch(const Problem &problem, const SearchOptions &options,
                                  std::vector<uint32_t> *used = nullptr);
/// As shortSearch; if prices count, also for subsets of the cluster.
std::optional<double> shortSearchOfParts(const Problem &problem, const SearchOptions &options);
/// As searchInOrder; if prices count, also for the cheapest subsets of the cluster.
Result<SearchResult> searchParts(const Problem &problem, const SearchOptions &options);

/// Returns a message with the missing memory of the closest plan, per device, and changes that
/// would make it fit.
std::string explainMemory(const SearchContext &context, const Strategy &strategy,
                          const Evaluation &closest);

} // namespace zorse::planning
