// Writes a cluster as YAML. Sequences of equal devices, and of equal nodes, become one entry with a
// count if their names are numbered as the reader numbers them.
#include "ClusterReader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

using namespace zorse;
using namespace zorse::planning;

namespace {

std::string number(double value) {
  char text[40];
  for (int digits : {6, 15, 17}) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  return text;
}

/// Formats with the unit that makes the number short, if reading it gives the same number again.
std::string figure(double value, std::initializer_list<std::pair<const char *, double>> units) {
  std::string best = number(value);
  if (best.size() <= 3)
    return best;
  for (auto [unit, factor] : units) {
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", value / factor);
    double back = std::strtod(text, nullptr);
    if (back >= 1 && back < 10000 && back * factor == value)
      return std::string(text) + " " + unit;
  }
  return best;
}

std::string bandwidthOf(double value) {
  return value > 0 ? figure(value, {{"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}}) : "unlimited";
}
std::string secondsOf(double value) {
  return figure(value, {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}});
}
std::string bytesOf(uint64_t value) {
  std::string text = figure(static_cast<double>(value),
                            {{"GiB", 1073741824.0}, {"GB", 1e9}, {"MiB", 1048576.0}, {"MB", 1e6}});
  return text.find(' ') == std::string::npos ? std::to_string(value) : text;
}
std::string speedOf(double value) { return figure(value, {{"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}}); }

std::string inQuotes(const std::string &text) {
  auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
           c == ':';
  };
  bool simple = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
                text.back() != ':' && std::all_of(text.begin(), text.end(), plain);
  for (const char *word : {"null", "Null", "NULL", "true", "false"})
    simple &= text != word;
  if (simple)
    return text;
  std::string out = "\"";
  for (char c : text) {
    char escape[8];
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (std::iscntrl(static_cast<unsigned char>(c))) {
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      out += escape;
    } else
      out += c;
  }
  return out + "\"";
}

std::string link(const bundle::LinkSpec &link) {
  std::string text = "{bandwidth: " + bandwidthOf(link.bandwidth()) +
                     ", latency: " + secondsOf(link.latency());
  text += link.per_flow_bandwidth() > 0
              ? ", per_flow_bandwidth: " + bandwidthOf(link.per_flow_bandwidth())
              : "";
  return text +
         (link.half_bandwidth_bytes() > 0
              ? ", half_bandwidth_bytes: " +
                    bytesOf(static_cast<uint64_t>(link.half_bandwidth_bytes()))
              : "") +
         "}";
}

bool given(const bundle::LinkSpec &link) {
  return link.bandwidth() > 0 || link.latency() > 0 || link.per_flow_bandwidth() > 0;
}

/// Formats all fields except name and count, each after ", ".
std::string describe(const ClusterDevice &device) {
  ClusterDevice known;
  const DeviceType *type = findDeviceType(device.type);
  known.kind = device.kind;
  known.threads = device.threads;
  known.kind = device.kind;
  setDefaults(known, type);
  std::string text;
  auto put = [&](const char *key, const std::string &value) {
    text += std::string(", ") + key + ": " + value;
  };
  if (!device.type.empty())
    put("type", inQuotes(device.type));
  if (!type || device.kind != type->kind)
    // YAML reads an unquoted null as nothing.
    put("kind", device.kind == "null" ? inQuotes(device.kind) : device.kind);
  if (!device.arch.empty() && device.arch != known.arch)
    put("arch", device.arch);
  if (device.threads != 1)
    put("threads", std::to_string(device.threads));
  if (!std::equal(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond),
                  std::begin(known.flopsPerSecond)))
    put("flops_per_second", "{f32: " + speedOf(device.flopsPerSecond[0]) +
                                ", f16: " + speedOf(device.flopsPerSecond[1]) +
                                ", bf16: " + speedOf(device.flopsPerSecond[2]) + "}");
  if (device.memory != known.memory)
    put("memory", bytesOf(device.memory));
  if (device.reservedMemory != known.reservedMemory)
    put("reserved_memory", bytesOf(device.reservedMemory));
  if (device.memoryBandwidth != known.memoryBandwidth)
    put("memory_bandwidth", bandwidthOf(device.memoryBandwidth));
  if (device.halfPeakRows != known.halfPeakRows ||
      (device.multiprocessors == 0 && known.multiprocessors > 0))
    put("half_peak_rows", number(device.halfPeakRows));
  else if (device.multiprocessors != known.multiprocessors)
    put("sm_count", std::to_string(device.multiprocessors));
  if (device.executionMode != ExecutionMode::Compiled)
    put("execution_mode", kExecutionModes.begin()[size_t(device.executionMode)]);
  if (device.slowdown != 1)
    put("slowdown", number(device.slowdown));
  if (device.launchOverhead != known.launchOverhead)
    put("launch_overhead", secondsOf(device.launchOverhead));
  if (device.price > 0)
    put("price", number(device.price));
  if (!device.deviceToDevice)
    put("device_to_device", "false");
  if (!device.gpu.empty())
    put("gpu", inQuotes(device.gpu));
  return text;
}

/// Splits "a:12" into base "a" and number 12; returns -1 if there is no number.
int64_t splitNumber(const std::string &name, std::string &base) {
  size_t colon = name.rfind(':');
  base = name;
  if (colon == std::string::npos || colon == 0 || colon + 1 == name.size() ||
      name.size() - colon > 8)
    return -1;
  for (size_t i = colon + 1; i < name.size(); ++i)
    if (!std::isdigit(static_cast<unsigned char>(name[i])))
      return -1;
  int64_t value = std::atoll(name.c_str() + colon + 1);
  if (std::to_string(value) != name.substr(colon + 1))
    return -1;
  base = name.substr(0, colon);
  return value;
}

/// Consecutive devices of a node that are equal except for consecutive numbers.
struct Run {
  std::string base, fields;
  int64_t first = -1; ///< -1: one device without a number
  int64_t count = 1;
};

std::vector<Run> runsOf(const Cluster &cluster, const std::vector<uint32_t> &devices) {
  std::vector<Run> runs;
  for (uint32_t d : devices) {
    Run run;
    run.first = splitNumber(cluster.devices[d].name, run.base);
    run.fields = describe(cluster.devices[d]);
    if (!runs.empty() && run.first >= 0 && runs.back().base == run.base &&
        runs.back().fields == run.fields && runs.back().first >= 0 &&
        runs.back().first + runs.back().count == run.first)
      ++runs.back().count;
    else
      runs.push_back(run);
  }
  return runs;
}

std::string describeNode(const Cluster &cluster, uint32_t n, bool sites) {
  const bundle::Topology::Node &node = cluster.topology.nodes(static_cast<int>(n));
  const ClusterNode &own = cluster.nodes[n];
  std::string text;
  auto put = [&](const char *key, const std::string &value) {
    text += std::string("    ") + key + ": " + value + "\n";
  };
  if (sites)
    put("site", inQuotes(cluster.topology.sites(static_cast<int>(node.site())).name()));
  put("device_link", link(node.port()));
  if (given(node.bus()))
    put("bus", link(node.bus()));
  put("nic", link(node.nic()));
  if (own.hostMemory)
    put("host_memory", bytesOf(own.hostMemory));
  put("pcie", bandwidthOf(own.pcie));
  if (own.nvme)
    put("nvme",
        "{size: " + bytesOf(own.nvme) +
            (own.nvmeBandwidth > 0 ? ", bandwidth: " + bandwidthOf(own.nvmeBandwidth) : "") + "}");
  if (own.price > 0)
    put("price", number(own.price));
  return text;
}

/// Whether the devices of `nodes` equal nodes, starting with this one, are numbered through: each
/// run continues over all of them.
bool continues(const std::vector<Run> &first, const std::vector<Run> &other, int64_t nodes) {
  if (first.size() != other.size())
    return false;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].first != 0 || other[i].base != first[i].base ||
        other[i].fields != first[i].fields || other[i].count != first[i].count ||
        other[i].first != nodes * first[i].count)
      return false;
  return true;
}

/// Writes the nodes with their devices. Equal nodes with consecutive numbers become one entry.
std::string writeNodes(const Cluster &cluster) {
  std::vector<std::vector<uint32_t>> devices(cluster.nodes.size());
  for (uint32_t d = 0; d < cluster.devices.size(); ++d)
    devices[cluster.devices[d].node].push_back(d);
  std::vector<std::vector<Run>> runs;
  std::vector<std::string> nodes;
  for (uint32_t n = 0; n < cluster.nodes.size(); ++n) {
    runs.push_back(runsOf(cluster, devices[n]));
    nodes.push_back(describeNode(cluster, n, cluster.topology.sites_size() > 1));
  }
  std::string out = "nodes:\n";
  for (size_t n = 0; n < nodes.size();) {
    std::string base, other;
    size_t count = 0;
    if (splitNumber(cluster.nodes[n].name, base) == 0 && !runs[n].empty())
      while (n + count < nodes.size() &&
             splitNumber(cluster.nodes[n + count].name, other) == static_cast<int64_t>(count) &&
             other == base && nodes[n + count] == nodes[n] &&
             continues(runs[n], runs[n + count], static_cast<int64_t>(count)))
        ++count;
    out += "  - name: " + inQuotes(count ? base : cluster.nodes[n].name) + "\n" +
           (count ? "    count: " + std::to_string(count) + "\n" : "") + nodes[n] + "    devices:";
    out += runs[n].empty() ? " []\n" : "\n";
    for (const Run &run : runs[n]) {
      bool whole = count || run.first == 0; // numbered as the reader does
      for (int64_t i = 0; i < (whole ? 1 : run.count); ++i) {
        std::string name = whole || run.first < 0 ? run.base
                                                  : run.base + ":" + std::to_string(run.first + i);
        bool counts = whole && (count ? run.count > 1 : true);
        out += "      - {name: " + inQuotes(name) + run.fields +
               (counts ? ", count: " + std::to_string(run.count) : "") + "}\n";
      }
    }
    n += std::max<size_t>(count, 1);
  }
  return out;
}

/// Writes the links between sites and how collectives use them; empty if the defaults apply.
std::string writeLinks(const Cluster &cluster) {
  const bundle::Topology &topology = cluster.topology;
  std::string out;
  bool all = topology.has_between_sites(), pairs = topology.site_pairs_size() > 0;
  const bool reach = cluster.deviceToDevice != D2dScope::Site;
  if (all || pairs || reach || topology.pairwise_sums())
    out += "links:\n";
  if (reach)
    out += std::string("  device_to_device_scope: ") +
           (cluster.deviceToDevice == D2dScope::Node      ? "node"
            : cluster.deviceToDevice == D2dScope::Nowhere ? "nowhere"
                                                          : "everywhere") +
           "\n";
  if (topology.pairwise_sums())
    out += "  collectives: exchange\n";
  if (all)
    out += "  inter_site: " + link(topology.between_sites()) + "\n";
  if (pairs)
    out += "  site_pairs:\n";
  for (const auto &pair : topology.site_pairs()) {
    std::string text = link(pair.link());
    // Omitted fields default to inter_site, which may have a flow limit.
    if (pair.link().per_flow_bandwidth() <= 0)
      text = text.substr(0, text.size() - 1) + ", per_flow_bandwidth: unlimited}";
    out += "    - {sites: [" + inQuotes(topology.sites(static_cast<int>(pair.a())).name()) + ", " +
           inQuotes(topology.sites(static_cast<int>(pair.b())).name()) + "], " + text.substr(1) +
           "\n";
  }
  return out;
}

} // namespace

std::string zorse::planning::writeCluster(const Cluster &cluster) {
  const bundle::Topology &topology = cluster.topology;
  std::string out;
  if (!cluster.name.empty())
    out += "name: " + inQuotes(cluster.name) + "\n";
  if (cluster.currency != "USD")
    out += "currency: " + inQuotes(cluster.currency) + "\n";
  out += "sites:\n";
  for (int s = 0; s < topology.sites_size(); ++s) {
    const auto &site = topology.sites(s);
    double egress = static_cast<size_t>(s) < cluster.egressPrice.size()
                        ? cluster.egressPrice[static_cast<size_t>(s)] * 1e9
                        : 0;
    out += "  - {name: " + inQuotes(site.name().empty() ? "site" : site.name()) +
           ", fabric: " + link(site.fabric());
    out += (given(site.uplink()) ? ", uplink: " + link(site.uplink()) : "") +
           (egress > 0 ? ", egress_price: " + number(egress) : "") + "}\n";
  }
  return out + writeNodes(cluster) + writeLinks(cluster);
}
