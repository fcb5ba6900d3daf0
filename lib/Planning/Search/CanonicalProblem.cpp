#include "CanonicalProblem.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cstdio>

using namespace zorse;
using namespace zorse::planning;

namespace {

void add(std::string &text, double number) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%a,", number);
  text += digits;
}

std::string signatureOf(const bundle::LinkSpec &link) { return link.SerializeAsString(); }

/// Returns the signature of a device, with its times of all kinds of units, because a profile may
/// refer to the device by name.
std::string signatureOf(const Problem &problem, uint32_t d) {
  const ClusterDevice &device = problem.cluster.devices[d];
  std::string text = device.kind + "/" + device.arch + "/" + device.type + "/";
  for (double number : {double(device.multiprocessors), device.halfPeakRows,
                        double(device.executionMode), device.memoryBandwidth, device.launchOverhead,
                        double(device.memory), double(device.reservedMemory),
                        double(device.threads), device.price, double(device.deviceToDevice)})
    add(text, number);
  for (double speed : device.flopsPerSecond)
    add(text, speed);
  std::vector<uint8_t> seen;
  for (int32_t u = 0; u < problem.summary.units_size(); ++u) {
    const uint32_t unitClass = problem.costs.unitClass(u);
    if (unitClass < seen.size() && seen[unitClass])
      continue;
    seen.resize(std::max<size_t>(seen.size(), unitClass + 1));
    seen[unitClass] = 1;
    for (int64_t rows : {1, 8})
      for (step::UnitTask task : {step::UnitTask::Forward, step::UnitTask::Backward})
        add(text, problem.costs.unit(d, u, task, rows));
  }
  for (double seconds : {problem.costs.update(d, {1 << 20}), problem.costs.copy(d, 1 << 20),
                         problem.costs.load(d, 1 << 20)})
    add(text, seconds);
  return text;
}

/// An item to sort: faster and larger ones first, then by signature, then by name if there are
/// names, then in the original order.
struct Item {
  uint32_t index;
  double speed = 0, memory = 0;
  std::string signature;
  std::string name = {};

  bool operator<(const Item &o) const {
    if (speed != o.speed)
      return speed > o.speed;
    if (memory != o.memory)
      return memory > o.memory;
    if (signature != o.signature)
      return signature < o.signature;
    if (name != o.name)
      return name < o.name;
    return index < o.index;
  }
  void contain(const Item &part) {
    speed += part.speed;
    memory += part.memory;
  }
};

std::string joined(std::vector<std::string> parts) {
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string &part : parts)
    text += std::to_string(part.size()) + ":" + part;
  return text;
}

/// Refines the signatures of sites by their nodes, and by the links and signatures of other sites.
void refine(const bundle::Topology &topology, std::vector<Item> &sites) {
  auto linkOf = [&](uint32_t a, uint32_t b) {
    for (const auto &pair : topology.site_pairs())
      if ((pair.a() == a && pair.b() == b) || (pair.a() == b && pair.b() == a))
        return signatureOf(pair.link());
    return signatureOf(topology.between_sites());
  };
  // Shortens signatures so that they do not grow in each round.
  auto shorten = [&] {
    std::vector<std::string> known;
    known.reserve(sites.size());
    for (const Item &site : sites)
      known.push_back(site.signature);
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    for (Item &site : sites)
      site.signature = std::to_string(std::lower_bound(known.begin(), known.end(), site.signature) -
                                      known.begin());
    return known.size();
  };
  for (size_t before = 0, now = shorten(); now > before && now < sites.size();) {
    std::vector<std::string> refined;
    for (const Item &site : sites) {
      std::vector<std::string> neighbours;
      for (const Item &other : sites)
        if (other.index != site.index)
          neighbours.push_back(linkOf(site.index, other.index) + "/" + other.signature);
      refined.push_back(site.signature + "|" + joined(std::move(neighbours)));
    }
    for (size_t s = 0; s < sites.size(); ++s)
      sites[s].signature = std::move(refined[s]);
    before = now;
    now = shorten();
  }
}

/// Returns new positions: item `old` is now at placeOf[old].
std::vector<uint32_t> placesOf(const std::vector<Item> &sorted) {
  std::vector<uint32_t> place(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i)
    place[sorted[i].index] = static_cast<uint32_t>(i);
  return place;
}

/// Adds in sorted order, so that rounding of the sums does not depend on the order of the file.
std::vector<Item> makeDevices(const Problem &problem, bool byName) {
  const std::vector<ClusterDevice> &from = problem.cluster.devices;
  const size_t speed = speedIndex(productType(problem.summary));
  std::vector<Item> devices;
  for (uint32_t d = 0; d < from.size(); ++d)
    devices.push_back({d, from[d].flopsPerSecond[speed], static_cast<double>(from[d].capacity()),
                       signatureOf(problem, d), byName ? from[d].name : ""});
  std::sort(devices.begin(), devices.end());
  return devices;
}

std::vector<Item> makeNodes(const Cluster &from, const std::vector<Item> &devices, bool byName) {
  std::vector<Item> nodes;
  std::vector<std::vector<std::string>> parts(from.nodes.size());
  nodes.reserve(from.nodes.size());
  for (uint32_t n = 0; n < from.nodes.size(); ++n)
    nodes.push_back({n, 0, 0, "", byName ? from.nodes[n].name : ""});
  for (const Item &device : devices) {
    nodes[from.devices[device.index].node].contain(device);
    parts[from.devices[device.index].node].push_back(device.signature);
  }
  for (Item &node : nodes) {
    const ClusterNode &of = from.nodes[node.index];
    for (double number :
         {double(of.hostMemory), of.pcie, double(of.nvme), of.nvmeBandwidth, of.price})
      add(node.signature, number);
    const auto &links = from.topology.nodes(static_cast<int>(node.index));
    for (const bundle::LinkSpec *link : {&links.port(), &links.bus(), &links.nic()})
      node.signature += signatureOf(*link) + "/";
    node.signature += joined(std::move(parts[node.index]));
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::vector<Item> makeSites(const Cluster &from, const std::vector<Item> &nodes, bool byName) {
  const bundle::Topology &topology = from.topology;
  std::vector<Item> sites;
  std::vector<std::vector<std::string>> parts(static_cast<size_t>(topology.sites_size()));
  sites.reserve(parts.size());
  for (uint32_t s = 0; s < parts.size(); ++s)
    sites.push_back(
        {s, 0, 0, "", byName ? topology.sites(static_cast<int>(s)).name() : std::string()});
  for (const Item &node : nodes) {
    const uint32_t site = topology.nodes(static_cast<int>(node.index)).site();
    sites[site].contain(node);
    parts[site].push_back(node.signature);
  }
  for (Item &site : sites) {
    const auto &of = topology.sites(static_cast<int>(site.index));
    site.signature = signatureOf(of.fabric()) + "/" + signatureOf(of.uplink()) + "/";
    if (site.index < from.egressPrice.size())
      add(site.signature, from.egressPrice[site.index]);
    site.signature += joined(std::move(parts[site.index]));
  }
  refine(topology, sites);
  std::sort(sites.begin(), sites.end());
  return sites;
}

} // namespace

CanonicalProblem CanonicalProblem::make(const Problem &problem, bool byName) {
  const Cluster &from = problem.cluster;
  const bundle::Topology &topology = from.topology;
  std::vector<Item> devices = makeDevices(problem, byName),
                    nodes = makeNodes(from, devices, byName);
  const std::vector<Item> sites = makeSites(from, nodes, byName);

  // Sites in order, their nodes in order, and the devices of these in order.
  const std::vector<uint32_t> siteAt = placesOf(sites);
  auto siteOf = [&](uint32_t node) {
    return siteAt[topology.nodes(static_cast<int>(node)).site()];
  };
  std::sort(nodes.begin(), nodes.end(), [&](const Item &a, const Item &b) {
    const uint32_t x = siteOf(a.index), y = siteOf(b.index);
    return x != y ? x < y : a < b;
  });
  const std::vector<uint32_t> nodeAt = placesOf(nodes);
  std::sort(devices.begin(), devices.end(), [&](const Item &a, const Item &b) {
    const uint32_t x = nodeAt[from.devices[a.index].node], y = nodeAt[from.devices[b.index].node];
    return x != y ? x < y : a < b;
  });

  CanonicalProblem made{from, std::nullopt, {}};
  for (const Item &device : devices)
    made.original.push_back(device.index);
  auto reorder = [&](bundle::Topology links) {
    const bundle::Topology old = links;
    for (size_t d = 0; d < devices.size(); ++d) {
      const int place = static_cast<int>(d), was = static_cast<int>(devices[d].index);
      links.set_node_of_device(place, nodeAt[old.node_of_device(was)]);
      if (place < old.direct_group_of_device_size())
        links.set_direct_group_of_device(place, old.direct_group_of_device(was));
      if (place < old.cpu_communication_costs_size())
        *links.mutable_cpu_communication_costs(place) = old.cpu_communication_costs(was);
    }
    for (size_t n = 0; n < nodes.size(); ++n) {
      auto &node = *links.mutable_nodes(static_cast<int>(n));
      node = old.nodes(static_cast<int>(nodes[n].index));
      node.set_site(siteOf(nodes[n].index));
    }
    for (size_t s = 0; s < sites.size(); ++s)
      *links.mutable_sites(static_cast<int>(s)) = old.sites(static_cast<int>(sites[s].index));
    for (auto &pair : *links.mutable_site_pairs()) {
      pair.set_a(siteAt[pair.a()]);
      pair.set_b(siteAt[pair.b()]);
    }
    return links;
  };
  made.cluster.topology = reorder(topology);
  for (size_t d = 0; d < devices.size(); ++d) {
    made.cluster.devices[d] = from.devices[devices[d].index];
    made.cluster.devices[d].node = nodeAt[made.cluster.devices[d].node];
  }
  for (size_t n = 0; n < nodes.size(); ++n)
    made.cluster.nodes[n] = from.nodes[nodes[n].index];
  for (size_t s = 0; s < sites.size(); ++s)
    if (sites[s].index < from.egressPrice.size())
      made.cluster.egressPrice[s] = from.egressPrice[sites[s].index];
  made.costs = problem.costs.reordered(made.original, reorder(problem.costs.topology()));
  return made;
}

Problem CanonicalProblem::on(const Problem &problem) const { return problem.on(cluster, *costs); }

Strategy CanonicalProblem::restore(Strategy strategy) const {
  return withDevices(std::move(strategy), original);
}

std::vector<uint32_t> CanonicalProblem::places() const {
  std::vector<uint32_t> place(original.size());
  for (uint32_t d = 0; d < original.size(); ++d)
    place[original[d]] = d;
  return place;
}

Strategy CanonicalProblem::translate(Strategy strategy) const {
  return withDevices(std::move(strategy), places());
}

std::vector<uint32_t> CanonicalProblem::translate(const std::vector<uint32_t> &devices) const {
  const std::vector<uint32_t> place = places();
  std::vector<uint32_t> out;
  for (uint32_t d : devices)
    out.push_back(place[d]);
  return out;
}
