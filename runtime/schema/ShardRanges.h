// Whose the elements of a gather or a reduction are, as programs store it. Of programs that have
// not been checked, lists have what their arrays have in common.
#pragma once

#include "zorse/Base/Runs.h"

#include "bundle.pb.h"

namespace zorse::bundle {

inline std::vector<Shard> shardsOf(const ShardRanges &extents) {
  std::vector<Shard> shards;
  const int size = std::min({extents.members_size(), extents.begin_size(), extents.end_size()});
  for (int i = 0; i < size; ++i)
    shards.push_back({extents.members(i), extents.begin(i), extents.end(i)});
  return shards;
}

/// Those of one device.
inline Compact shardsOf(const ShardRanges &extents, uint32_t device) {
  Compact shards;
  const int size = std::min({extents.members_size(), extents.begin_size(), extents.end_size()});
  for (int i = 0; i < size; ++i)
    if (extents.members(i) == device)
      shards.add(extents.begin(i), extents.end(i));
  return shards;
}

} // namespace zorse::bundle
