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

/// What makes the runs different functions of their beginning. That a decay which ends with the run ends elsewhere because the run is longer or
/// shorter is no such difference: explainDecay says it.
std::vector<Difference> differences(const RunIdentity &before, const RunIdentity &now);

/// What it means that a run which goes on after `step` has another length than the one before, where its decay ends with it; else nothing.
std::string explainDecay(const RunIdentity &before, const RunIdentity &now, uint64_t step);

/// "batch: 16 in the snapshot, 32 here", one a line.
std::string listed(const std::vector<Difference> &differences);

/// Whether moments of one run mean the same in the other: Adam's and AdamW's do, SGD's do not.
bool sameMoments(const bundle::TrainingOptions &before, const bundle::TrainingOptions &now);

} // namespace zorse::runtime
