// Models whose units can be divided among the devices of a group (tensor parallelism).
#pragma once

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// A group of devices of a plan, and the units that it divides.
struct UnitGroup {
  std::string name;
  std::vector<double> shares;  ///< by device
  std::vector<uint32_t> units; ///< ascending
};

/// A summary with groups (ModelSummary.device_groups), and its compiled functions, if there are
/// any.
struct DividedModel {
  bundle::ModelSummary summary;
  std::optional<bundle::FunctionLibrary> functions;
};

class DivisibleModel {
public:
  virtual ~DivisibleModel() = default;
  /// \returns an error if a device would have no part of an axis
  virtual Result<DividedModel> divide(const std::vector<UnitGroup> &groups) = 0;
};

} // namespace zorse::planning
