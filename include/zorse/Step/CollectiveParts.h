// Collectives whose members have different elements, as collectives with equal ones.
#pragma once

#include "zorse/Step/StepGraph.h"

#include <map>
#include <utility>
#include <vector>

namespace zorse::step {

/// Calls `visit(members, owned)` for every set of members with equal elements. `owned` lists the
/// owners of these elements, each once, and their numbers of elements.
template <typename Visit> void forUniformParts(const Collective &collective, Visit visit) {
  using Owned = std::vector<std::pair<uint32_t, int64_t>>;
  if (collective.parts.empty()) {
    Owned owned;
    for (const Shard &shard : collective.shards)
      owned.push_back({shard.device, shard.size()});
    return visit(collective.members, owned);
  }
  std::map<std::vector<uint32_t>, std::map<uint32_t, int64_t>> elementsOf;
  for (const Shard &shard : collective.shards)
    elementsOf[holdersOf(collective.parts, shard)][shard.device] += shard.size();
  for (const auto &[members, elements] : elementsOf)
    if (!members.empty())
      visit(members, Owned(elements.begin(), elements.end()));
}

} // namespace zorse::step
