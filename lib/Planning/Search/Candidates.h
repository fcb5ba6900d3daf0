// Layouts that a search weighs, and the workers that simulate them. Internal to Planning.
#pragma once

#include "../Layout/LayoutTimer.h"
#include "../Layout/UnitTables.h"
#include "Draws.h"
#include "Intervals.h"
#include "StageModel.h"
#include "Stages.h"

#include "zorse/Planning/Search.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace zorse::planning {

/// What a move changes.
enum class Move : uint8_t { Units, Rows, Schedule, State, Level, Samples, Groups, InFlight, Pipelines };
inline constexpr size_t kMoves = 9;

/// How often each kind of move is made: as often as it has improved walks so far, beginning with what does on average. Walks of few devices are
/// short: there the averages stay.
class MoveShares {
public:
  /// \param parts  whether stages may share out units
  Move draw(Draws &draws, bool parts) const;
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
  Layout layout;
  double inFlight = 1; ///< CutOptions::inFlight it was cut with
  double estimate = 0; ///< seconds, before it was simulated
  double step = 0;     ///< seconds, simulated
  double score = 0;    ///< what is minimised: seconds or price per sample, with what is missing in memory and throughput as a penalty
  uint64_t excess = 0; ///< bytes
  uint32_t tasks = 0;
  Move move = Move::Units;      ///< that made it
  std::vector<float> busy = {}; ///< by device: seconds of compute; only where units may be shared out
  uint64_t id = 0;              ///< order in which candidates were made; breaks ties
};

inline bool better(const Candidate &a, const Candidate &b) { return a.score != b.score ? a.score < b.score : a.id < b.id; }

/// Whether one device does everything.
inline bool isSingle(const Layout &layout) {
  return layout.pipelines.size() == 1 && layout.pipelines[0].stages.size() == 1 && layout.pipelines[0].stages[0].members.size() == 1;
}

/// Per hour, of the devices in use and their nodes.
double priceOf(const Problem &problem, const Layout &layout);
/// What is minimised. \param missing  part of their memory that devices lack, summed
double scoreOf(const Problem &problem, const SearchOptions &options, const Layout &layout, double step, double missing);
/// Whether prices count: the fewest devices that do may then be best.
inline bool countsPrices(const SearchOptions &options) { return options.objective == Objective::CostPerSample || options.mostPrice > 0; }

/// What all parts of a search share. Results never depend on the number of threads: work is handed out in batches, and whoever compares looks at
/// whole batches.
class SearchContext {
public:
  SearchContext(const Problem &problem, const SearchOptions &options);

  /// Simulates and scores, with a worker's timer; does not count as tried.
  void weigh(size_t worker, Candidate &candidate);
  /// The same of many; counts as tried.
  void simulate(std::vector<Candidate> &batch);
  /// Calls work(worker, i) for i < count, on all threads.
  void parallel(size_t count, const std::function<void(size_t worker, size_t i)> &work);

  LayoutTimer &timer(size_t worker) { return *timers[worker]; }
  /// For layouts of so many parts: 1, or as many as `parts` has.
  CutSolver &solver(size_t worker, int32_t parts = 1) { return parts > 1 ? *partSolvers[worker] : *solvers[worker]; }
  const StageModel &modelOf(const Layout &layout) const { return layout.parts > 1 ? *parts : model; }
  uint64_t nextId() { return ids++; }
  double price(const Layout &layout) const { return priceOf(problem, layout); } ///< per hour
  double scoreOf(const Layout &layout, double step, double missing) const { return planning::scoreOf(problem, options, layout, step, missing); }
  /// Part of their memory that devices lack, summed.
  double missingMemory(const std::vector<uint64_t> &memory) const;
  uint32_t tried() const { return triedCount; }
  void count(uint32_t simulated) { triedCount += simulated; }
  MoveShares moves;
  uint32_t budget = 0;
  bool spent() const { return triedCount >= budget; }
  /// For the devices that may be used now.
  SearchEffort effort() const { return SearchEffort::forDevices(devices.size(), tables.units(), problem.batch); }

  const Problem &problem;
  const SearchOptions &options;
  UnitTables tables;
  StageModel model;
  std::unique_ptr<StageModel> parts; ///< for stages that share out units; null: none do
  std::vector<uint32_t> devices;     ///< that may be used

private:
  std::vector<std::unique_ptr<LayoutTimer>> timers;
  std::vector<std::unique_ptr<CutSolver>> solvers, partSolvers;
  uint64_t ids = 0;
  uint32_t triedCount = 0;
};

/// Schedules worth trying for any layout, the most promising first. \param every  GPipe, too
std::vector<step::Schedule> scheduleChoices(const SearchContext &context, bool every);

/// Layouts from the dynamic programme, best estimate first. \param thorough  pieces of nodes, too, and several assumptions about memory: most of the
/// time
std::vector<Candidate> makeSeeds(SearchContext &context, bool thorough = true);
/// At most so many parts of some devices: without each site, class and node, each alone, the strongest together, classes of a site; of few devices,
/// one less of each class. Sites come first, nodes last.
std::vector<std::vector<uint32_t>> subclusters(const SearchContext &context, const std::vector<uint32_t> &devices, size_t most);
/// The devices that may be used, without those much slower than the mean that bring next to nothing together: a search that begins without them finds
/// what it finds where they are not, and they are taken in where that helps.
std::vector<uint32_t> withoutNegligible(const SearchContext &context);
/// All devices as one stage, with all rows: estimates, which know little of how samples overlap, tend to leave it out.
void addWhole(SearchContext &context, std::vector<Candidate> &seeds);
/// The best estimates on parts of the devices `of`, `each` of every part.
void addSubclusterSeeds(SearchContext &context, const std::vector<uint32_t> &of, size_t mostSets, size_t each, std::vector<Candidate> &seeds);

/// One pipeline of so many stages, devices and units in proportion to speed, whatever memory they take: where no seed fits, moves start there, or it
/// shows what lacks. With `laps`, the devices have that many stages each, one after the other around a ring; micro-batches have rows()[rows] rows.
/// None: there are more stages than devices, units or samples allow.
std::optional<Candidate> plainCut(const SearchContext &context, size_t stages, size_t laps = 1, size_t rows = 0);

/// A neighbour of a layout; false: this draw led nowhere. Of one whose stages have whole units, some neighbours share units out.
bool mutate(SearchContext &context, size_t worker, const Candidate &from, uint64_t seed, Candidate &to);
/// The same; whole units stay whole.
bool mutateAlike(SearchContext &context, size_t worker, const Candidate &from, uint64_t seed, Candidate &to);

/// The same layout with units in parts, which moves may then share out. Precondition: context.parts.
Candidate inParts(const SearchContext &context, const Candidate &from);
/// Sets Layout::turn: the most rows of a cell.
void setTurn(Layout &layout);
/// Other devices in a pipeline's stages, cut so that the stages' times keep their proportions: these have come to suit the way of the first samples
/// there and of the last ones back. Precondition: as many groups as stages.
/// \param level  how much nearer to their mean the times come: 0 not at all, 1 equal
bool keepTimes(const StageModel &model, const std::vector<Atom> &groups, double level, Pipeline &pipeline);
/// Two stages, and how many units or parts the first gets from the second, so that the busiest has less to do; false: no such two.
bool fromBusiest(const StageModel &model, const Pipeline &pipeline, const std::vector<float> &busy, Draws &draws, size_t &a, size_t &b, int32_t &by);

/// Devices to other groups, groups exchanged, joined, divided, `rest` taken in; false: this draw led nowhere.
bool moveGroups(const StageModel &model, Draws &draws, const std::vector<uint32_t> &rest, std::vector<Atom> &groups);

/// Devices that a layout leaves out.
std::vector<uint32_t> unusedDevices(const SearchContext &context, const Layout &layout);

/// Improves candidates by moves until the budget is spent or nothing gets better; `pool` is sorted, best first.
void refine(SearchContext &context, std::vector<Candidate> &pool);

/// What makes plans alike: devices by class of every stage.
std::string structureOf(const StageModel &model, const Layout &layout);

/// Descents from layouts of different structure with so many simulations together; for problems whose layouts take few tasks.
void descend(SearchContext &context, std::vector<Candidate> &pool, uint32_t simulations);

/// Expands the best of the pool (sorted, best first); returns the best that fits. An error: nothing does, or not what was asked for.
Result<SearchResult> judge(SearchContext &context, const std::vector<Candidate> &pool);

/// Those that are tried for all devices, what costs least first.
std::vector<Technique> techniqueAnswers();
/// The best plan with techniques, as few devices using them as it takes; none: nothing fits with any, or none has a lower score than `toBeat`.
/// Devices as `problem` has them.
std::optional<SearchResult> searchWithTechniques(const Problem &problem, const SearchOptions &options, double toBeat);
/// The best plan whose parameters come by phase: what is left where even a stage's parameters and gradients are too much for its devices. None:
/// nothing fits.
std::optional<SearchResult> searchByPhase(const Problem &problem, const SearchOptions &options);
/// One search, without techniques but the problem's.
Result<SearchResult> searchInOrder(const Problem &problem, const SearchOptions &options);
/// Score of the best that fits, and keeps the limits, of what a short search finds; none: nothing does.
/// \param used  receives its devices, ascending
std::optional<double> shortSearch(const Problem &problem, const SearchOptions &options, std::vector<uint32_t> *used = nullptr);
/// The same; where prices count, of parts of the cluster, too.
std::optional<double> shortSearchOfParts(const Problem &problem, const SearchOptions &options);
/// searchInOrder; where prices count, of the cheapest parts of the cluster, too.
Result<SearchResult> searchParts(const Problem &problem, const SearchOptions &options);

/// What the closest plan lacks, device by device, and what would make it fit.
std::string explainMemory(const SearchContext &context, const Layout &layout, const Evaluation &closest);

} // namespace zorse::planning
