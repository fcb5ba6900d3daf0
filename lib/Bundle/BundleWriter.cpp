#include "zorse/Bundle/BundleWriter.h"

#include "BundleFile.h"
#include "Weights.h"
#include "zorse/Bundle/OutputDirectory.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <filesystem>
#include <set>

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace zorse::bundle {

std::string serialize(const google::protobuf::MessageLite &message) {
  std::string bytes(message.ByteSizeLong(), 0); // a growing stream would leave gaps
  google::protobuf::io::ArrayOutputStream stream(bytes.data(), int(bytes.size()));
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true); // writes maps sorted by key
  message.SerializeWithCachedSizes(&coded);
  return bytes;
}

namespace {

/// Writes all files to `directory`, which exists and is empty. \returns the digest
Result<std::string> writeFiles(const BundleContents &c, const std::string &directory) {
  std::map<std::string, std::string> files;
  Status status; // after a failure, nothing more is written
  auto write = [&](const std::string &name, std::string_view bytes) {
    if (status.failed())
      return;
    std::error_code failure;
    fs::create_directories(fs::path(directory + "/" + name).parent_path(),
                           failure); // if this fails, opening the file fails too
    BundleFile file;
    file.open(directory + "/" + name);
    file.write(bytes);
    if (Result<std::string> hash = file.close(); hash.failed())
      status = hash.error();
    else
      files[name] = std::move(*hash);
  };

  auto writeTarget = [&](uint32_t target, const FunctionLibrary &functions,
                         const std::string &kernels) {
    write(functionsFile(target), serialize(functions));
    if (!kernels.empty() && functions.objects_size() > 0)
      write("kernels/" + functions.arch() + "/" + functions.objects(0), kernels);
  };
  Result<ordered_json> weights = writeWeights(c.weights, c.hub, c.weightMode, directory, files);
  if (weights.failed())
    return weights.error();
  write("weights.json", weights->dump(1) + "\n");
  write("plan.json", c.plan);
  write("cluster.yaml", c.cluster);
  if (!c.profile.empty())
    write("profile.json", c.profile);
  if (c.topology.nodes_size() > 0)
    write("topology.pb", serialize(c.topology));
  write("summary.pb", serialize(c.summary));
  writeTarget(0, c.functions, c.kernels);
  for (size_t i = 0; i < c.otherTargets.size(); ++i)
    writeTarget(uint32_t(i + 1), c.otherTargets[i].functions, c.otherTargets[i].kernels);
  for (size_t i = 0; i < c.programs.size(); ++i)
    write(programFile(uint32_t(i)), c.programs[i]);
  for (size_t i = 0; i < c.hostStaged.size(); ++i)
    write(stagedFile(uint32_t(i)), c.hostStaged[i]);

  ordered_json manifest = {{"format_version", kFormatVersion},
                           {"model", c.model},
                           {"global_batch_size", c.batch},
                           {"seq_length", c.sequence},
                           {"precision", c.precision}};
  manifest["devices"] = ordered_json::array();
  for (const BundleDevice &device : c.devices) {
    manifest["devices"].push_back({{"name", device.name},
                                   {"kind", device.kind},
                                   {"threads", device.threads},
                                   {"memory", device.memory},
                                   {"target", device.target}});
    if (!c.hostStaged.empty() && device.d2dGroup >= 0)
      manifest["devices"].back()["device_to_device_group"] = device.d2dGroup;
  }
  manifest["training"] = ordered_json::parse(trainingText(c.summary.training()));
  manifest["files"] = files;
  write("manifest.json", manifest.dump(1) + "\n");
  const std::string digest = files["manifest.json"];
  write(kDigestFile, digest + "  manifest.json\n");
  if (status.failed())
    return status;
  return digest;
}

/// Returns the reason why a directory is not a bundle that may be replaced: other files of the user
/// would be lost.
std::string notABundle(const std::string &directory) {
  static const std::set<std::string> known = {
      "manifest.json",        kDigestFile,   "plan.json",    "cluster.yaml",
      "profile.json",         "topology.pb", "summary.pb",   "programs",
      "host_staged",          "kernels",     "weights.json", "weights.safetensors",
      "constants.safetensors"};
  std::error_code failure;
  if (!fs::exists(directory + "/manifest.json", failure))
    return "is not a bundle";
  for (fs::directory_iterator each(directory, failure), end; !failure && each != end;
       each.increment(failure)) {
    const std::string name = each->path().filename().string();
    if (!known.count(name) &&
        !(name.rfind("functions.", 0) == 0 && each->path().extension() == ".pb"))
      return "contains '" + name + "', which is not part of a bundle";
  }
  return {};
}

} // namespace

std::string whyNotWritable(const std::string &directory) {
  return OutputDirectory::problem(directory, notABundle);
}

Result<std::string> writeBundle(const BundleContents &contents, const std::string &directory) {
  Result<OutputDirectory> folder = OutputDirectory::create(directory, notABundle);
  if (folder.failed())
    return folder.error();
  Result<std::string> digest = writeFiles(contents, folder->path());
  if (digest.failed())
    return digest;
  if (Status status = folder->commit(); status.failed())
    return status;
  return digest;
}

} // namespace zorse::bundle
