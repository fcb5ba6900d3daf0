#include "ReductionLevels.h"

#include "zorse/Base/Hash.h"
#include "zorse/Collectives/Places.h"

#include <algorithm>

using namespace zorse::step;
using zorse::collectives::Extent;
using zorse::collectives::LevelReduction;
using zorse::collectives::Tree;

namespace {

/// Bytes/s of a link without a bandwidth: faster than any other.
constexpr double kUnlimited = 1e15;

double orUnlimited(double bandwidth) { return bandwidth > 0 ? bandwidth : kUnlimited; }

/// Returns the run of a device in a list; empty if it has none.
Extent runOf(const std::vector<Extent> &list, uint32_t device) {
  Extent run{0, 0, device};
  for (const Extent &extent : list)
    if (extent.device == device)
      run = {run.length() ? run.begin : extent.begin, extent.end, device};
  return run;
}

std::vector<zorse::Shard> shardsOf(const std::vector<Extent> &extents) {
  std::vector<zorse::Shard> shards;
  shards.reserve(extents.size());
  for (const Extent &extent : extents)
    shards.push_back({extent.device, extent.begin, extent.end});
  return shards;
}

/// Returns what a device adds: its gradients, a sum of a group below, or the sum that it passes on.
uint32_t summedBy(const Tree &tree, const LevelReduction &reduction, uint32_t device) {
  if (reduction.forwards)
    return reduction.group;
  for (const zorse::collectives::Child child : tree[reduction.group].children) {
    if (child.isContributor()) {
      if (child.device() == device)
        break;
      continue;
    }
    const auto &below = tree[child.index()].contributors;
    if (std::find(below.begin(), below.end(), device) != below.end())
      return static_cast<uint32_t>(child.index());
  }
  return LevelExchange::kGradients;
}

LevelExchange exchangeOf(const Tree &tree, const LevelReduction &reduction) {
  LevelExchange exchange;
  exchange.group = reduction.group;
  exchange.toOwner = reduction.toOwner;
  exchange.members = reduction.members;
  exchange.terms = shardsOf(reduction.terms);
  exchange.results = shardsOf(reduction.results);
  std::vector<uint32_t> devices = reduction.members;
  for (const Extent &result : reduction.results)
    devices.push_back(result.device);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  exchange.participants.reserve(devices.size());
  for (uint32_t d : devices)
    exchange.participants.push_back(
        {d, runOf(reduction.terms, d), runOf(reduction.results, d), summedBy(tree, reduction, d)});
  return exchange;
}

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

const std::optional<std::vector<LevelExchange>> &
ReductionLevels::of(const std::vector<uint32_t> &contributors,
                    const std::vector<zorse::Shard> &owners) {
  static const std::optional<std::vector<LevelExchange>> kExchange;
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
    const auto reductions = zorse::collectives::levelReductions(placement, sum.tree, cover);
    if (reductions) {
      entry->second.emplace().reserve(reductions->size());
      for (const LevelReduction &reduction : *reductions)
        entry->second->push_back(exchangeOf(sum.tree, reduction));
    }
  }
  return entry->second;
}

bool ReductionLevels::roundsTerms(GradientWire wire, const Collective &collective) const {
  if (wire == GradientWire::Unrounded)
    return false;
  const bool several = collective.parts.empty()
                           ? collective.members.size() > 1
                           : std::any_of(collective.shards.begin(), collective.shards.end(),
                                         [&](const zorse::Shard &shard) {
                                           return !shard.empty() &&
                                                  holdersOf(collective.parts, shard).size() > 1;
                                         });
  std::vector<uint32_t> devices = collective.members;
  for (const zorse::Shard &shard : collective.shards)
    if (!shard.empty())
      devices.push_back(shard.device);
  return several && (wire == GradientWire::Bf16BetweenSites
                         ? zorse::collectives::crossSites(placement, devices)
                         : zorse::collectives::crossNodes(placement, devices));
}

std::vector<uint32_t> ReductionLevels::ownerOrder(const std::vector<uint32_t> &devices) {
  if (!severalNodes)
    return devices;
  auto [entry, isNew] = orders.try_emplace(devices);
  if (isNew)
    entry->second = zorse::collectives::ownerOrder(placement, devices);
  return entry->second;
}
