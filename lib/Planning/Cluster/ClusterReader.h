// Parts of the cluster file reader. All functions throw fields::Bad.
#pragma once

#include "ClusterFields.h"

#include "zorse/Planning/Cluster.h"

#include <string>
#include <unordered_set>

namespace zorse::planning {

/// Sets the default values of a device of this type. If `type` is null, sets the values assumed for
/// its kind and threads.
void setDefaults(ClusterDevice &device, const DeviceType *type);

/// One entry of a node's `devices`, without names and node. `templates` are the file's
/// templates.devices and may be undefined.
struct DeviceEntry {
  ClusterDevice device; ///< `name` is the entry's name
  uint32_t count = 1;
  bool counted = false;
  YAML::Node at;
};
DeviceEntry readDeviceEntry(const YAML::Node &node, const YAML::Node &templates);

/// Returns the entry's template, or an undefined node.
YAML::Node templateOf(const YAML::Node &node, const std::string &what, const YAML::Node &templates);

bundle::LinkSpec readLink(const YAML::Node &node, const std::string &what,
                          const bundle::LinkSpec &defaults);

} // namespace zorse::planning
