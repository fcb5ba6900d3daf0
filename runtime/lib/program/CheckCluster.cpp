#include "zorse/runtime/Bundle.h"

#include <yaml-cpp/yaml.h>


using namespace zorse::runtime;

namespace {

// As the compiler's reader has them.
constexpr size_t kMostBytes = size_t(16) << 20;
constexpr int kMostDevices = 65536;
constexpr size_t kMostKeys = 64; // of one device: looking one up takes time for each

/// Names and kinds of the devices, in the order of the file; "" where the kind follows from a type. `count: n` is n devices name:0 ... name:n-1.
/// \param nodes  receives the node of every device.
std::vector<std::pair<std::string, std::string>> devicesOf(const YAML::Node &root, std::vector<uint32_t> *nodes = nullptr) {
  std::vector<std::pair<std::string, std::string>> devices;
  uint32_t index = 0;
  for (const YAML::Node &node : root["nodes"]) {
    for (const YAML::Node &device : node["devices"]) {
      if (device.IsMap() && device.size() > kMostKeys)
        throw YAML::RepresentationException(device.Mark(), "expected a device, got a mapping of " + std::to_string(device.size()) + " keys");
      std::string name = device["name"].as<std::string>(), kind = device["kind"] ? device["kind"].as<std::string>() : "";
      if (devices.size() >= kMostDevices)
        throw YAML::RepresentationException(device.Mark(), "expected at most 65536 devices");
      if (!device["count"]) {
        devices.emplace_back(name, kind);
        continue;
      }
      int count = device["count"].as<int>();
      if (count < 1 || count > kMostDevices - int(devices.size()))
        throw YAML::RepresentationException(device["count"].Mark(), "count: expected a whole number from 1, and at most 65536 devices together");
      for (int i = 0; i < count; ++i)
        devices.emplace_back(name + ":" + std::to_string(i), kind);
    }
    if (nodes)
      nodes->resize(devices.size(), index);
    ++index;
  }
  return devices;
}

std::string list(const std::vector<std::pair<std::string, std::string>> &devices) {
  std::string text;
  for (const auto &[name, kind] : devices)
    if (text.size() > 2000)
      return text + ", ... (" + std::to_string(devices.size()) + " devices)";
    else
      text += (text.empty() ? "" : ", ") + name + (kind.empty() ? "" : " (" + kind + ")");
  return text.empty() ? "none" : text;
}

} // namespace

Result<std::vector<uint32_t>> zorse::runtime::nodesOfDevices(const Bundle &bundle) {
  std::vector<uint32_t> nodes;
  if (bundle.cluster.empty())
    return nodes;
  try {
    devicesOf(YAML::Load(bundle.cluster), &nodes);
  } catch (const YAML::Exception &exception) {
    return userError(bundle.directory + "/cluster.yaml: is not a cluster description: " + exception.what());
  }
  if (nodes.size() != bundle.devices.size())
    return userError(bundle.directory + "/cluster.yaml: describes " + std::to_string(nodes.size()) + " devices, the manifest names " +
                     std::to_string(bundle.devices.size()) + "; compile the model again");
  return nodes;
}

Status zorse::runtime::checkCluster(const Bundle &bundle, const std::string &clusterFile) {
  Result<MappedFile> file = MappedFile::open(clusterFile);
  return file.failed() ? file.error() : checkCluster(bundle, *file);
}

Status zorse::runtime::checkCluster(const Bundle &bundle, const MappedFile &file) {
  const std::string &clusterFile = file.path();
  if (file.size() > kMostBytes)
    return userError(clusterFile + ": expects a cluster description of at most " + std::to_string(kMostBytes >> 20) + " MiB, got " + std::to_string(file.size()) + " bytes");
  const std::string text(reinterpret_cast<const char *>(file.data()), file.size());
  if (text == bundle.cluster)
    return Status::success();
  std::vector<std::pair<std::string, std::string>> found, expected;
  try {
    found = devicesOf(YAML::Load(text));
  } catch (const YAML::Exception &exception) {
    return userError(clusterFile + ": is not a cluster description: " + exception.what());
  }
  for (const BundleDevice &device : bundle.devices)
    expected.emplace_back(device.name, device.kind);
  bool same = found.size() == expected.size();
  for (size_t i = 0; i < found.size() && same; ++i)
    same = found[i].first == expected[i].first && (found[i].second.empty() || found[i].second == expected[i].second);
  if (!same)
    return userError(clusterFile + ": the bundle was compiled for devices " + list(expected) + "; this cluster has devices " + list(found) +
                     ". Compile the model for this cluster");
  return Status::success();
}
