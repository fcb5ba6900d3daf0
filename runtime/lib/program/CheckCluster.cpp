#include "zorse/runtime/Bundle.h"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <sstream>

using namespace zorse::runtime;

namespace {

/// Names and kinds of the devices, in the order of the file; "" where the kind follows from a type. `count: n` is n devices name:0 ... name:n-1.
/// \param nodes  receives the node of every device.
std::vector<std::pair<std::string, std::string>> devicesOf(const YAML::Node &root, std::vector<uint32_t> *nodes = nullptr) {
  std::vector<std::pair<std::string, std::string>> devices;
  uint32_t index = 0;
  for (const YAML::Node &node : root["nodes"]) {
    for (const YAML::Node &device : node["devices"]) {
      std::string name = device["name"].as<std::string>(), kind = device["kind"] ? device["kind"].as<std::string>() : "";
      if (!device["count"]) {
        devices.emplace_back(name, kind);
        continue;
      }
      int count = device["count"].as<int>();
      if (count < 1 || count > 65536)
        throw YAML::RepresentationException(device["count"].Mark(), "count: expected a whole number from 1 to 65536");
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
  std::ifstream file(clusterFile);
  if (!file)
    return userError(clusterFile + ": cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  if (text.str() == bundle.cluster)
    return Status::success();
  std::vector<std::pair<std::string, std::string>> found, expected;
  try {
    found = devicesOf(YAML::Load(text.str()));
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
