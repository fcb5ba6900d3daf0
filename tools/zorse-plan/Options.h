// Command-line options of zorse-plan.
#pragma once

#include "zorse/Pipelines/Compile.h"
#include "zorse/Planning/Search.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::plan {

struct Options {
  std::string model, summary, shape, cluster, profile, plan, near, output, html, json, schedule,
      objective = "throughput", split, planner = "zorse";
  std::optional<bool> overlap; ///< of communication with computation
  bool optimizerInBackward = false;
  std::string sendProtocol; ///< step::kSendProtocols; "": not given
  std::vector<std::string> exclude, compare;
  std::vector<std::string> compareClusters;      ///< cluster files
  bool shop = false;                             ///< choose nodes of the cluster to rent
  double amount = 0, maxHours = 0, maxTotal = 0; ///< planning::RentalGoal
  int64_t batch = 0;
  bool quiet = false, verbose = false, explain = false;
  bool precisionGiven = false; ///< --precision
  planning::SearchOptions search;
  uint32_t maxGroup = 1; ///< devices that divide a unit
  pipelines::CompileOptions compile;
};

/// Adds the flags of `options`, which must outlive parsing.
void addOptions(CLI::App &app, Options &options);

/// Refuses options that contradict --near.
Status checkNear(const Options &options);

/// Returns the path of the plan that --near names.
std::string nearPlanPath(const Options &options);

/// Returns the communication that the flags choose, otherwise the plan's. \param plan  null: none
Result<step::Communication> communicationOf(const Options &options, const step::Plan *plan);

} // namespace zorse::plan
