// Layer tables (docs/reference/layers-json.md): a model and its times as measured by another
// system's profiler, without an exported model.
#pragma once

#include "zorse/Planning/Profile.h"

#include "bundle.pb.h"

#include <set>
#include <string>
#include <vector>

namespace zorse::planning {

/// Contents of a layer table in the form that the planner uses for every model: a summary and a
/// profile.
struct LayerTable {
  bundle::ModelSummary summary;
  Profile profile;
  std::vector<std::string> assumptions; ///< human-readable assumptions about data that the table
                                        ///< does not contain
  std::set<std::string> withoutFlops;   ///< classes without FLOPs: devices need measured times for
                                        ///< them
};

Result<LayerTable> readLayers(const std::string &json);
/// Messages start with the path.
Result<LayerTable> readLayersFile(const std::string &path);

/// Checks that every device of the cluster has times of every class, measured or derived from its
/// FLOPs.
/// \param profile  the table's profile, with others merged into it
Status checkLayerTimes(const LayerTable &table, const Cluster &cluster, const Profile &profile);

} // namespace zorse::planning
