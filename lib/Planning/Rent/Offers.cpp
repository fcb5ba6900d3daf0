#include "zorse/Planning/Rent.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// What makes devices of a node equal to those of another.
using DeviceKey = std::tuple<std::string, std::string, std::string, double, double, double,
                             uint64_t, uint64_t, double, double>;
using NodeKey =
    std::tuple<uint32_t, double, double, uint64_t, double, double, std::vector<DeviceKey>>;

NodeKey keyOf(const Cluster &cluster, uint32_t node, const std::vector<uint32_t> &devices) {
  std::vector<DeviceKey> keys;
  for (const uint32_t d : devices) {
    const ClusterDevice &device = cluster.devices[d];
    keys.emplace_back(device.type, device.kind, device.arch, device.flopsPerSecond[0],
                      device.flopsPerSecond[1], device.flopsPerSecond[2], device.memory,
                      device.reservedMemory, device.slowdown, device.price);
  }
  std::sort(keys.begin(), keys.end());
  const auto &links = cluster.topology.nodes(static_cast<int>(node));
  const ClusterNode &described = cluster.nodes[node];
  return {links.site(),   links.nic().bandwidth(), links.port().bandwidth(), described.hostMemory,
          described.pcie, described.price,         std::move(keys)};
}

/// "4 x A100-40 + 2 x T4".
std::string contentOf(const Cluster &cluster, const std::vector<uint32_t> &devices) {
  std::map<std::string, size_t> counts;
  for (const uint32_t d : devices) {
    const ClusterDevice &device = cluster.devices[d];
    ++counts[device.type.empty() ? device.kind : device.type];
  }
  std::string text;
  for (const auto &[type, count] : counts)
    text += (text.empty() ? "" : " + ") + (count > 1 ? std::to_string(count) + " x " : "") + type;
  return text;
}

/// Numbers of nodes of an offer to try, ascending; `steps` numbers between 0 and all.
std::vector<size_t> countsOf(size_t nodes, size_t steps) {
  std::vector<size_t> counts{0};
  for (size_t count = 1, step = 1; count < nodes && counts.size() <= steps; count += step) {
    counts.push_back(count);
    if (count >= 4 && (count & (count - 1)) == 0) // 4, 6, 8, 12, 16, 24, ...
      step = count / 2;
  }
  counts.push_back(nodes);
  return counts;
}

} // namespace

std::vector<Offer> planning::offersOf(const Cluster &cluster) {
  std::vector<std::vector<uint32_t>> devicesOf(cluster.nodes.size());
  for (uint32_t d = 0; d < cluster.devices.size(); ++d)
    devicesOf[cluster.devices[d].node].push_back(d);
  std::map<NodeKey, size_t> known;
  std::vector<Offer> offers;
  for (uint32_t node = 0; node < devicesOf.size(); ++node) {
    if (devicesOf[node].empty())
      continue;
    const auto [entry, isNew] =
        known.try_emplace(keyOf(cluster, node, devicesOf[node]), offers.size());
    if (isNew) {
      Offer &offer = offers.emplace_back();
      offer.name = contentOf(cluster, devicesOf[node]);
      const auto site = static_cast<int>(cluster.topology.nodes(static_cast<int>(node)).site());
      if (cluster.topology.sites_size() > 1)
        offer.name += " in " + cluster.topology.sites(site).name();
      offer.price = cluster.nodes[node].price;
      for (const uint32_t d : devicesOf[node])
        offer.price += cluster.devices[d].price;
    }
    offers[entry->second].nodes.push_back(std::move(devicesOf[node]));
  }
  return offers;
}

/// Every combination of countsOf; empty if there are more than `most`.
static std::vector<std::vector<size_t>> combinations(const std::vector<Offer> &offers, size_t steps,
                                                     size_t most) {
  std::vector<std::vector<size_t>> selections(1);
  for (const Offer &offer : offers) {
    std::vector<std::vector<size_t>> longer;
    for (const std::vector<size_t> &selection : selections)
      for (const size_t count : countsOf(offer.nodes.size(), steps)) {
        longer.push_back(selection);
        longer.back().push_back(count);
      }
    if (longer.size() > most)
      return {};
    selections = std::move(longer);
  }
  return selections;
}

std::vector<std::vector<size_t>> planning::selectionsOf(const std::vector<Offer> &offers,
                                                        double maxPrice, size_t most) {
  std::vector<std::vector<size_t>> selections;
  for (size_t steps = 13; steps-- > 0 && selections.empty();)
    selections = combinations(offers, steps, most);
  if (selections.empty()) { // too many offers: all, all but one, one alone
    std::vector<size_t> all, none(offers.size(), 0);
    for (const Offer &offer : offers)
      all.push_back(offer.nodes.size());
    selections.push_back(all);
    for (size_t i = 0; i < offers.size(); ++i)
      for (std::vector<size_t> selection : {all, none}) {
        selection[i] = all[i] - selection[i];
        selections.push_back(std::move(selection));
      }
  }
  auto isLeftOut = [&](const std::vector<size_t> &selection) {
    double price = 0;
    for (size_t i = 0; i < selection.size(); ++i)
      price += static_cast<double>(selection[i]) * offers[i].price;
    return std::all_of(selection.begin(), selection.end(), [](size_t n) { return n == 0; }) ||
           (maxPrice > 0 && price > maxPrice);
  };
  selections.erase(std::remove_if(selections.begin(), selections.end(), isLeftOut),
                   selections.end());
  return selections;
}
