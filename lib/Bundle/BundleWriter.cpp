#include "zorse/Bundle/BundleWriter.h"

#include "BundleFile.h"
#include "Weights.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <filesystem>
#include <unistd.h>

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace zorse::bundle {

std::string serialize(const google::protobuf::MessageLite &message) {
  std::string bytes(message.ByteSizeLong(), 0); // a stream that grows would leave gaps
  google::protobuf::io::ArrayOutputStream stream(bytes.data(), int(bytes.size()));
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true); // maps in the order of their keys
  message.SerializeWithCachedSizes(&coded);
  return bytes;
}

namespace {

/// Writes all files below `directory`, which exists and is empty.
bool writeFiles(const BundleContents &c, const std::string &directory, std::string &error, std::string *digest) {
  std::map<std::string, std::string> files;
  auto write = [&](const std::string &name, std::string_view bytes) {
    std::error_code failure;
    fs::create_directories(fs::path(directory + "/" + name).parent_path(), failure); // if it fails, so does opening
    BundleFile file;
    file.open(directory + "/" + name);
    file.write(bytes);
    return file.close(files[name], error);
  };

  auto writeTarget = [&](uint32_t target, const BodyLibrary &bodies, const std::string &kernels) {
    return write(bodiesFile(target), serialize(bodies)) &&
           (kernels.empty() || bodies.objects_size() == 0 || write("kernels/" + bodies.arch() + "/" + bodies.objects(0), kernels));
  };
  ordered_json weights;
  if (!writeWeights(c.weights, c.hub, c.weightMode, directory, weights, files, error) || !write("weights.json", weights.dump(1) + "\n") ||
      !write("plan.json", c.plan) || !write("cluster.yaml", c.cluster) ||
      (c.topology.nodes_size() > 0 && !write("topology.pb", serialize(c.topology))) || !write("summary.pb", serialize(c.summary)) ||
      !writeTarget(0, c.bodies, c.kernels))
    return false;
  for (size_t i = 0; i < c.otherTargets.size(); ++i)
    if (!writeTarget(uint32_t(i + 1), c.otherTargets[i].bodies, c.otherTargets[i].kernels))
      return false;
  for (size_t i = 0; i < c.programs.size(); ++i)
    if (!write(programFile(uint32_t(i)), c.programs[i]))
      return false;
  for (size_t i = 0; i < c.staged.size(); ++i)
    if (!write(stagedFile(uint32_t(i)), c.staged[i]))
      return false;

  ordered_json manifest = {
      {"format_version", kFormatVersion}, {"model", c.model}, {"batch", c.batch}, {"sequence", c.sequence}, {"precision", c.precision}};
  manifest["devices"] = ordered_json::array();
  for (const BundleDevice &device : c.devices) {
    manifest["devices"].push_back(
        {{"name", device.name}, {"kind", device.kind}, {"threads", device.threads}, {"memory", device.memory}, {"target", device.target}});
    if (!c.staged.empty() && device.direct >= 0)
      manifest["devices"].back()["direct"] = device.direct;
  }
  manifest["training"] = ordered_json::parse(trainingText(c.summary.training()));
  manifest["files"] = files;
  if (!write("manifest.json", manifest.dump(1) + "\n"))
    return false;
  if (digest)
    *digest = files["manifest.json"];
  return write(kDigestFile, files["manifest.json"] + "  manifest.json\n");
}

} // namespace

bool writeBundle(const BundleContents &contents, const std::string &directory, std::string &error, std::string *digest) {
  std::error_code failure;
  fs::path target = fs::absolute(directory).lexically_normal();
  if (target.filename().empty()) // "out.zorse/"
    target = target.parent_path();
  bool exists = fs::exists(fs::symlink_status(target, failure));
  if (exists && !(fs::is_directory(target, failure) && (fs::is_empty(target, failure) || fs::exists(target / "manifest.json", failure)))) {
    error = directory + ": exists and is not a bundle: it is left alone. Choose another name with -o, or remove it";
    return false;
  }

  // Beside the target, so that the rename stays on one file system.
  fs::path temporary = target.parent_path() / ("." + target.filename().string() + ".writing." + std::to_string(getpid()));
  fs::remove_all(temporary, failure);
  if (!fs::create_directories(temporary, failure)) {
    error = temporary.parent_path().string() + ": no bundle can be written here: " + failure.message();
    return false;
  }
  bool good = writeFiles(contents, temporary.string(), error, digest);
  if (good && exists)
    fs::remove_all(target, failure);
  if (good) {
    fs::rename(temporary, target, failure);
    if (failure) {
      error = directory + ": cannot be written: " + failure.message();
      good = false;
    }
  }
  if (!good)
    fs::remove_all(temporary, failure);
  return good;
}

} // namespace zorse::bundle
