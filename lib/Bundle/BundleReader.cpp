#include "zorse/Bundle/BundleReader.h"

#include "BundleFile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace zorse::bundle {

namespace {

/// Reads a file that the manifest lists, and compares its checksum.
Result<std::string> readListed(const BundleView &bundle, const std::string &name) {
  auto listed = bundle.files.find(name);
  if (listed == bundle.files.end())
    return userError(bundle.directory + "/manifest.json: lists no " + name +
                     ": the bundle is incomplete. Compile it again");
  Result<std::string> bytes = bundle.read(bundle.directory + "/" + name);
  if (bytes.failed())
    return bytes;
  if (std::string found = sha256(*bytes); found != listed->second)
    return userError(bundle.directory + "/" + name + ": its SHA-256 is " + found +
                     ", the manifest says " + listed->second +
                     ": the file was changed or damaged. Compile the bundle again");
  return bytes;
}

template <typename Message>
Status readMessage(const BundleView &bundle, const std::string &name, Message &message) {
  Result<std::string> bytes = readListed(bundle, name);
  if (bytes.failed())
    return bytes.error();
  if (!message.ParseFromString(*bytes))
    return userError(bundle.directory + "/" + name + ": expects a serialized " +
                     message.GetTypeName() + ", got something else");
  if (name.rfind("programs/", 0) != 0 && !knownFieldsOnly(message))
    return userError(bundle.directory + "/" + name +
                     ": holds fields that this version does not know. Compile the bundle again");
  return Status::success();
}

} // namespace

int BundleView::findDevice(const std::string &name) const {
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].name == name || std::to_string(i) == name)
      return static_cast<int>(i);
  return -1;
}

Result<BundleView> readBundle(const std::string &directory) {
  std::error_code none;
  if (!std::filesystem::is_directory(directory, none))
    return userError(directory + ": expects a bundle, a directory that zorse-compile wrote");
  return readBundle(directory, readFile);
}

Result<BundleView> readBundle(const std::string &directory, ReadFile read) {
  Result<Manifest> manifest = readManifest(directory, read);
  if (manifest.failed())
    return manifest.error();
  BundleView bundle;
  static_cast<Manifest &>(bundle) = std::move(*manifest);
  bundle.directory = directory;
  bundle.read = std::move(read);
  Result<std::string> plan = readListed(bundle, "plan.json");
  if (plan.failed())
    return plan.error();
  bundle.plan = std::move(*plan);
  if (Status status = readMessage(bundle, "summary.pb", bundle.summary); status.failed())
    return status;
  if (Status status = readMessage(bundle, functionsFile(0), bundle.functions); status.failed())
    return status;
  uint32_t targets = 1;
  for (const BundleDevice &device : bundle.devices)
    targets = std::max(targets, device.target + 1);
  while (bundle.files.count(functionsFile(targets))) // includes the host's target if all devices
                                                     // are GPUs
    ++targets;
  for (uint32_t target = 1; target < targets; ++target) {
    const std::string file = functionsFile(target);
    if (Status status = readMessage(bundle, file, bundle.otherTargets.emplace_back());
        status.failed())
      return status;
    if (std::string problem = differentArguments(bundle.functions, bundle.otherTargets.back());
        !problem.empty())
      return userError(directory + "/" + file + ": " + problem + ". Compile the bundle again");
  }
  if (std::string problem = contradiction(bundle, bundle.plan, bundle.summary); !problem.empty())
    return userError(directory + ": " + problem);
  return bundle;
}

Result<Program> readProgram(const BundleView &bundle, int device) {
  Program program;
  if (Status status = readMessage(bundle, "programs/" + std::to_string(device) + ".pb", program);
      status.failed())
    return status;
  return program;
}

Result<KernelFile> readKernels(const BundleView &bundle, const FunctionLibrary &target) {
  if (target.objects_size() == 0)
    return userError(bundle.directory + ": missing kernel file for " + target.arch() +
                     ": the functions refer to none. Compile the bundle again");
  const std::string name = "kernels/" + target.arch() + "/" + target.objects(0);
  Result<std::string> bytes = readListed(bundle, name);
  if (bytes.failed())
    return bytes.error();
  return KernelFile{bundle.directory + "/" + name, std::move(*bytes)};
}

namespace {

WeightData weightOf(const nlohmann::json &entry) {
  WeightData weight;
  weight.name = entry.at("name");
  weight.type = entry.at("type");
  weight.shape = entry.at("shape").get<std::vector<int64_t>>();
  if (entry.contains("permutation"))
    weight.permutation = entry.at("permutation").get<std::vector<int64_t>>();
  weight.file = entry.at("file");
  weight.offset = entry.at("offset");
  weight.size = entry.at("bytes");
  return weight;
}

} // namespace

Result<StoredWeights> readWeightTable(const BundleView &bundle) {
  const std::string name = bundle.directory + "/weights.json";
  Result<std::string> text = readListed(bundle, "weights.json");
  if (text.failed())
    return text.error();
  StoredWeights stored;
  try {
    const nlohmann::json table = nlohmann::json::parse(*text);
    stored.references = table.at("references").get<bool>();
    if (table.contains("hub"))
      if (Status status = fromJson(table.at("hub"), stored.hub); status.failed())
        return userError(name + ": " + status.message());
    for (const nlohmann::json &entry : table.at("parameters")) {
      WeightData weight = weightOf(entry);
      if (entry.contains("hub"))
        if (Status status = fromJson(entry.at("hub"), weight.hub); status.failed())
          return userError(name + ": " + status.message());
      stored.weights.push_back(std::move(weight));
    }
  } catch (const nlohmann::json::exception &exception) {
    return userError(name + ": is not the weights list of a bundle: " + exception.what());
  }
  return stored;
}

Status readStoredBytes(const BundleView &bundle, std::vector<WeightData> &weights) {
  std::map<std::string, std::string> files;
  for (WeightData &weight : weights) {
    if (weight.file.empty() || !bundle.files.count(weight.file))
      continue;
    if (!files.count(weight.file)) {
      Result<std::string> bytes = readListed(bundle, weight.file);
      if (bytes.failed())
        return bytes.error();
      files[weight.file] = std::move(*bytes);
    }
    const std::string &bytes = files[weight.file];
    if (weight.offset > bytes.size() || weight.size > bytes.size() - weight.offset)
      return userError(bundle.directory + "/weights.json: '" + weight.name + "' lies outside " +
                       weight.file);
    weight.bytes = bytes.substr(weight.offset, weight.size);
    weight.file.clear();
  }
  return Status::success();
}

Result<bool> readWeights(const BundleView &bundle, std::vector<WeightData> &weights) {
  Result<StoredWeights> table = readWeightTable(bundle);
  if (table.failed())
    return table.error();
  if (table->references)
    return false;
  if (Status status = readStoredBytes(bundle, table->weights); status.failed())
    return status;
  std::map<std::string, WeightData> stored;
  for (WeightData &weight : table->weights)
    stored[weight.name] = std::move(weight);
  for (WeightData &weight : weights) {
    auto found = stored.find(weight.name);
    if (found == stored.end() || found->second.shape != weight.shape ||
        found->second.permutation != weight.permutation)
      return userError(bundle.directory +
                       "/weights.json: has no bytes of the right shape for parameter '" +
                       weight.name + "'");
    found->second.hub = weight.hub; // hub names are read from the model's file, like everything
                                    // except the numbers
    weight = std::move(found->second);
  }
  return true;
}

} // namespace zorse::bundle
