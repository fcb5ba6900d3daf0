#include "EarlyChecks.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Plan.h"

namespace zorse::pipelines {

std::string problemAtStart(const CompileOptions &options) {
  std::optional<planning::Cluster> cluster;
  if (!options.cluster.empty()) {
    Result<planning::Cluster> read = planning::readClusterFile(options.cluster);
    if (read.failed())
      return read.message();
    cluster = std::move(*read);
    if (auto assumed = planning::adaptToPrecision(*cluster, options.precision); assumed.failed())
      return assumed.message();
  }
  if (auto profile = planning::readProfileFiles(options.profiles); profile.failed())
    return profile.message();
  if (!options.plan.empty()) {
    Result<step::PlanHead> head = step::readPlanHead(options.plan);
    if (head.failed())
      return head.message();
    if (options.batch > 0 && head->batch != options.batch)
      return step::otherBatch(options.plan, head->batch, options.batch);
    step::Plan devices;
    for (const std::string &device : head->devices)
      devices.devices.emplace_back().name = device;
    if (Status status = cluster ? planning::applyCluster(devices, *cluster, bundle::F32) : Status::success(); status.failed())
      return options.plan + ": " + status.message();
  }
  return options.writesBundle() ? bundle::whyNotWritable(options.output) : std::string();
}

} // namespace zorse::pipelines
