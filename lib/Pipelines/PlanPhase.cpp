#include "PlanPhase.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/Search.h"
#include "zorse/Summary/Summary.h"

#include <map>
#include <set>

namespace zorse::pipelines {

std::string withoutDriver(const std::vector<bundle::BundleDevice> &devices) {
  std::string list;
  size_t count = 0;
  for (const bundle::BundleDevice &device : devices)
    if (!deviceKindOf(device.kind).driven && ++count <= 3)
      list += (list.empty() ? "'" : ", '") + device.name + "' (" + device.kind + ")";
  if (count == 0)
    return {};
  if (count > 3)
    list += " and " + std::to_string(count - 3) + " more";
  return "there are code and a driver for devices of these kinds: " + deviceKindNames(/*driven=*/true) + "; these are of another kind: " + list +
         ". Compile for a cluster of such devices. zorse-plan plans for any devices; with --simulate-only the bundle is compiled for zorse-run "
         "--simulate, which executes nothing";
}

std::string withoutDriver(const std::string &clusterFile) {
  std::vector<bundle::BundleDevice> devices;
  if (Result<planning::Cluster> cluster = planning::readClusterFile(clusterFile); !cluster.failed())
    for (const planning::ClusterDevice &device : cluster->devices)
      devices.push_back({device.name, device.kind, static_cast<int>(device.threads), device.memory});
  return withoutDriver(devices);
}

std::string withoutArchitecture(const std::string &clusterFile) {
  if (Result<planning::Cluster> cluster = planning::readClusterFile(clusterFile); !cluster.failed())
    for (const planning::ClusterDevice &device : cluster->devices)
      if (device.arch.empty() && !deviceKindOf(device.kind).hostProcessors && !deviceKindOf(device.kind).architectures.empty())
        return "device '" + device.name + "' is of kind " + device.kind +
               ", and nothing says what its code is for: give it a 'type' (docs/cluster.md) or an 'arch', such as " +
               deviceKindOf(device.kind).architectures[3];
  return {};
}

std::vector<std::string> architecturesOf(const std::string &clusterFile) {
  std::set<std::string> asked; // the compiler's own first
  if (Result<planning::Cluster> cluster = planning::readClusterFile(clusterFile); !cluster.failed())
    for (const planning::ClusterDevice &device : cluster->devices)
      asked.insert(device.arch);
  return asked.empty() ? std::vector<std::string>{""} : std::vector<std::string>(asked.begin(), asked.end());
}

uint32_t directTerms(const std::string &clusterFile) {
  std::map<int32_t, uint32_t> sizes;
  if (Result<planning::Cluster> cluster = planning::readClusterFile(clusterFile); !cluster.failed())
    for (int32_t group : planning::directGroups(*cluster))
      if (group >= 0)
        ++sizes[group];
  uint32_t most = 0;
  for (const auto &[group, size] : sizes)
    most = std::max(most, size);
  return most < 2 ? 0 : std::min(most, kMostSumTerms);
}

Result<PlanOutcome> makePlan(const std::string &clusterFile, const std::string &planFile, const std::vector<std::string> &profiles, int64_t batch,
                             const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies) {
  PlanOutcome outcome;
  Result<planning::Cluster> cluster = planning::readClusterFile(clusterFile, &outcome.cluster);
  if (cluster.failed())
    return cluster.error();
  Result<std::vector<std::string>> assumed = planning::adaptToPrecision(*cluster, precisionOf(summary));
  if (assumed.failed())
    return assumed.error();
  outcome.assumptions = std::move(*assumed);
  batch /= samplesPerRow(summary); // from here on in rows
  Result<planning::Profile> read = planning::readProfileFiles(profiles);
  if (read.failed())
    return read.error();
  const planning::Profile *profile = profiles.empty() ? nullptr : &*read;
  if (profile)
    for (std::string &line : planning::limitMemory(*profile, *cluster))
      outcome.assumptions.push_back(std::move(line));
  if (planFile.empty()) {
    // Programs bind what bodies ask for; to plan, measured workspace counts where it is more, as libraries take the rest beside programs.
    bundle::ModelSummary counted = summary;
    if (profile) {
      std::vector<std::string> raised = planning::raiseWorkspace(*profile, *cluster, counted);
      outcome.assumptions.insert(outcome.assumptions.end(), raised.begin(), raised.end());
    }
    Result<planning::CostModel> costs = planning::CostModel::make(counted, *cluster, profile, {});
    if (costs.failed())
      return userError(clusterFile + ": " + costs.message());
    planning::Problem problem{counted, *cluster, *costs, batch, &bodies};
    Result<planning::SearchResult> found = planning::searchPlan(problem, planning::SearchOptions());
    if (found.failed())
      return userError(clusterFile + ": no plan was found: " + found.message());
    outcome.plan = std::move(found->plan);
  } else {
    Result<step::Plan> plan = step::readPlanFile(planFile, summary);
    if (plan.failed())
      return plan.error();
    if (plan->batch != batch)
      return userError(step::otherBatch(planFile, plan->batch * plan->samplesPerRow, batch * plan->samplesPerRow));
    Status status = planning::applyCluster(*plan, *cluster, zorse::productType(summary));
    if (status.succeeded())
      status = step::validatePlan(*plan, summary);
    if (status.failed())
      return userError(planFile + ": " + status.message());
    outcome.plan = std::move(*plan);
  }
  Result<planning::CostModel> costs = planning::CostModel::make(summary, *cluster, profile, outcome.plan.devices);
  if (costs.failed())
    return userError(clusterFile + ": " + costs.message());
  outcome.costs = std::make_shared<const planning::CostModel>(std::move(*costs));
  const std::vector<int32_t> groups = planning::directGroups(*cluster);
  for (const step::PlanDevice &device : outcome.plan.devices)
    for (const planning::ClusterDevice &known : cluster->devices)
      if (known.name == device.name) {
        outcome.direct.push_back(groups[size_t(&known - cluster->devices.data())]);
        outcome.devices.push_back({device.name, known.kind, static_cast<int>(known.threads), device.memory});
        outcome.architectures.push_back(known.arch);
      }
  return outcome;
}

} // namespace zorse::pipelines
