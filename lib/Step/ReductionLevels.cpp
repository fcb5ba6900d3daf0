#include "ReductionLevels.h"

#include "zorse/Base/Hash.h"
#include "zorse/Collectives/Places.h"

#include <algorithm>

using namespace zorse::step;

namespace {

/// Bytes/s of a link without a bandwidth: faster than any other.
constexpr double kUnlimited = 1e15;

double orUnlimited(double bandwidth) { return bandwidth > 0 ? bandwidth : kUnlimited; }

} // namespace

void ReductionLevels::use(const Plan &plan, const sim::Network &network) {
  std::vector<std::pair<std::string, std::string>> now;
  now.reserve(plan.devices.size());
  for (const PlanDevice &device : plan.devices)
    now.push_back({device.node, device.site});
  if (now == places)
    return;
  places = std::move(now);
  placement = zorse::collectives::placementOf(places);
  severalNodes = placement.siteOf.size() > 1 && !network.sumsPairwise();
  for (uint32_t d = 0; d < places.size(); ++d) {
    const uint32_t node = placement.nodeOf[d];
    placement.port[d] = orUnlimited(network.portBandwidth(d));
    placement.cardIn[node] = placement.cardOut[node] = orUnlimited(network.nicBandwidth(d));
    placement.uplink[placement.siteOf[node]] = network.uplinkBandwidth(d);
  }
  sums.clear();
  orders.clear();
}

size_t ReductionLevels::ListHash::operator()(const std::vector<uint32_t> &devices) const {
  SequenceHash hash;
  for (uint32_t device : devices)
    hash.add(device);
  return hash.get();
}

size_t ReductionLevels::ListHash::operator()(const std::vector<zorse::Shard> &owners) const {
  SequenceHash hash;
  for (const zorse::Shard &owner : owners)
    hash.add(owner.device)
        .add(static_cast<uint64_t>(owner.begin))
        .add(static_cast<uint64_t>(owner.end));
  return hash.get();
}

ReductionLevels::Sum &ReductionLevels::sumOf(const std::vector<uint32_t> &contributors) {
  auto [entry, isNew] = sums.try_emplace(contributors);
  if (isNew)
    entry->second.tree = zorse::collectives::makeTree(placement, contributors);
  return entry->second;
}

const zorse::collectives::Tree &ReductionLevels::treeOf(const std::vector<uint32_t> &contributors) {
  return sumOf(contributors).tree;
}

const std::optional<std::vector<zorse::collectives::LevelReduction>> &
ReductionLevels::of(const std::vector<uint32_t> &contributors,
                    const std::vector<zorse::Shard> &owners) {
  static const std::optional<std::vector<zorse::collectives::LevelReduction>> kExchange;
  if (!severalNodes)
    return kExchange;
  Sum &sum = sumOf(contributors);
  if (sum.tree.size() == 1)
    return kExchange;
  auto [entry, isNew] = sum.byOwners.try_emplace(owners);
  if (isNew) {
    zorse::collectives::Cover cover;
    cover.reserve(owners.size());
    for (const zorse::Shard &shard : owners)
      cover.push_back({shard.begin, shard.end, shard.device});
    entry->second = zorse::collectives::levelReductions(placement, sum.tree, cover);
  }
  return entry->second;
}

std::vector<uint32_t> ReductionLevels::ownerOrder(const std::vector<uint32_t> &devices) {
  if (!severalNodes)
    return devices;
  auto [entry, isNew] = orders.try_emplace(devices);
  if (isNew)
    entry->second = zorse::collectives::ownerOrder(placement, devices);
  return entry->second;
}
