// What a run's mathematics depends on: its JSON form in an index, and what differs between two runs.
#pragma once

#include "zorse/runtime/Snapshot.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace zorse::runtime {

nlohmann::ordered_json identityJson(const RunIdentity &identity);
RunIdentity parseIdentity(const nlohmann::json &json, const std::string &where, std::string &problem);

struct Difference {
  std::string what, before, now;
};

/// What makes the runs different functions of their beginning. `steps` counts only where the schedule depends on it.
std::vector<Difference> differences(const RunIdentity &before, const RunIdentity &now);

/// "batch: 16 in the snapshot, 32 here", one a line.
std::string listed(const std::vector<Difference> &differences);

/// Whether moments of one run mean the same in the other: Adam's and AdamW's do, SGD's do not.
bool sameMoments(const bundle::TrainingOptions &before, const bundle::TrainingOptions &now);

} // namespace zorse::runtime
