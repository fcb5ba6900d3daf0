// Division of one dimension of a value among the devices of a group.
#pragma once

#include "zorse/Dialect/Zorse/Interfaces.h"

#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <string>

namespace zorse::sharding {

/// A range of granules: the share of one device.
struct Share {
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
};

/// Relates the granules of an axis (attention heads, columns) to the points of a dimension. Granule
/// g consists of the points [begin + g * width, begin + (g + 1) * width) of every segment. A
/// dimension with fused parts, such as the concatenated queries, keys and values of a projection,
/// has several segments.
struct GranuleMap {
  struct Segment {
    int64_t begin, width;
    bool operator==(const Segment &o) const { return begin == o.begin && width == o.width; }
  };
  llvm::SmallVector<Segment, 2> segments; ///< ascending, disjoint

  bool operator==(const GranuleMap &o) const { return segments == o.segments; }

  /// Adds a segment. Returns false if it overlaps with a different one.
  bool add(Segment segment, int64_t granules);
  bool add(const GranuleMap &other, int64_t granules);
  /// Whether the segments contain every point of a dimension of `size`.
  bool covers(int64_t size, int64_t granules) const;
  /// Number of points of one granule: the sum of the widths.
  int64_t width() const;
};

/// A dimension of a value with its division.
struct ShardedDim {
  unsigned dim = 0;
  GranuleMap map;

  bool operator==(const ShardedDim &o) const { return dim == o.dim && map == o.map; }
};

/// Division of an op: some of its factors, each with a map of the factor's points. No two of them
/// are in one segment.
struct OpSplit {
  llvm::SmallVector<std::pair<unsigned, GranuleMap>, 1> factors; ///< by index in
                                                                 ///< `OpFactors::factors`

  const GranuleMap *find(unsigned factor) const;
};

/// Result of a conversion that may be impossible.
enum class MapStatus : uint8_t {
  None,    ///< no divided factor occurs
  Found,   ///< the conversion succeeded
  Conflict ///< several dimensions would be divided, or granules would contain parts of factors'
           ///< points
};

/// Converts a division of a dimension into divisions of the factors in the dimension of an op's
/// operand or result, and adds them to `split`. If granules contain only a part of a factor's
/// points, returns Conflict, and `coarser` receives the number of granules that the factor would
/// permit, or 0.
MapStatus addToSplit(const OpFactors &rule, const OpFactors::Dimension &dimension,
                     const GranuleMap &map, int64_t granules, OpSplit &split, int64_t &coarser);

/// Returns the divided dimension of an operand or result of a divided op.
MapStatus projectSplit(const OpFactors &rule, const OpFactors::Value &value, const OpSplit &split,
                       int64_t granules, ShardedDim &sharded);

/// Formats a map as `0:64 512:64`: begin and width of every segment.
std::string toString(const GranuleMap &map);

} // namespace zorse::sharding
