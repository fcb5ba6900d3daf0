#include "zorse/runtime/Bundle.h"

#include <yaml-cpp/yaml.h>

#include <unordered_map>

using namespace zorse::runtime;

namespace {

// Limits, equal to those of the compiler's reader.
constexpr size_t kMaxBytes = size_t(16) << 20;
constexpr int kMaxDevices = 65536;
constexpr size_t kMaxKeys = 64; // keys of one device; a lookup takes time linear in their number

[[noreturn]] void fail(const YAML::Node &node, const std::string &message) {
  throw YAML::RepresentationException(node.Mark(), message);
}

/// Returns `key` of a mapping, or of its template if the mapping has no such key.
YAML::Node field(const YAML::Node &node, const char *key, const YAML::Node &templates) {
  if (!node.IsMap() || node.size() > kMaxKeys)
    fail(node, "expected a mapping of at most " + std::to_string(kMaxKeys) + " keys");
  const YAML::Node own = node[key];
  const YAML::Node name = node["template"];
  if (own.IsDefined() || !name.IsDefined())
    return own;
  const std::string wanted = name.as<std::string>();
  if (templates.IsDefined() && templates.IsMap())
    for (const auto &item : templates)
      if (item.first.IsScalar() && item.first.Scalar() == wanted)
        return item.second.IsMap() && item.second.size() <= kMaxKeys ? item.second[key] : own;
  fail(name, "there is no template '" + wanted + "'");
}

int countOf(const YAML::Node &node, int max) {
  int count = node.IsDefined() ? node.as<int>() : 1;
  if (count < 1 || count > max)
    fail(node, "count: expected a whole number from 1, and at most " + std::to_string(kMaxDevices) +
                   " nodes and devices together");
  return count;
}

struct Described {
  std::string name;
  std::string kind; ///< "": given by a type
  std::string gpu;  ///< "": any
  uint32_t node;    ///< 0-based
};

/// Lists the devices in the order of the file. A device or a node with `count` gives devices with
/// the names name:0, name:1, ..., numbered through all nodes of the entry.
std::vector<Described> devicesOf(const YAML::Node &root) {
  struct Entry {
    std::string name, kind, gpu;
    int count;
    bool numbered;
  };
  const YAML::Node none(YAML::NodeType::Undefined);
  const YAML::Node templates = root["templates"].IsDefined() ? root["templates"] : none;
  const YAML::Node nodeTemplates = templates.IsDefined() ? templates["nodes"] : none,
                   deviceTemplates = templates.IsDefined() ? templates["devices"] : none;
  std::vector<Described> devices;
  int index = 0;
  for (const YAML::Node &node : root["nodes"]) {
    const YAML::Node nodeCount = node["count"];
    int times = countOf(nodeCount, kMaxDevices - index);
    std::vector<Entry> entries;
    int perNode = 0;
    for (const YAML::Node &device : field(node, "devices", nodeTemplates)) {
      const YAML::Node count = field(device, "count", deviceTemplates),
                       kind = field(device, "kind", deviceTemplates), gpu = device["gpu"];
      int max = (kMaxDevices - int(devices.size())) / times - perNode;
      if (max < 1)
        fail(device, "expected at most " + std::to_string(kMaxDevices) + " devices");
      Entry entry = {device["name"].as<std::string>(),
                     kind.IsDefined() ? kind.as<std::string>() : "",
                     gpu.IsDefined() ? gpu.as<std::string>() : "", countOf(count, max),
                     count.IsDefined() || nodeCount.IsDefined()};
      perNode += entry.count;
      entries.push_back(entry);
    }
    for (int n = 0; n < times; ++n, ++index) {
      for (const Entry &entry : entries)
        for (int i = 0; i < entry.count; ++i)
          devices.push_back(
              {entry.numbered ? entry.name + ":" + std::to_string(n * entry.count + i) : entry.name,
               entry.kind, entry.gpu, uint32_t(index)});
    }
  }
  return devices;
}

std::string list(const std::vector<Described> &devices) {
  std::string text;
  for (const auto &[name, kind, gpu, node] : devices)
    if (text.size() > 2000)
      return text + ", ... (" + std::to_string(devices.size()) + " devices)";
    else
      text += (text.empty() ? "" : ", ") + name + (kind.empty() ? "" : " (" + kind + ")");
  return text.empty() ? "none" : text;
}

/// Returns the description in cluster.yaml of every device of the bundle; empty if the bundle has
/// no cluster.yaml.
Result<std::vector<Described>> describedDevices(const Bundle &bundle) {
  std::vector<Described> found;
  if (bundle.cluster.empty())
    return found;
  std::unordered_map<std::string, Described> byName; // a plan may omit devices of the cluster
  try {
    for (Described &device : devicesOf(YAML::Load(bundle.cluster)))
      byName[device.name] = std::move(device);
  } catch (const YAML::Exception &exception) {
    return userError(bundle.directory +
                     "/cluster.yaml: is not a cluster description: " + exception.what());
  }
  for (const BundleDevice &device : bundle.devices) {
    auto described = byName.find(device.name);
    if (described == byName.end())
      return userError(bundle.directory + "/cluster.yaml: does not describe device '" +
                       device.name + "' of the manifest; compile the model again");
    found.push_back(described->second);
  }
  return found;
}

} // namespace

Result<std::vector<uint32_t>> zorse::runtime::nodesOfDevices(const Bundle &bundle) {
  Result<std::vector<Described>> devices = describedDevices(bundle);
  if (devices.failed())
    return devices.error();
  std::vector<uint32_t> nodes;
  for (const Described &device : *devices)
    nodes.push_back(device.node);
  return nodes;
}

Result<std::vector<std::string>> zorse::runtime::gpusOfDevices(const Bundle &bundle) {
  Result<std::vector<Described>> devices = describedDevices(bundle);
  if (devices.failed())
    return devices.error();
  std::vector<std::string> gpus(bundle.devices.size());
  for (size_t d = 0; d < devices->size(); ++d)
    gpus[d] = (*devices)[d].gpu;
  return gpus;
}

Status zorse::runtime::checkCluster(const Bundle &bundle, const std::string &clusterFile) {
  Result<MappedFile> file = MappedFile::open(clusterFile);
  return file.failed() ? file.error() : checkCluster(bundle, *file);
}

Status zorse::runtime::checkCluster(const Bundle &bundle, const MappedFile &file) {
  const std::string &clusterFile = file.path();
  if (file.size() > kMaxBytes)
    return userError(clusterFile + ": expects a cluster description of at most " +
                     std::to_string(kMaxBytes >> 20) + " MiB, got " + std::to_string(file.size()) +
                     " bytes");
  const std::string text(reinterpret_cast<const char *>(file.data()), file.size());
  if (text == bundle.cluster)
    return Status::success();
  std::vector<Described> found, expected;
  try {
    found = devicesOf(YAML::Load(text));
  } catch (const YAML::Exception &exception) {
    return userError(clusterFile + ": is not a cluster description: " + exception.what());
  }
  for (const BundleDevice &device : bundle.devices)
    expected.push_back({device.name, device.kind, "", 0});
  bool same = found.size() == expected.size();
  for (size_t i = 0; i < found.size() && same; ++i)
    same = found[i].name == expected[i].name &&
           (found[i].kind.empty() || found[i].kind == expected[i].kind);
  if (!same)
    return userError(clusterFile + ": the bundle was compiled for devices " + list(expected) +
                     "; this cluster has devices " + list(found) +
                     ". Compile the model for this cluster");
  return Status::success();
}
