// Collectives whose members have different elements, as collectives with equal ones.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Simulation/Network.h"

#include <algorithm>
#include <map>
#include <vector>

namespace zorse::sim {

/// Calls `visit(members, pieces)` for every set of members with equal elements. `pieces` lists the
/// owners of these elements and their bytes.
/// \param parts  elements of the members; empty: each has all
template <typename Visit>
void forUniformParts(const std::vector<uint32_t> &members, const std::vector<Shard> &shards,
                     const std::vector<Shard> &parts, double elementBytes, Visit visit) {
  std::vector<Piece> pieces;
  if (parts.empty()) {
    for (const Shard &shard : shards)
      if (!shard.empty())
        pieces.push_back({shard.device, static_cast<double>(shard.size()) * elementBytes});
    return visit(members, pieces);
  }
  std::map<std::vector<uint32_t>, std::map<uint32_t, int64_t>> elementsOf;
  for (const Shard &shard : shards)
    if (!shard.empty())
      elementsOf[holdersOf(parts, shard)][shard.device] += shard.size();
  for (const auto &[holders, elements] : elementsOf) {
    pieces.clear();
    for (auto [device, count] : elements)
      pieces.push_back({device, static_cast<double>(count) * elementBytes});
    if (!holders.empty())
      visit(holders, pieces);
  }
}

/// Times of a gather or a reduction from `start` on.
inline TransferTimes collectiveTimes(Traffic &traffic, bool gathers,
                                     const std::vector<uint32_t> &members,
                                     const std::vector<Shard> &shards,
                                     const std::vector<Shard> &parts, double elementBytes,
                                     double start) {
  TransferTimes times{start, start};
  forUniformParts(members, shards, parts, elementBytes,
                  [&](const std::vector<uint32_t> &some, const std::vector<Piece> &pieces) {
                    const TransferTimes part = gathers ? traffic.allGather(pieces, some, start)
                                                       : traffic.reduceScatter(some, pieces, start);
                    times = {std::max(times.sent, part.sent),
                             std::max(times.arrived, part.arrived)};
                  });
  return times;
}

} // namespace zorse::sim
