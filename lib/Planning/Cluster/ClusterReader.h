// How a cluster file is read, piece by piece. Everything throws fields::Bad.
#pragma once

#include "ClusterFields.h"

#include "zorse/Planning/Cluster.h"

#include <string>
#include <unordered_set>

namespace zorse::planning {

/// What a device of this type has when the file does not say otherwise; without a type, what one of its kind and threads is taken to have.
void setDefaults(ClusterDevice &device, const DeviceType *type);

/// One entry of a node's `devices`: everything but names and node. `templates`: the file's templates.devices, perhaps undefined.
struct DeviceEntry {
  ClusterDevice device; ///< its name is the entry's
  uint32_t count = 1;
  bool counted = false;
  YAML::Node at;
};
DeviceEntry readDeviceEntry(const YAML::Node &node, const YAML::Node &templates);

/// The entry's template, or an undefined node.
YAML::Node templateOf(const YAML::Node &node, const std::string &what, const YAML::Node &templates);

bundle::LinkClass readLink(const YAML::Node &node, const std::string &what, const bundle::LinkClass &defaults);

} // namespace zorse::planning
