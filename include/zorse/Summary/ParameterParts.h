// Parts of parameters that devices of groups have (tensor parallelism).
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace zorse {

/// A range of granules.
struct GranuleRange {
  int64_t first = 0, count = 0;

  bool operator==(const GranuleRange &o) const { return first == o.first && count == o.count; }
};

/// A device's part of a parameter: granules of a dimension (ParameterInfo.Shard).
struct ParameterDivision {
  uint32_t dim = 0;
  std::vector<int64_t> begins, widths; ///< by segment
  GranuleRange share;                  ///< of the device
  /// The range that is stored as one tensor. It is larger than the share if groups divide the
  /// parameter at different places.
  GranuleRange stored;
};

/// Adds parts of parameters to a summary.
class ParameterParts {
public:
  /// \param copies  the types of the copies that units read, by parameter; grows with the summary
  ParameterParts(bundle::ModelSummary &summary, std::vector<bundle::ElementType> &copies)
      : summary(summary), copies(copies) {}

  /// Replaces a parameter of a device's unit by the device's part of it.
  /// \param position  in UnitInfo.parameters
  void divide(bundle::UnitInfo &unit, uint32_t position, const ParameterDivision &division);

private:
  /// Finds or adds the parameter that contains the stored range.
  uint32_t find(uint32_t parameter, const ParameterDivision &division);

  bundle::ModelSummary &summary;
  std::vector<bundle::ElementType> &copies;
  std::map<std::tuple<uint32_t, int64_t, int64_t>, uint32_t> known; ///< by parameter and range
};

} // namespace zorse
