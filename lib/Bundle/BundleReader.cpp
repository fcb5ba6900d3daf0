#include "zorse/Bundle/BundleReader.h"

#include "BundleFile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace zorse::bundle {

namespace {

/// Reads a file that the manifest lists and compares its checksum.
bool readListed(const BundleView &bundle, const std::string &name, std::string &bytes, std::string &error) {
  auto listed = bundle.files.find(name);
  if (listed == bundle.files.end()) {
    error = bundle.directory + "/manifest.json: lists no " + name + ": the bundle is incomplete. Compile it again";
    return false;
  }
  if (!bundle.read(bundle.directory + "/" + name, bytes, error))
    return false;
  if (std::string found = sha256(bytes); found != listed->second) {
    error = bundle.directory + "/" + name + ": its SHA-256 is " + found + ", the manifest says " + listed->second +
            ": the file was changed or damaged. Compile the bundle again";
    return false;
  }
  return true;
}

template <typename Message> bool readMessage(const BundleView &bundle, const std::string &name, Message &message, std::string &error) {
  std::string bytes;
  if (!readListed(bundle, name, bytes, error))
    return false;
  if (!message.ParseFromString(bytes)) {
    error = bundle.directory + "/" + name + ": expects a serialised " + message.GetTypeName() + ", got something else";
    return false;
  }
  if (name.rfind("programs/", 0) != 0 && !knownFieldsOnly(message)) {
    error = bundle.directory + "/" + name + ": holds fields that this version does not know. Compile the bundle again";
    return false;
  }
  return true;
}

} // namespace

int BundleView::findDevice(const std::string &name) const {
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].name == name || std::to_string(i) == name)
      return static_cast<int>(i);
  return -1;
}

std::optional<BundleView> readBundle(const std::string &directory, std::string &error) {
  std::error_code none;
  if (!std::filesystem::is_directory(directory, none)) {
    error = directory + ": expects a bundle, a directory that zorse-compile wrote";
    return std::nullopt;
  }
  return readBundle(directory, error, readFile);
}

std::optional<BundleView> readBundle(const std::string &directory, std::string &error, ReadFile read) {
  BundleView bundle;
  bundle.directory = directory;
  bundle.read = std::move(read);
  if (!readManifest(directory, bundle.read, bundle, error))
    return std::nullopt;
  if (!readListed(bundle, "plan.json", bundle.plan, error) || !readMessage(bundle, "summary.pb", bundle.summary, error) ||
      !readMessage(bundle, bodiesFile(0), bundle.bodies, error))
    return std::nullopt;
  uint32_t targets = 1;
  for (const BundleDevice &device : bundle.devices)
    targets = std::max(targets, device.target + 1);
  while (bundle.files.count(bodiesFile(targets))) // that of the host, where all devices are GPUs
    ++targets;
  for (uint32_t target = 1; target < targets; ++target) {
    const std::string file = bodiesFile(target);
    if (!readMessage(bundle, file, bundle.otherTargets.emplace_back(), error))
      return std::nullopt;
    if (std::string problem = differentSlots(bundle.bodies, bundle.otherTargets.back()); !problem.empty()) {
      error = directory + "/";
      error.append(file).append(": ").append(problem).append(". Compile the bundle again");
      return std::nullopt;
    }
  }
  if (std::string problem = contradiction(bundle, bundle.plan, bundle.summary); !problem.empty()) {
    error = directory + ": " + problem;
    return std::nullopt;
  }
  return bundle;
}

std::optional<Program> readProgram(const BundleView &bundle, int device, std::string &error) {
  Program program;
  if (!readMessage(bundle, "programs/" + std::to_string(device) + ".pb", program, error))
    return std::nullopt;
  return program;
}

bool readKernels(const BundleView &bundle, const BodyLibrary &target, std::string &path, std::string &bytes, std::string &error) {
  if (target.objects_size() == 0) {
    error = bundle.directory + ": expects a file of kernels for " + target.arch() + ", and its bodies name none. Compile the bundle again";
    return false;
  }
  const std::string name = "kernels/" + target.arch() + "/" + target.objects(0);
  path = bundle.directory + "/" + name;
  return readListed(bundle, name, bytes, error);
}

bool readWeights(const BundleView &bundle, std::vector<WeightData> &weights, bool &references, std::string &error) {
  const std::string name = bundle.directory + "/weights.json";
  std::string text;
  if (!readListed(bundle, "weights.json", text, error))
    return false;
  std::map<std::string, std::string> files;
  std::map<std::string, WeightData> stored;
  try {
    nlohmann::json table = nlohmann::json::parse(text);
    references = table.at("references").get<bool>();
    if (references)
      return true;
    for (const nlohmann::json &entry : table.at("parameters")) {
      WeightData weight;
      weight.name = entry.at("name");
      weight.type = entry.at("type");
      weight.shape = entry.at("shape").get<std::vector<int64_t>>();
      if (entry.contains("permutation"))
        weight.permutation = entry.at("permutation").get<std::vector<int64_t>>();
      const std::string file = entry.at("file");
      if (!files.count(file) && !readListed(bundle, file, files[file], error))
        return false;
      const uint64_t offset = entry.at("offset"), bytes = entry.at("bytes");
      if (offset > files[file].size() || bytes > files[file].size() - offset) {
        error = name + ": '" + weight.name + "' lies outside " + file;
        return false;
      }
      weight.bytes = files[file].substr(offset, bytes);
      stored[weight.name] = std::move(weight);
    }
  } catch (const nlohmann::json::exception &exception) {
    error = name + ": is not the weights list of a bundle: " + exception.what();
    return false;
  }
  for (WeightData &weight : weights) {
    auto found = stored.find(weight.name);
    if (found == stored.end() || found->second.shape != weight.shape || found->second.permutation != weight.permutation) {
      error = name + ": has no bytes of the right shape for parameter '" + weight.name + "'";
      return false;
    }
    found->second.hub = weight.hub; // what it is called is said by the model's file, as everything but the numbers is
    weight = std::move(found->second);
  }
  return true;
}

} // namespace zorse::bundle
