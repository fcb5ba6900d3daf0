#include "EarlyChecks.h"

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Plan.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <unistd.h>

namespace fs = std::filesystem;

namespace zorse::pipelines {

namespace {

/// Why a bundle cannot be written there, as far as it is known before.
std::string outputProblem(const std::string &directory) {
  std::error_code failure;
  fs::path target = fs::absolute(directory).lexically_normal();
  if (target.filename().empty()) // "out.zorse/"
    target = target.parent_path();
  if (fs::exists(fs::symlink_status(target, failure)) &&
      !(fs::is_directory(target, failure) && (fs::is_empty(target, failure) || fs::exists(target / "manifest.json", failure))))
    return directory + ": exists and is not a bundle: it is left alone. Choose another name with -o, or remove it";
  fs::path parent = target.parent_path();
  while (!fs::exists(parent, failure) && parent.has_relative_path()) // folders on the way are made
    parent = parent.parent_path();
  if (!fs::is_directory(parent, failure))
    return directory + ": no bundle can be written here: " + parent.string() + " is not a folder; choose another name with -o";
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    return directory + ": no bundle can be written here: folder " + parent.string() + ": " + std::strerror(errno) + "; choose another name with -o";
  return {};
}

} // namespace

std::string problemAtStart(const CompileOptions &options) {
  std::string error;
  std::optional<planning::Cluster> cluster;
  if (!options.cluster.empty() && !(cluster = planning::readClusterFile(options.cluster, error)))
    return error;
  if (!options.profiles.empty() && !planning::readProfileFiles(options.profiles, error))
    return error;
  if (!options.plan.empty()) {
    std::optional<step::PlanHead> head = step::readPlanHead(options.plan, error);
    if (!head)
      return error;
    if (options.batch > 0 && head->batch != options.batch)
      return step::otherBatch(options.plan, head->batch, options.batch);
    step::Plan devices;
    for (const std::string &device : head->devices)
      devices.devices.emplace_back().name = device;
    if (cluster && !planning::applyCluster(devices, *cluster, bundle::F32, error))
      return options.plan + ": " + error;
  }
  return options.writesBundle() ? outputProblem(options.output) : std::string();
}

} // namespace zorse::pipelines
