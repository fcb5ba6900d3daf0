// Collectives whose members have different elements, as collectives with equal ones.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Simulation/Network.h"

#include <algorithm>
#include <map>
#include <vector>

namespace zorse::sim {

/// Whether all parts are the same run of elements, and contain all shards.
inline bool areEqualParts(const std::vector<Shard> &shards, const std::vector<Shard> &parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const Shard &part) {
                       return part.begin == parts.front().begin && part.end == parts.front().end;
                     }) &&
         std::all_of(shards.begin(), shards.end(),
                     [&](const Shard &shard) { return shard.empty() || parts.front().has(shard); });
}

/// Bytes of an element: of shards that are passed on, and of a term of a sum of several terms.
struct BytesPerElement {
  double passed, term;
};

/// Returns the bytes of every device with a shard.
inline std::vector<Piece> piecesOf(const std::vector<Shard> &shards, double elementBytes) {
  std::vector<Piece> pieces;
  pieces.reserve(shards.size());
  for (const Shard &shard : shards)
    if (!shard.empty())
      pieces.push_back({shard.device, static_cast<double>(shard.size()) * elementBytes});
  return pieces;
}

/// Calls `visit(members, pieces)` for every set of members with equal elements. `pieces` lists the
/// owners of these elements and their bytes.
/// \param parts  elements of the members, in their order; empty: each has all
/// \param sums   members with several terms send them in `bytes.term` each
template <typename Visit>
void forUniformParts(const std::vector<uint32_t> &members, const std::vector<Shard> &shards,
                     const std::vector<Shard> &parts, BytesPerElement bytes, bool sums,
                     Visit visit) {
  auto bytesOf = [&](size_t holders) { return sums && holders > 1 ? bytes.term : bytes.passed; };
  if (parts.empty() || (parts.size() == members.size() && areEqualParts(shards, parts)))
    return visit(members, piecesOf(shards, bytesOf(members.size())));
  std::map<std::vector<uint32_t>, std::map<uint32_t, int64_t>> elementsOf;
  for (const Shard &shard : shards)
    if (!shard.empty())
      elementsOf[holdersOf(parts, shard)][shard.device] += shard.size();
  std::vector<Piece> pieces;
  for (const auto &[holders, elements] : elementsOf) {
    pieces.clear();
    for (auto [device, count] : elements)
      pieces.push_back({device, static_cast<double>(count) * bytesOf(holders.size())});
    if (!holders.empty())
      visit(holders, pieces);
  }
}

/// Times of a gather or a reduction from `start` on.
inline TransferTimes collectiveTimes(Traffic &traffic, bool gathers,
                                     const std::vector<uint32_t> &members,
                                     const std::vector<Shard> &shards,
                                     const std::vector<Shard> &parts, BytesPerElement bytes,
                                     double start) {
  TransferTimes times{start, start};
  forUniformParts(members, shards, parts, bytes, !gathers,
                  [&](const std::vector<uint32_t> &some, const std::vector<Piece> &pieces) {
                    const TransferTimes part = gathers ? traffic.allGather(pieces, some, start)
                                                       : traffic.reduceScatter(some, pieces, start);
                    times = {std::max(times.sent, part.sent),
                             std::max(times.arrived, part.arrived)};
                  });
  return times;
}

} // namespace zorse::sim
