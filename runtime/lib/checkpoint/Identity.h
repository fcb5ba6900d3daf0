// The options that determine a run's mathematics: their JSON form in an index, and the differences
// between two runs.
#pragma once

#include "zorse/runtime/Checkpoint.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace zorse::runtime {

nlohmann::ordered_json runConfigJson(const RunConfig &runConfig);
RunConfig parseRunConfig(const nlohmann::json &json, const std::string &where,
                         std::string &problem);

struct Difference {
  std::string what, before, now;
};

/// Differences that change the result of the steps so far. A decay that ends with the run ends at
/// another step if the run is longer or shorter; this is not a difference, explainDecay describes
/// it.
std::vector<Difference> differences(const RunConfig &before, const RunConfig &now);

/// Describes the effect if a run that resumes after `step` has another length than the previous one
/// and its decay ends with it; else empty.
std::string explainDecay(const RunConfig &before, const RunConfig &now, uint64_t step);

/// One line per difference: "batch: 16 in the snapshot, 32 here".
std::string listed(const std::vector<Difference> &differences);

/// Whether the optimizer states of one run can be used in the other: equal kinds of states, such as
/// those of Adam and AdamW.
bool sameMoments(const bundle::TrainingOptions &before, const bundle::TrainingOptions &now);

} // namespace zorse::runtime
