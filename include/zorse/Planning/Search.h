// The planner: the layout that trains fastest, or cheapest, within every device's memory.
#pragma once

#include "zorse/Planning/Layout.h"

#include <functional>

namespace zorse::planning {

enum class Objective : uint8_t { Throughput, CostPerSample };

struct SearchOptions {
  Objective objective = Objective::Throughput;
  double leastThroughput = 0; ///< CostPerSample: samples/s that must be reached
  double mostPrice = 0;       ///< per hour, of the devices in use; 0: no limit
  uint64_t seed = 1;
  uint32_t candidates = 0; ///< budget, in simulated candidates, beside those of parts of the cluster; 0: by the size of the problem. The same seed
                           ///< and budget give the same plan on any machine
  unsigned threads = 0;    ///< 0: all cores. The result does not depend on it
  // What the user fixes; 0 or empty: chosen.
  uint32_t stages = 0, pipelines = 0;
  int64_t rows = 0; ///< most rows of a micro-batch
  std::optional<step::ScheduleKind> schedule;
  std::optional<bool> splitBackward;
  std::vector<uint32_t> excluded; ///< devices to leave out
  bool techniques = true;         ///< memory techniques may answer where memory lacks or binds
  bool remedies = true;           ///< where nothing fits, the message says what would help: takes about as long as the search
  /// Called from one thread now and then: what has been tried, the best so far.
  std::function<void(uint32_t tried, uint32_t budget, double bestStep)> progress;
};

struct SearchResult {
  Layout layout;
  step::Plan plan;
  Evaluation evaluation; ///< of the plan, by the full expansion
  double price = 0;      ///< per hour
  uint32_t tried = 0;    ///< candidates simulated
};

/// The schedules that the search chooses from.
const std::vector<step::ScheduleKind> &searchedSchedules();

/// \returns nullopt and an itemised message if nothing fits: which device lacks how many bytes in the plan that comes closest, and what would help.
Result<SearchResult> searchPlan(const Problem &problem, const SearchOptions &options);

} // namespace zorse::planning
