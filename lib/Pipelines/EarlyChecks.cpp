#include "Phases.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Plan.h"

#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/TargetParser/X86TargetParser.h"

namespace zorse::pipelines {

/// Returns an error if there is no driver or no code for the kind of a device; empty if there is
/// none.
static std::string withoutDriver(const std::vector<planning::ClusterDevice> &devices) {
  std::string list;
  size_t count = 0;
  for (const planning::ClusterDevice &device : devices)
    if (!deviceKindOf(device.kind).driven && ++count <= 3)
      list += (list.empty() ? "'" : ", '") + device.name + "' (" + device.kind + ")";
  if (count == 0)
    return {};
  if (count > 3)
    list += " and " + std::to_string(count - 3) + " more";
  return "devices of these kinds can run programs: " + deviceKindNames(/*driven=*/true) +
         "; these are of another kind: " + list +
         ". Compile for a cluster of devices that can run programs. zorse-plan plans for any "
         "devices; with --simulate-only the bundle is compiled "
         "for zorse-run "
         "--simulate, which executes nothing";
}

/// Returns an error if the architecture of a device is unknown; "": all are known.
static std::string withoutArchitecture(const planning::Cluster &cluster) {
  for (const planning::ClusterDevice &device : cluster.devices)
    if (const DeviceKind &kind = deviceKindOf(device.kind);
        device.arch.empty() && !kind.hostCpus && !kind.architectures.empty())
      return "device '" + device.name + "' is of kind " + device.kind +
             ", and its architecture is unknown: give it a 'type' (docs/reference/cluster-yaml.md) "
             "or an 'arch', such as " +
             kind.architectures[3];
  return {};
}

/// Returns the cluster's devices, or those of them that are in the plan.
static std::vector<planning::ClusterDevice> usedDevices(const planning::Cluster &cluster,
                                                        const std::optional<step::PlanHead> &plan) {
  if (!plan)
    return cluster.devices;
  std::vector<planning::ClusterDevice> used;
  for (const std::string &name : plan->devices)
    for (const planning::ClusterDevice &device : cluster.devices)
      if (device.name == name)
        used.push_back(device);
  return used;
}

std::string problemAtStart(const CompileOptions &options) {
  if (options.arch != "native" && llvm::Triple(llvm::sys::getProcessTriple()).isX86() &&
      llvm::X86::parseArchX86(options.arch, /*Only64Bit=*/true) == llvm::X86::CK_None)
    return "--cpu-arch: expects a 64-bit x86 CPU as LLVM names it (x86-64-v2, x86-64-v3, "
           "x86-64-v4, znver4, skylake-avx512, ...), got '" +
           options.arch + "'";
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
  std::optional<step::PlanHead> plan;
  if (!options.plan.empty()) {
    Result<step::PlanHead> head = step::readPlanHead(options.plan);
    if (head.failed())
      return head.message();
    if (options.batch > 0 && head->batch != options.batch)
      return step::otherBatch(options.plan, head->batch, options.batch);
    plan = std::move(*head);
    step::Plan devices;
    for (const std::string &device : plan->devices)
      devices.devices.emplace_back().name = device;
    if (Status status = cluster ? planning::applyCluster(devices, *cluster, bundle::F32)
                                : Status::success();
        status.failed())
      return options.plan + ": " + status.message();
  }
  if (!options.writesBundle())
    return {};
  std::string problem = bundle::whyNotWritable(options.output);
  if (!problem.empty() || options.simulateOnly)
    return problem;
  if (problem = withoutDriver(usedDevices(*cluster, plan)); !problem.empty())
    return (plan ? options.plan : options.cluster) + ": " + problem;
  if (problem = withoutArchitecture(*cluster); !problem.empty())
    return options.cluster + ": " + problem;
  return {};
}

} // namespace zorse::pipelines
