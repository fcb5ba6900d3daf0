#include "zorse/Planning/Cluster.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <unordered_map>

using namespace zorse::planning;

namespace {

/// Thrown inside this file only.
struct Bad {
  std::string message;
};

[[noreturn]] void fail(const YAML::Node &node, const std::string &message) {
  YAML::Mark mark = node.Mark();
  throw Bad{(mark.line >= 0 ? "line " + std::to_string(mark.line + 1) + ": " : "") + message};
}

std::string show(const YAML::Node &node) {
  if (node.IsScalar())
    return "'" + node.Scalar() + "'";
  return node.IsSequence() ? "a list" : node.IsMap() ? "a mapping" : "nothing";
}

void checkKeys(const YAML::Node &node, const std::string &what, std::initializer_list<const char *> known) {
  if (!node.IsMap())
    fail(node, what + ": expected a mapping, got " + show(node));
  std::set<std::string> seen;
  for (const auto &item : node) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
    if (!seen.insert(key).second)
      fail(item.first, what + ": '" + key + "' is given twice");
    if (std::find(known.begin(), known.end(), key) != known.end())
      continue;
    std::string list;
    for (const char *k : known)
      list += std::string(list.empty() ? "" : ", ") + k;
    fail(item.first, what + ": unknown key '" + key + "'; known are " + list);
  }
}

/// A number with an optional unit out of `units`.
double toQuantity(const YAML::Node &node, const std::string &what, const std::map<std::string, double> &units) {
  std::string text = node.IsScalar() ? node.Scalar() : "";
  size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception &) {
    used = 0;
  }
  size_t begin = text.find_first_not_of(" ", used);
  std::string unit = used == 0 || begin == std::string::npos ? "" : text.substr(begin);
  auto it = units.find(unit);
  if (used == 0 || !(number >= 0 && number <= 1e30) || (!unit.empty() && it == units.end())) {
    std::string list;
    for (auto &entry : units)
      list += (list.empty() ? "" : ", ") + entry.first;
    fail(node, what + ": expected a number from 0 to 1e30, plain or with one of " + list + ", got " + show(node));
  }
  return unit.empty() ? number : number * it->second;
}

double toSpeed(const YAML::Node &node, const std::string &what) {
  return toQuantity(node, what, {{"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}});
}

uint64_t toBytes(const YAML::Node &node, const std::string &what) {
  double bytes = toQuantity(node, what, {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}});
  if (bytes > 9e18)
    fail(node, what + ": number too large");
  return static_cast<uint64_t>(bytes);
}

std::string toName(const YAML::Node &node, const std::string &what) {
  if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().find_first_of("/\\ \t\n") != std::string::npos)
    fail(node, what + ": expected a name without spaces or slashes, got " + show(node));
  return node.Scalar();
}

uint32_t toCount(const YAML::Node &node, const std::string &what, uint32_t most) {
  double number = toQuantity(node, what, {});
  if (number != std::floor(number) || number < 1 || number > most)
    fail(node, what + ": expected a whole number from 1 to " + std::to_string(most) + ", got " + show(node));
  return static_cast<uint32_t>(number);
}

void readLink(const YAML::Node &links, const char *key, double &bandwidth, double &latency) {
  YAML::Node node = links[key];
  if (!node)
    return;
  std::string what = std::string("links.") + key;
  checkKeys(node, what, {"bandwidth", "latency"});
  if (node["bandwidth"])
    bandwidth = toQuantity(node["bandwidth"], what + ".bandwidth",
                                {{"MB/s", 1e6}, {"GB/s", 1e9}, {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {"Mbit/s", 1.25e5}, {"Gbit/s", 1.25e8}});
  if (node["latency"])
    latency = toQuantity(node["latency"], what + ".latency", {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}});
}

void readDevice(const YAML::Node &node, uint32_t nodeIndex, Cluster &cluster, std::set<std::string> &names) {
  checkKeys(node, "device", {"name", "kind", "type", "speed", "memory", "threads", "count"});
  if (!node["name"])
    fail(node, "device: lacks 'name'");
  ClusterDevice device;
  device.name = toName(node["name"], "device.name");
  std::string what = "device '" + device.name + "'";
  device.node = nodeIndex;
  const DeviceType *type = nullptr;
  if (node["type"]) {
    device.type = toName(node["type"], what + ": type");
    type = findDeviceType(device.type);
  }
  if (type) {
    device.kind = type->kind;
    std::copy(std::begin(type->speed), std::end(type->speed), device.speed);
    device.halfRows = type->halfRows;
    device.memoryBandwidth = type->memoryBandwidth;
    device.launch = type->launch;
    device.memory = type->memory;
    device.reserve = type->reserve;
  }
  if (node["kind"])
    device.kind = toName(node["kind"], what + ": kind");
  if (device.kind != "cpu" && device.kind != "cuda" && device.kind != "sim")
    fail(node["kind"] ? node["kind"] : node, what + ": expected kind cpu, cuda or sim, got '" + device.kind + "'");
  if (node["speed"])
    std::fill(std::begin(device.speed), std::end(device.speed), toSpeed(node["speed"], what + ": speed"));
  if (node["memory"])
    device.memory = toBytes(node["memory"], what + ": memory");
  if (node["threads"])
    device.threads = toCount(node["threads"], what + ": threads", 4096);
  if (*std::max_element(std::begin(device.speed), std::end(device.speed)) <= 0) {
    std::string known;
    for (const DeviceType &t : deviceTypes())
      known += (known.empty() ? "" : ", ") + std::string(t.name);
    fail(node, what + ": its speed is not known; give 'speed' (FLOP/s) or a 'type' out of " + known);
  }
  if (type && device.kind == "cpu" && !node["speed"])
    for (double &speed : device.speed)
      speed *= device.threads;

  uint32_t count = node["count"] ? toCount(node["count"], what + ": count", kMostDevices) : 1;
  if (cluster.devices.size() + count > kMostDevices)
    fail(node, what + ": the cluster has more than " + std::to_string(kMostDevices) + " devices with it, which is the most that is supported");
  std::string base = device.name;
  for (uint32_t i = 0; i < count; ++i) {
    if (node["count"])
      device.name = base + ":" + std::to_string(i);
    if (!names.insert(device.name).second)
      fail(node["name"], "device '" + device.name + "' is named twice in the cluster");
    cluster.devices.push_back(device);
  }
}

} // namespace

std::optional<Cluster> zorse::planning::readCluster(const std::string &yaml, std::string &error) {
  if (yaml.size() > kMostClusterBytes) {
    error = "expected a cluster file of at most " + std::to_string(kMostClusterBytes >> 20) + " MiB, got " + std::to_string(yaml.size()) + " bytes";
    return std::nullopt;
  }
  try {
    YAML::Node root = YAML::Load(yaml);
    Cluster cluster;
    double portBandwidth = 10e9, portLatency = 2e-6, cardBandwidth = 1.25e9, fabricLatency = 1e-4;
    checkKeys(root, "cluster", {"name", "nodes", "links"});
    if (root["name"])
      cluster.name = root["name"].Scalar();
    if (!root["nodes"] || !root["nodes"].IsSequence())
      fail(root, "cluster: expected 'nodes', a list of {name, devices}");
    std::set<std::string> nodes, names;
    for (const YAML::Node &node : root["nodes"]) {
      checkKeys(node, "node", {"name", "devices"});
      if (!node["name"] || !node["devices"] || !node["devices"].IsSequence())
        fail(node, "node: expected 'name' and 'devices', a list");
      std::string name = toName(node["name"], "node.name");
      if (!nodes.insert(name).second)
        fail(node["name"], "node '" + name + "' is listed twice");
      for (const YAML::Node &device : node["devices"])
        readDevice(device, static_cast<uint32_t>(cluster.nodes.size()), cluster, names);
      ClusterNode described;
      described.name = name;
      cluster.nodes.push_back(described);
    }
    if (cluster.devices.empty())
      fail(root["nodes"], "the cluster has no devices");
    if (root["links"]) {
      checkKeys(root["links"], "links", {"intra_node", "inter_node"});
      readLink(root["links"], "intra_node", portBandwidth, portLatency);
      readLink(root["links"], "inter_node", cardBandwidth, fabricLatency);
    }
    cluster.topology.add_sites()->mutable_fabric()->set_latency(fabricLatency);
    for (const ClusterNode &described : cluster.nodes) {
      auto *node = cluster.topology.add_nodes();
      node->set_name(described.name);
      node->mutable_port()->set_bandwidth(portBandwidth);
      node->mutable_port()->set_latency(portLatency);
      node->mutable_nic()->set_bandwidth(cardBandwidth);
    }
    for (const ClusterDevice &device : cluster.devices)
      cluster.topology.add_node_of_device(device.node);
    return cluster;
  } catch (const Bad &bad) {
    error = bad.message;
  } catch (const YAML::Exception &e) {
    error = (e.mark.line >= 0 ? "line " + std::to_string(e.mark.line + 1) + ": " : "") + "not valid YAML: " + e.msg;
  }
  return std::nullopt;
}

std::optional<Cluster> zorse::planning::readClusterFile(const std::string &path, std::string &error) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostClusterBytes + 1, 0); // one byte more than allowed: readCluster says so
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && (!file.eof() || file.bad())) {
    error = path + ": cannot read the file";
    return std::nullopt;
  }
  text.resize(static_cast<size_t>(file.gcount()));
  std::optional<Cluster> cluster = readCluster(text, error);
  if (!cluster)
    error = path + ": " + error;
  return cluster;
}

NumberType zorse::planning::numberType(bundle::ElementType computeType) {
  return computeType == bundle::BF16 ? NumberType::BF16 : computeType == bundle::F16 ? NumberType::F16 : NumberType::F32;
}

std::vector<zorse::step::PlanDevice> zorse::planning::planDevices(const Cluster &cluster, NumberType type) {
  std::vector<step::PlanDevice> devices;
  for (const ClusterDevice &device : cluster.devices)
    devices.push_back({device.name, device.speed[size_t(type)], device.memory, cluster.nodes[device.node].name});
  return devices;
}

void zorse::planning::planLinks(const Cluster &cluster, step::Plan &plan) {
  if (cluster.topology.nodes_size() == 0 || cluster.topology.sites_size() == 0)
    return;
  const auto &node = cluster.topology.nodes(0);
  plan.intraNode = {node.port().bandwidth(), node.port().latency()};
  plan.interNode = {node.nic().bandwidth(), 2 * node.nic().latency() + cluster.topology.sites(0).fabric().latency()};
}

bool zorse::planning::applyCluster(step::Plan &plan, const Cluster &cluster, std::string &error, NumberType type) {
  error.clear();
  std::unordered_map<std::string, const ClusterDevice *> byName;
  for (const ClusterDevice &device : cluster.devices)
    byName[device.name] = &device;
  for (step::PlanDevice &device : plan.devices) {
    auto it = byName.find(device.name);
    if (it == byName.end()) {
      std::string known;
      for (size_t i = 0; i < cluster.devices.size() && i < 12; ++i)
        known += (i ? ", " : "") + cluster.devices[i].name;
      error += (error.empty() ? "" : "\n") + ("device '" + device.name + "' of the plan is not in the cluster, which has " + known) +
               (cluster.devices.size() > 12 ? ", ..." : "");
      continue;
    }
    if (device.speed <= 0)
      device.speed = it->second->speed[size_t(type)];
    if (device.memory == 0)
      device.memory = it->second->memory;
    if (device.node.empty())
      device.node = cluster.nodes[it->second->node].name;
  }
  auto unset = [](const step::Link &link) { return link.bandwidth <= 0 && link.latency <= 0; };
  if (unset(plan.intraNode) && unset(plan.interNode))
    planLinks(cluster, plan);
  return error.empty();
}
