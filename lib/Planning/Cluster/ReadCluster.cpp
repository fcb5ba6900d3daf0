// Reads a complete cluster file: templates, sites, nodes, links.
#include "ClusterReader.h"

#include "zorse/Support/RegularFile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::fields;

namespace {

constexpr size_t kMaxSites = 256;
constexpr double kDefaultDeviceLink = 10e9, kDefaultPortLatency = 2e-6, kDefaultNic = 1.25e9,
                 kDefaultFabricLatency = 1e-4;

class Reader {
public:
  explicit Reader(const YAML::Node &root) : root(root) {}

  Cluster read() {
    checkKeys(root, "cluster", {"name", "currency", "templates", "sites", "nodes", "links"});
    for (auto [key, text] :
         {std::make_pair("name", &cluster.name), std::make_pair("currency", &cluster.currency)})
      if (const YAML::Node node = root[key]; node.IsDefined()) {
        if (!node.IsScalar())
          fail(node, std::string("cluster.") + key + ": expected a text, got " + show(node));
        *text = node.Scalar();
      }
    readTemplates();
    readDefaults();
    readSites();
    readNodes();
    readPairs();
    checkConnected();
    return std::move(cluster);
  }

private:
  void readTemplates() {
    const YAML::Node templates = root["templates"];
    if (!templates.IsDefined())
      return;
    checkKeys(templates, "templates", {"nodes", "devices"});
    for (const char *kind : {"nodes", "devices"})
      if (const YAML::Node list = templates[kind]; list.IsDefined()) {
        std::string what = std::string("templates.") + kind;
        if (!list.IsMap())
          fail(list, what + ": expected a mapping of names to templates, got " + show(list));
        std::set<std::string> names;
        for (const auto &item : list) {
          std::string name = toName(item.first, what);
          if (!names.insert(name).second)
            fail(item.first, what + ": '" + name + "' is given twice");
          if (std::string(kind) == "nodes")
            checkKeys(item.second, "template '" + name + "'",
                      {"site", "device_link", "nic", "bus", "host_memory", "pcie", "nvme", "price",
                       "devices"});
          else
            checkKeys(item.second, "template '" + name + "'",
                      {"kind", "type", "flops_per_second", "memory", "reserved_memory",
                       "memory_bandwidth", "half_peak_rows", "slowdown", "launch_overhead",
                       "threads", "count", "price", "device_to_device"});
        }
        (std::string(kind) == "nodes" ? nodeTemplates : deviceTemplates).reset(list);
      }
  }

  /// Reads `links`: defaults of nodes that do not specify their own.
  void readDefaults() {
    port.set_latency(kDefaultPortLatency);
    card.set_bandwidth(kDefaultNic);
    fabric.set_latency(kDefaultFabricLatency);
    const YAML::Node links = root["links"];
    if (!links.IsDefined())
      return;
    if (!links.IsMap())
      fail(links, "links: expected a mapping, such as {intra_node: {bandwidth: 50 GB/s}, "
                  "inter_node: {bandwidth: 10 Gbit/s, latency: 100 us}}, got " +
                      show(links) + "; links between single sites are listed in links.site_pairs");
    checkKeys(links, "links",
              {"intra_node", "inter_node", "inter_site", "site_pairs", "collectives",
               "device_to_device_scope"});
    if (const YAML::Node node = links["intra_node"]; node.IsDefined()) {
      portKnown = node.IsMap() && node["bandwidth"].IsDefined();
      port = readLink(node, "links.intra_node", port);
    }
    if (const YAML::Node node = links["inter_node"]; node.IsDefined()) {
      bundle::LinkSpec link = card;
      link.set_latency(fabric.latency());
      link = readLink(node, "links.inter_node", link);
      fabric.set_latency(link.latency());
      link.set_latency(0);
      card = link;
    }
    if (const YAML::Node node = links["inter_site"]; node.IsDefined()) {
      if (!node.IsMap() || !node["bandwidth"])
        fail(node, "links.inter_site: expected {bandwidth, latency, per_flow_bandwidth}, got " +
                       (node.IsMap() ? std::string("no bandwidth") : show(node)) +
                       "; without a limit it is 'unlimited'");
      *cluster.topology.mutable_between_sites() = readLink(node, "links.inter_site", {});
    }
    if (const YAML::Node node = links["collectives"]; node.IsDefined())
      readCollectives(node);
    if (const YAML::Node node = links["device_to_device_scope"]; node.IsDefined()) {
      static const std::map<std::string, D2dScope> scopes = {{"site", D2dScope::Site},
                                                             {"node", D2dScope::Node},
                                                             {"nowhere", D2dScope::Nowhere},
                                                             {"everywhere", D2dScope::Everywhere}};
      const auto scope = scopes.find(node.IsScalar() ? node.Scalar() : "");
      if (scope == scopes.end())
        fail(node, "links.device_to_device_scope: expected site, node, nowhere or everywhere: how "
                   "far GPUs exchange directly, from memory to memory; got " +
                       show(node));
      cluster.deviceToDevice = scope->second;
    }
  }

  /// `links.collectives`: how gradients are summed.
  void readCollectives(const YAML::Node &node) {
    const std::string how = node.IsScalar() ? node.Scalar() : "";
    if (how != "levels" && how != "exchange")
      fail(node,
           "links.collectives: expected levels (inside of nodes and sites first, the default) "
           "or exchange (every device sends its gradients to all owners), got " +
               show(node));
    cluster.topology.set_pairwise_sums(how == "exchange");
  }

  void readSites() {
    const YAML::Node sites = root["sites"];
    if (!sites.IsDefined()) {
      addSite("site", {}, {}, 0);
      return;
    }
    if (!sites.IsSequence() || sites.size() == 0 || sites.size() > kMaxSites)
      fail(sites, "sites: expected a list of 1 to " + std::to_string(kMaxSites) + " sites, got " +
                      (sites.IsSequence() ? std::to_string(sites.size()) : show(sites)));
    for (const YAML::Node &site : sites) {
      checkKeys(site, "site", {"name", "fabric", "uplink", "egress_price"});
      if (!site["name"])
        fail(site, "site: missing key 'name'");
      std::string name = toName(site["name"], "site.name");
      if (siteByName.count(name))
        fail(site["name"], "site '" + name + "' is listed twice");
      double egress = site["egress_price"]
                          ? toPrice(site["egress_price"], "site '" + name + "': egress_price")
                          : 0;
      addSite(name, site["fabric"], site["uplink"], egress);
    }
  }

  void addSite(const std::string &name, const YAML::Node &fabricNode, const YAML::Node &uplinkNode,
               double egress) {
    siteByName[name] = static_cast<uint32_t>(cluster.topology.sites_size());
    siteNames.push_back(name);
    auto *site = cluster.topology.add_sites();
    site->set_name(name);
    std::string what = "site '" + name + "': ";
    *site->mutable_fabric() = fabricNode.IsDefined() && !fabricNode.IsNull()
                                  ? readLink(fabricNode, what + "fabric", fabric)
                                  : fabric;
    if (uplinkNode.IsDefined() && !uplinkNode.IsNull())
      *site->mutable_uplink() = readLink(uplinkNode, what + "uplink", {});
    cluster.egressPrice.push_back(egress / 1e9);
  }

  void readNodes() {
    const YAML::Node nodes = root["nodes"];
    if (!nodes.IsDefined() || !nodes.IsSequence())
      fail(nodes.IsDefined() ? nodes : root,
           "cluster: expected 'nodes', a list such as [{name: n0, devices: [{name: gpu, type: T4, "
           "count: 2}]}], got " +
               show(nodes));
    for (const YAML::Node &node : nodes)
      readNode(node);
    if (cluster.devices.empty())
      fail(nodes, "the cluster has no devices");
  }

  void readNode(const YAML::Node &node) {
    checkKeys(node, "node",
              {"name", "template", "count", "site", "device_link", "nic", "bus", "host_memory",
               "pcie", "nvme", "price", "devices"});
    Fields fields(node, templateOf(node, "node", nodeTemplates));
    const YAML::Node devices = fields["devices"];
    if (!node["name"] || !devices.IsDefined() || !devices.IsSequence())
      fail(node, "node: expected 'name' and 'devices', a list");
    std::string name = toName(node["name"], "node.name");
    const std::string what = "node '" + name + "': ";
    bool counted = node["count"].IsDefined();
    uint32_t count = counted ? toCount(node["count"], what + "count", kMaxDevices) : 1;
    if (cluster.nodes.size() + count > kMaxDevices)
      fail(node, what + "the cluster has more than " + std::to_string(kMaxDevices) +
                     " nodes with it, which is the most that is supported");

    std::vector<DeviceEntry> entries;
    uint64_t perNode = 0;
    for (const YAML::Node &device : devices) {
      entries.push_back(readDeviceEntry(device, deviceTemplates));
      perNode += entries.back().count;
      if (cluster.devices.size() + perNode * count > kMaxDevices)
        fail(device, "device '" + entries.back().device.name + "': the cluster has more than " +
                         std::to_string(kMaxDevices) +
                         " devices with it, which is the most that is supported");
    }

    bundle::Topology::Node described;
    described.set_site(siteOf(fields, what, node));
    *described.mutable_port() = readPort(fields, what, entries);
    *described.mutable_nic() = readLink(fields["nic"], what + "nic", card);
    if (YAML::Node bus = fields["bus"])
      *described.mutable_bus() = readLink(bus, what + "bus", {});
    ClusterNode own;
    if (YAML::Node bytes = fields["host_memory"])
      own.hostMemory = toBytes(bytes, what + "host_memory", /*zero=*/false);
    own.pcie = fields["pcie"] ? toBandwidth(fields["pcie"], what + "pcie")
                              : minOfTypes(entries, &DeviceType::pcie);
    if (YAML::Node nvme = fields["nvme"]) {
      checkKeys(nvme, what + "nvme", {"size", "bandwidth"});
      if (!nvme["size"])
        fail(nvme, what + "nvme: expected {size, bandwidth}");
      own.nvme = toBytes(nvme["size"], what + "nvme.size", /*zero=*/false);
      own.nvmeBandwidth =
          nvme["bandwidth"] ? toBandwidth(nvme["bandwidth"], what + "nvme.bandwidth") : 0;
    }
    if (YAML::Node price = fields["price"])
      own.price = toPrice(price, what + "price");

    for (uint32_t n = 0; n < count; ++n) {
      own.name = counted ? name + ":" + std::to_string(n) : name;
      if (!nodeNames.insert(own.name).second)
        fail(node["name"], "node '" + own.name + "' is listed twice");
      described.set_name(own.name);
      uint32_t index = static_cast<uint32_t>(cluster.nodes.size());
      cluster.nodes.push_back(own);
      *cluster.topology.add_nodes() = described;
      for (DeviceEntry &entry : entries)
        for (uint32_t i = 0; i < entry.count; ++i) {
          ClusterDevice device = entry.device;
          device.node = index;
          if (counted || entry.counted) // numbered through all nodes of the entry
            device.name += ":" + std::to_string(uint64_t(n) * entry.count + i);
          if (!deviceNames.insert(device.name).second)
            fail(entry.at["name"], "device '" + device.name + "' is named twice in the cluster");
          cluster.devices.push_back(std::move(device));
          cluster.topology.add_node_of_device(index);
        }
    }
  }

  uint32_t siteOf(const Fields &fields, const std::string &what, const YAML::Node &node) const {
    const YAML::Node name = fields["site"];
    if (!name.IsDefined()) {
      if (siteNames.size() > 1)
        fail(node, what + "expected 'site', one of " + listed(siteNames));
      return 0;
    }
    return findSite(name, what + "site");
  }

  uint32_t findSite(const YAML::Node &node, const std::string &what) const {
    std::string name = toName(node, what);
    auto it = siteByName.find(name);
    if (it == siteByName.end())
      fail(node, what + ": there is no site '" + name + "'" + suggestion(name, siteNames) +
                     "; the file has " + listed(siteNames));
    return it->second;
  }

  /// Returns the minimum over the node's device types; 0 if none is known.
  static double minOfTypes(const std::vector<DeviceEntry> &entries, double DeviceType::*field) {
    double min = 0;
    for (const DeviceEntry &entry : entries)
      if (const DeviceType *type = findDeviceType(entry.device.type); type && type->*field > 0)
        min = min > 0 ? std::min(min, type->*field) : type->*field;
    return min;
  }

  bundle::LinkSpec readPort(const Fields &fields, const std::string &what,
                            const std::vector<DeviceEntry> &entries) const {
    bundle::LinkSpec defaults = port;
    if (!portKnown) {
      double min = minOfTypes(entries, &DeviceType::port);
      defaults.set_bandwidth(min > 0 ? min : kDefaultDeviceLink);
    }
    return readLink(fields["device_link"], what + "device_link", defaults);
  }

  void readPairs() {
    const YAML::Node links = root["links"];
    const YAML::Node between = links.IsDefined() ? links["site_pairs"] : links;
    if (!between.IsDefined())
      return;
    if (!between.IsSequence())
      fail(between, "links.site_pairs: expected a list of {sites: [a, b], bandwidth, latency, "
                    "per_flow_bandwidth}, got " +
                        show(between));
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (const YAML::Node &pair : between) {
      checkKeys(pair, "links.site_pairs",
                {"sites", "bandwidth", "latency", "per_flow_bandwidth", "half_bandwidth_bytes"});
      const YAML::Node sites = pair["sites"];
      if (!sites.IsDefined() || !sites.IsSequence() || sites.size() != 2)
        fail(pair, "links.site_pairs: expected 'sites', a list of two");
      uint32_t a = findSite(sites[0], "links.site_pairs.sites"),
               b = findSite(sites[1], "links.site_pairs.sites");
      if (a == b)
        fail(sites, "links.site_pairs: expected two different sites, got '" + siteNames[a] +
                        "' twice; links inside a site are its 'fabric'");
      if (!seen.insert({std::min(a, b), std::max(a, b)}).second)
        fail(pair, "links.site_pairs: '" + siteNames[a] + "' and '" + siteNames[b] +
                       "' are listed twice");
      bundle::LinkSpec link = cluster.topology.between_sites();
      if (pair["bandwidth"])
        link.set_bandwidth(
            toBandwidth(pair["bandwidth"], "links.site_pairs.bandwidth", /*link=*/true));
      else if (!cluster.topology.has_between_sites())
        fail(pair, "links.site_pairs: expected 'bandwidth' between '" + siteNames[a] + "' and '" +
                       siteNames[b] + "'");
      if (pair["latency"])
        link.set_latency(toSeconds(pair["latency"], "links.site_pairs.latency"));
      if (pair["per_flow_bandwidth"])
        link.set_per_flow_bandwidth(toBandwidth(
            pair["per_flow_bandwidth"], "links.site_pairs.per_flow_bandwidth", /*link=*/true));
      if (pair["half_bandwidth_bytes"])
        link.set_half_bandwidth_bytes(static_cast<double>(
            toBytes(pair["half_bandwidth_bytes"], "links.site_pairs.half_bandwidth_bytes",
                    /*zero=*/true, /*least=*/1)));
      auto *entry = cluster.topology.add_site_pairs();
      entry->set_a(a);
      entry->set_b(b);
      *entry->mutable_link() = link;
    }
  }

  /// Checks that every two sites with devices have a link. No default is sensible for links between
  /// cities.
  void checkConnected() const {
    if (cluster.topology.has_between_sites() || siteNames.size() < 2)
      return;
    std::set<uint32_t> used;
    for (const ClusterDevice &device : cluster.devices)
      used.insert(cluster.topology.nodes(static_cast<int>(device.node)).site());
    std::set<std::pair<uint32_t, uint32_t>> known;
    for (const auto &pair : cluster.topology.site_pairs())
      known.insert({std::min(pair.a(), pair.b()), std::max(pair.a(), pair.b())});
    for (uint32_t a : used)
      for (uint32_t b : used)
        if (a < b && !known.count({a, b}))
          fail(root["links"].IsDefined() ? root["links"] : root["sites"],
               "sites '" + siteNames[a] + "' and '" + siteNames[b] +
                   "' are not connected: expected a bandwidth between them, found none; "
                   "give links.inter_site, for all pairs, or an entry of links.site_pairs");
  }

  const YAML::Node root;
  YAML::Node nodeTemplates{YAML::NodeType::Undefined}, deviceTemplates{YAML::NodeType::Undefined};
  Cluster cluster;
  bundle::LinkSpec port, card, fabric;
  bool portKnown = false;
  std::map<std::string, uint32_t> siteByName;
  std::vector<std::string> siteNames;
  std::unordered_set<std::string> nodeNames, deviceNames;
};

} // namespace

Result<Cluster> zorse::planning::readCluster(const std::string &yaml) {
  if (yaml.size() > kMaxClusterBytes)
    return userError("expected a cluster file of at most " +
                     std::to_string(kMaxClusterBytes >> 20) + " MiB, got " +
                     std::to_string(yaml.size()) + " bytes");
  try {
    return Reader(YAML::Load(yaml)).read();
  } catch (const FieldError &error) {
    return userError(error.message);
  } catch (const YAML::Exception &e) {
    return userError((e.mark.line >= 0 ? "line " + std::to_string(e.mark.line + 1) + ": " : "") +
                     "not valid YAML: " + e.msg);
  }
}

Result<Cluster> zorse::planning::readClusterFile(const std::string &path, std::string *text) {
  return parseRegularFile(path, kMaxClusterBytes,
                          [&](const std::string &yaml) { // the limit is one byte larger, so that
                                                         // readCluster reports the error
                            if (text)
                              *text = yaml;
                            return readCluster(yaml);
                          });
}
