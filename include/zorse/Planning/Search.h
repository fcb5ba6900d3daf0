// The planner: finds the strategy with the shortest step, or the lowest price, that fits in the
// memory of every device.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <functional>

namespace zorse::planning {

class NearPlan;

enum class Objective : uint8_t { Throughput, CostPerSample };

struct SearchOptions {
  Objective objective = Objective::Throughput;
  double minThroughput = 0; ///< CostPerSample: minimum samples/s
  double maxPrice = 0;      ///< maximum price per hour of the devices in use; 0: unlimited
  uint64_t seed = 1;
  uint32_t candidates = 0; ///< budget of simulated candidates, without those for subsets of the
                           ///< cluster; 0: by the problem size. The same seed and budget give the
                           ///< same plan on any machine
  /// Seconds of one core for walks and descents, about: counted in simulated instructions, so that
  /// the plan does not depend on the machine. 0: by the problem size.
  double seconds = 0;
  bool ranks = false;   ///< a search that only compares a problem with others: with at most a
                        ///< quarter of the budget by the problem size
  unsigned threads = 0; ///< 0: all cores. The result does not depend on it
  // Choices that the user fixes; 0 or empty: the search chooses.
  uint32_t stages = 0, pipelines = 0;
  int64_t maxMicroBatchSize = 0; ///< maximum micro-batch size
  std::optional<step::ScheduleKind> schedule;
  std::optional<bool> splitBackward;
  bool wholeUnits = false;         ///< stages share no units
  std::vector<uint32_t> excluded;  ///< devices to leave out
  std::vector<Strategy> starts;    ///< the search also starts from these, such as the best ones of
                                   ///< a similar problem
  const NearPlan *near = nullptr;  ///< set by repairPlan: a short search that also starts from
                                   ///< repairs of this plan
  bool memoryOptimizations = true; ///< try memory optimizations if memory is insufficient or nearly
                                   ///< full
  bool memoryHints = true; ///< if no plan fits, the message suggests changes that would help: takes
                           ///< about as long as the search
  /// Progress callback, called from one thread from time to time: candidates tried, the budget, the
  /// best step so far in seconds.
  std::function<void(uint32_t tried, uint32_t budget, double bestStep)> progress;
};

struct SearchResult {
  Strategy strategy;
  step::Plan plan;
  Evaluation evaluation; ///< of `plan`, by the full expansion
  double price = 0;      ///< per hour
  uint32_t tried = 0;    ///< number of candidates simulated
};

/// The schedules that the search chooses from.
const std::vector<step::ScheduleKind> &searchedSchedules();

/// Searches for the best plan. \returns nullopt and an itemized message if no plan fits: which
/// devices exceed their memory by how many bytes in the best plan, and which changes would help
Result<SearchResult> searchPlan(const Problem &problem, const SearchOptions &options);

} // namespace zorse::planning
