// The tables of CostModel. Internal.
#pragma once

#include "CostTables.h"

#include "zorse/Planning/CostModel.h"

#include "bundle.pb.h"

#include <optional>
#include <vector>

namespace zorse::planning {

struct CostModel::Tables {
  std::vector<uint32_t> deviceClass; ///< per device of the plan
  std::vector<uint32_t> unitClass;   ///< per unit
  /// Of groups of devices: per group, device and unit of the model.
  std::vector<std::vector<std::vector<uint32_t>>> groupUnitClass;
  std::vector<DeviceTimes> times; ///< per device class
  uint32_t unitClasses = 0;
  sim::Network network;
  bundle::Topology topology;
  std::optional<Profile> profile;

  /// Assigns a class to every unit and returns one unit of each class.
  std::vector<UnitWork> classifyUnits(const bundle::ModelSummary &summary);
};

} // namespace zorse::planning
