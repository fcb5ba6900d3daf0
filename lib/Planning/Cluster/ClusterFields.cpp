#include "ClusterFields.h"

#include "zorse/Base/Format.h"
#include "zorse/Planning/Cluster.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>

using namespace zorse::planning;
using namespace zorse::planning::fields;

void fields::fail(const YAML::Node &node, const std::string &message) {
  YAML::Mark mark = node.Mark();
  throw FieldError{(mark.line >= 0 ? "line " + std::to_string(mark.line + 1) + ": " : "") +
                   message};
}

std::string fields::show(const YAML::Node &node) {
  if (!node.IsDefined() || node.IsNull())
    return "nothing";
  if (!node.IsScalar())
    return node.IsSequence() ? "a list" : "a mapping";
  std::string text = node.Scalar().substr(0, 80);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); },
      ' ');
  return "'" + text + (node.Scalar().size() > 80 ? "..." : "") + "'";
}

namespace {

std::string lower(std::string text) {
  for (char &c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Edit distance: number of insertions, deletions, substitutions and transpositions.
size_t distance(const std::string &a, const std::string &b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

struct Unit {
  const char *name;
  double factor;
};

/// Common names of a key in other tools.
struct Alias {
  const char *key;
  std::initializer_list<const char *> others; ///< lower case, words separated by underscores
};
const Alias kAliases[] = {
    {"intra_node",
     {"within_node", "within_nodes", "in_node", "inside_node", "intranode", "nvlink", "local"}},
    {"inter_node",
     {"between_nodes", "internode", "across_nodes", "network", "ethernet", "infiniband", "fabric"}},
    {"inter_site",
     {"between_sites", "intersite", "across_sites", "between_regions", "inter_region", "wan"}},
    {"flops_per_second",
     {"flops", "tflops", "flop", "peak", "peak_flops", "throughput", "performance"}},
    {"memory", {"mem", "ram", "vram", "memory_gb", "memory_size", "gpu_memory", "hbm"}},
    {"memory_bandwidth", {"bandwidth", "mem_bandwidth", "memory_bw", "hbm_bandwidth"}},
    {"host_memory", {"memory", "ram", "mem", "cpu_memory", "system_memory"}},
    {"nic", {"network", "card", "network_card", "ethernet", "infiniband", "nics", "inter_node"}},
    {"device_link", {"nvlink", "intra_node"}},
    {"devices", {"gpus", "gpu", "device", "accelerators", "cpus"}},
    {"nodes", {"hosts", "machines", "servers", "node"}},
    {"sites", {"regions", "zones", "datacenters", "site"}},
    {"count", {"number", "num", "n", "amount", "quantity", "times", "replicas"}},
    {"type", {"gpu", "model", "gpu_type", "device_type", "product"}},
    {"threads", {"cores", "cpus", "num_threads", "processors"}},
    {"price", {"cost", "price_per_hour", "hourly_price", "cost_per_hour"}},
    {"arch", {"architecture", "compute_capability", "sm", "capability"}},
    {"sm_count", {"sms", "multiprocessor_count"}},
    {"bandwidth", {"bw", "speed", "rate"}},
    {"latency", {"delay", "rtt", "ping"}},
};

/// Keys that had another name in older cluster files.
constexpr std::pair<const char *, const char *> kRenamed[] = {
    {"speed", "flops_per_second"},
    {"half_rows", "half_peak_rows"},
    {"launch", "launch_overhead"},
    {"reserve", "reserved_memory"},
    {"multiprocessors", "sm_count"},
    {"efficiency", "execution_mode"},
    {"direct", "device_to_device"},
    {"direct", "device_to_device_scope"},
    {"port", "device_link"},
    {"flow", "per_flow_bandwidth"},
    {"half_size", "half_bandwidth_bytes"},
    {"between", "site_pairs"},
};

/// The key that means the same as `name`; empty if none of `known` does.
std::string meant(const std::string &name, const std::vector<std::string> &known) {
  std::string want = lower(name);
  std::replace_if(want.begin(), want.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  for (const std::string &key : known)
    if (want == key)
      return key;
  for (const Alias &alias : kAliases)
    if (std::find(known.begin(), known.end(), alias.key) != known.end() &&
        std::any_of(alias.others.begin(), alias.others.end(),
                    [&](const char *other) { return want == other; }))
      return alias.key;
  return {};
}

/// Reads a number with an optional unit from `units`. It must be from `min` to `max`, or 0 if
/// `zero`.
double toQuantity(const YAML::Node &node, const std::string &what, const std::vector<Unit> &units,
                  double min, double max, bool zero, const std::string &remedy = "") {
  std::string names;
  for (const Unit &unit : units)
    names += std::string(names.empty() ? "" : ", ") + unit.name;
  std::string expected = what + ": expected a number" +
                         (names.empty() ? "" : ", plain or with one of " + names);
  std::string text = node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
  // strtod also accepts "nan", "inf" and hexadecimal numbers.
  bool plain = !text.empty() && text.size() < 64 &&
               (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.' ||
                text[0] == '-' || text[0] == '+') &&
               text.find_first_of("xX") == std::string::npos;
  char *end = nullptr;
  double value = plain ? std::strtod(text.c_str(), &end) : NAN;
  if (!plain || end == text.c_str())
    fail(node, expected + ", got " + show(node) + remedy);
  std::string unit = end;
  unit.erase(0, unit.find_first_not_of(' '));
  if (!unit.empty()) {
    auto it = std::find_if(units.begin(), units.end(),
                           [&](const Unit &known) { return unit == known.name; });
    if (it == units.end()) {
      std::vector<std::string> known;
      for (const Unit &k : units)
        known.push_back(k.name);
      fail(node, expected + ", got " + show(node) + suggestion(unit, known));
    }
    value *= it->factor;
  }
  if (!(zero && value == 0) && !(value >= min && value <= max)) // written so that NaN fails
    fail(node, what + ": expected " + (zero ? "0 or " : "") + "a value from " +
                   zorse::format("%g to %g", min, max) + ", got " + show(node) + remedy);
  return value;
}

} // namespace

std::string fields::suggestion(const std::string &name, const std::vector<std::string> &known) {
  std::string want = lower(name).substr(0, 64), close;
  std::vector<std::string> starts;
  size_t min = std::max<size_t>(1, want.size() / 3) + 1;
  for (const std::string &candidate : known) {
    std::string text = lower(candidate).substr(0, 64);
    if (want.size() >= 2 && text.compare(0, want.size(), want) == 0)
      starts.push_back("'" + candidate + "'");
    size_t d = distance(want, text);
    if (d < min) {
      min = d;
      close = "'" + candidate + "'";
    }
  }
  if (!starts.empty() && starts.size() <= 4) {
    close.clear();
    for (const std::string &s : starts)
      close += (close.empty() ? "" : " or ") + s;
  }
  return close.empty() ? "" : "; did you mean " + close + "?";
}

std::string fields::listed(const std::vector<std::string> &names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 12; ++i)
    text += (i ? ", " : "") + names[i];
  return text + (names.size() > 12 ? ", ..." : "");
}

void fields::checkKeys(const YAML::Node &node, const std::string &what,
                       std::initializer_list<const char *> known) {
  if (!node.IsDefined() || !node.IsMap())
    fail(node, what + ": expected a mapping, got " + show(node));
  std::set<std::string> seen;
  for (const auto &item : node) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
    if (!seen.insert(key).second)
      fail(item.first, what + ": '" + key + "' is given twice");
    if (std::find(known.begin(), known.end(), key) != known.end())
      continue;
    std::vector<std::string> names(known.begin(), known.end());
    for (auto [old, now] : kRenamed)
      if (key == old && std::find(names.begin(), names.end(), now) != names.end())
        fail(item.first, what + ": key '" + key + "' is now '" + now + "'");
    std::string list;
    for (const std::string &name : names)
      list += (list.empty() ? "" : ", ") + name;
    const std::string same = meant(key, names), near = same.empty()
                                                           ? suggestion(key, names)
                                                           : "; did you mean '" + same + "'?";
    std::string text = what;
    text.append(": unknown key ")
        .append(show(item.first))
        .append(near.empty() ? ";" : near)
        .append(" known are ")
        .append(list);
    fail(item.first, text);
  }
}

double fields::toSpeed(const YAML::Node &node, const std::string &what, bool zero) {
  return toQuantity(
      node, what, {{"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}}, 1e6,
      1e18, zero, "; a speed is the FLOP/s that large matrix products reach, 40 GFLOP/s say");
}

double fields::toBandwidth(const YAML::Node &node, const std::string &what, bool link) {
  if (node.IsDefined() && node.IsScalar() && node.Scalar() == "unlimited")
    return 0;
  return toQuantity(node, what,
                    {{"KB/s", 1e3},
                     {"MB/s", 1e6},
                     {"GB/s", 1e9},
                     {"TB/s", 1e12},
                     {"KiB/s", 1024.0},
                     {"MiB/s", 1048576.0},
                     {"GiB/s", 1073741824.0},
                     {"Mbit/s", 1.25e5},
                     {"Gbit/s", 1.25e8},
                     {"Tbit/s", 1.25e11}},
                    1e3, 1e15, false,
                    std::string(link ? "; devices without a link cannot train together" : "") +
                        "; write 'unlimited' for no limit");
}

double fields::toSeconds(const YAML::Node &node, const std::string &what) {
  return toQuantity(node, what, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}}, 0, 100,
                    true);
}

double fields::toPrice(const YAML::Node &node, const std::string &what) {
  return toQuantity(node, what, {}, 0, 1e9, true);
}

double fields::toRows(const YAML::Node &node, const std::string &what) {
  return toQuantity(node, what, {}, 0, 1e9, true);
}

double fields::toSlowdown(const YAML::Node &node, const std::string &what) {
  return toQuantity(node, what, {}, kMinSlowdown, kMaxSlowdown, false);
}

uint64_t fields::toBytes(const YAML::Node &node, const std::string &what, bool zero, double min) {
  double bytes = toQuantity(node, what,
                            {{"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KiB", 1024.0},
                             {"MiB", 1048576.0},
                             {"GiB", 1073741824.0},
                             {"TiB", 1099511627776.0}},
                            min, 1125899906842624.0, zero, "; a size is bytes, or 16 GB, 16 GiB");
  return static_cast<uint64_t>(bytes);
}

uint32_t fields::toCount(const YAML::Node &node, const std::string &what, uint32_t max) {
  double number = toQuantity(node, what, {}, 1, max, false);
  if (number != std::floor(number))
    fail(node, what + ": expected a whole number, got " + show(node));
  return static_cast<uint32_t>(number);
}

bool fields::toFlag(const YAML::Node &node, const std::string &what) {
  bool flag = false;
  if (!node.IsDefined() || !node.IsScalar() || !YAML::convert<bool>::decode(node, flag))
    fail(node, what + ": expected true or false, got " + show(node));
  return flag;
}

std::string fields::toName(const YAML::Node &node, const std::string &what, bool spaces) {
  bool good = node.IsDefined() && node.IsScalar() && !node.Scalar().empty() &&
              node.Scalar().size() <= 200;
  for (char c : good ? node.Scalar() : "")
    good &= c != '/' && c != '\\' && (c != ' ' || spaces) &&
            !std::iscntrl(static_cast<unsigned char>(c));
  if (!good)
    fail(node, what + ": expected a name without " + (spaces ? "" : "spaces or ") +
                   "slashes, at most 200 bytes, got " + show(node));
  return node.Scalar();
}

YAML::Node Fields::operator[](const char *key) const {
  const YAML::Node mine = own[key];
  if (mine.IsDefined() || !base.IsDefined() || !base.IsMap())
    return mine;
  return base[key];
}
