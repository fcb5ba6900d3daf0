#include "EarlyChecks.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Plan.h"

namespace zorse::pipelines {

std::string problemAtStart(const CompileOptions &options) {
  std::string error;
  std::optional<planning::Cluster> cluster;
  if (!options.cluster.empty()) {
    cluster = planning::readClusterFile(options.cluster, error);
    if (!cluster || !planning::adaptToPrecision(*cluster, options.precision, error))
      return error;
  }
  if (!options.profiles.empty() && !planning::readProfileFiles(options.profiles, error))
    return error;
  if (!options.plan.empty()) {
    Result<step::PlanHead> head = step::readPlanHead(options.plan);
    if (head.failed())
      return head.message();
    if (options.batch > 0 && head->batch != options.batch)
      return step::otherBatch(options.plan, head->batch, options.batch);
    step::Plan devices;
    for (const std::string &device : head->devices)
      devices.devices.emplace_back().name = device;
    if (cluster && !planning::applyCluster(devices, *cluster, bundle::F32, error))
      return options.plan + ": " + error;
  }
  return options.writesBundle() ? bundle::whyNotWritable(options.output) : std::string();
}

} // namespace zorse::pipelines
