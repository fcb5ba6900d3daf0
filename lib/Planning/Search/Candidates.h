// Layouts that a search weighs, and the workers that simulate them. Internal to Planning.
#pragma once

#include "Intervals.h"
#include "../Layout/QuickSimulation.h"
#include "StageModel.h"

#include "zorse/Planning/Search.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace zorse::planning {

struct Candidate {
  Layout layout;
  double inFlight = 1;     ///< CutOptions::inFlight it was cut with
  double estimate = 0;     ///< seconds, before it was simulated
  double step = 0;         ///< seconds, simulated
  double score = 0;        ///< what is minimised: seconds or price per sample, with what is missing in memory and throughput as a penalty
  uint64_t excess = 0;     ///< bytes
  uint32_t tasks = 0;
  uint64_t id = 0;         ///< order in which candidates were made; breaks ties
};

inline bool better(const Candidate &a, const Candidate &b) { return a.score != b.score ? a.score < b.score : a.id < b.id; }

/// What all parts of a search share. Results never depend on the number of threads: work is handed out in batches, and whoever compares looks at whole
/// batches.
class SearchContext {
public:
  SearchContext(const Problem &problem, const SearchOptions &options);

  /// Simulates and scores; counts as tried.
  void simulate(std::vector<Candidate> &batch);
  /// Calls work(worker, i) for i < count, on all threads.
  void parallel(size_t count, const std::function<void(size_t worker, size_t i)> &work);

  QuickSimulation &simulation(size_t worker) { return *simulations[worker]; }
  CutSolver &solver(size_t worker) { return *solvers[worker]; }
  uint64_t nextId() { return ids++; }
  double price(const Layout &layout) const; ///< per hour
  double scoreOf(const Layout &layout, double step, double missing) const;
  /// Part of their memory that devices lack, summed, where they are to keep `spare` of it.
  double missingMemory(const std::vector<uint64_t> &memory, double spare = 0) const;
  uint32_t tried() const { return triedCount; }
  void count(uint32_t simulated) { triedCount += simulated; }
  uint32_t budget = 0;
  bool spent() const { return triedCount >= budget; }

  const Problem &problem;
  const SearchOptions &options;
  UnitTables tables;
  StageModel model;
  std::vector<uint32_t> devices; ///< that may be used

private:
  std::vector<std::unique_ptr<QuickSimulation>> simulations;
  std::vector<std::unique_ptr<CutSolver>> solvers;
  uint64_t ids = 0;
  uint32_t triedCount = 0;
};

/// Schedules worth trying for any layout, the most promising first.
std::vector<step::Schedule> scheduleChoices(const SearchContext &context, bool small);

/// Layouts from the dynamic programme, best estimate first.
std::vector<Candidate> makeSeeds(SearchContext &context);

/// A neighbour of a layout; false: this draw led nowhere.
bool mutate(SearchContext &context, CutSolver &solver, const Candidate &from, uint64_t seed, Candidate &to);

/// Improves candidates by moves until the budget is spent or nothing gets better; `pool` is sorted, best first.
void refine(SearchContext &context, std::vector<Candidate> &pool);

/// What makes plans alike: devices by class of every stage.
std::string structureOf(const StageModel &model, const Layout &layout);

/// Descents from layouts of different structure with so many simulations together; for problems whose layouts take few tasks.
void descend(SearchContext &context, std::vector<Candidate> &pool, uint32_t simulations);

/// The best of the pool by the full expansion, and what descents by it find, with so many expansions; `step` and `score` are those of the full expansion.
std::vector<Candidate> descendFully(SearchContext &context, const std::vector<Candidate> &pool, uint32_t evaluations);

/// What the closest plan lacks, device by device, and what would make it fit.
std::string explainMemory(const SearchContext &context, const Layout &layout, const Evaluation &closest);

/// Branch and bound over the whole space of small problems; see ExactSearch.cpp. Returns false if the budget did not suffice for a proof.
bool isSmall(const SearchContext &context);
bool searchExactly(SearchContext &context, std::vector<Candidate> &pool);

} // namespace zorse::planning
