// Tables of layers (docs/layers.md): a model and its measured times as another system's profiler knows them, without an exported model.
#pragma once

#include "zorse/Planning/Profile.h"

#include "bundle.pb.h"

#include <set>
#include <string>
#include <vector>

namespace zorse::planning {

/// What a table says, as planning has it of any model: a summary and a profile.
struct LayerTable {
  bundle::ModelSummary summary;
  Profile profile;
  std::vector<std::string> assumptions; ///< what the table leaves open and was taken for known, for people
  std::set<std::string> withoutFlops;   ///< classes whose work is not given: devices can only be planned for with measured times
};

Result<LayerTable> readLayers(const std::string &json);
/// Messages start with the path.
Result<LayerTable> readLayersFile(const std::string &path);

/// Whether every device of the cluster has times of every class, measured or from its FLOPs. `profile`: the table's, with others merged into it.
Status checkLayerTimes(const LayerTable &table, const Cluster &cluster, const Profile &profile);

} // namespace zorse::planning
