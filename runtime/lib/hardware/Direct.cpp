// Checks whether the GPUs of a job can exchange data directly, without host staging.
#include "zorse/Base/Format.h"
#include "zorse/runtime/DeviceTransport.h"
#include "zorse/runtime/Drivers.h"
#include "zorse/runtime/Hardware.h"

#include <algorithm>
#include <cstdlib>
#include <map>

using namespace zorse;
using namespace zorse::runtime;

namespace {

bool takesPart(const bundle::Program &program) {
  return std::any_of(
      program.queues().begin(), program.queues().end(),
      [](const bundle::Queue &queue) { return queue.kind() == bundle::DEVICE_TO_DEVICE; });
}

double plannedSeconds(const std::vector<bundle::Program> &programs) {
  double end = 0;
  for (const bundle::Program &program : programs)
    for (const bundle::Instruction &instruction : program.instructions())
      end = std::max(end, instruction.planned_end());
  return end;
}

} // namespace

void zorse::runtime::addD2dHardware(RankHardware &hardware, const Bundle &bundle, uint32_t device) {
  if (!takesPart(bundle.programs[device]))
    return;
  for (const Driver &driver : drivers())
    if (bundle.devices[device].kind == driver.kind)
      hardware.driver = driver.version();
  Result<std::string> version = ncclVersion();
  (version.failed() ? hardware.noNccl : hardware.nccl) = version.failed() ? version.message()
                                                                          : *version;
}

std::string zorse::runtime::whyNotDirect(const Bundle &bundle,
                                         const std::vector<RankHardware> &ranks) {
  std::map<std::pair<std::string, std::string>, size_t> units; // rank by host and bus address
  auto named = [&](size_t rank) {
    return "rank " + std::to_string(rank) + " (device " + bundle.devices[rank].name + ", host " +
           ranks[rank].host + ")";
  };
  std::optional<size_t> first;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!takesPart(bundle.programs[r]))
      continue;
    const RankHardware &hardware = ranks[r];
    if (!hardware.noNccl.empty() || hardware.nccl.empty())
      return named(r) + " has no NCCL that serves: " + hardware.noNccl;
    if (hardware.throttled)
      return named(r) + " is throttled";
    // NCCL also refuses two slices of one GPU.
    const std::string unit = hardware.unit() ? hardware.unit()->address : "";
    if (auto [other, fresh] = units.insert({{hardware.host, unit}, r}); !fresh && !unit.empty())
      return named(other->second) + " and " + named(r) + " share the GPU " + unit +
             ", which NCCL does not have twice; say 'device_to_device: false' of one of them in "
             "the cluster file";
    if (!first) {
      first = r;
      continue;
    }
    for (auto [what, mine, theirs] :
         {std::tuple("NCCL", &hardware.nccl, &ranks[*first].nccl),
          std::tuple("a driver for CUDA", &hardware.driver, &ranks[*first].driver)})
      if (*mine != *theirs)
        return named(*first) + " has " + what + " " + *theirs + ", " + named(r) + " " + *mine +
               "; install one version everywhere";
  }
  return {};
}

std::string zorse::runtime::stagedCost(const Bundle &bundle) {
  const double direct = plannedSeconds(bundle.programs), staged = plannedSeconds(bundle.hostStaged);
  return format("a step is predicted to take %.4g ms instead of %.4g ms", staged * 1e3,
                direct * 1e3);
}

std::string zorse::runtime::describeDirect(const Bundle &bundle,
                                           const std::vector<RankHardware> &ranks) {
  const DeviceTransferPlan plan = deviceTransferPlan(bundle);
  std::string text, nccl, driver;
  size_t count = 0;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (takesPart(bundle.programs[r])) {
      text += (count++ ? ", " : "") + bundle.devices[r].name;
      nccl = ranks[r].nccl;
      driver = ranks[r].driver;
    }
  text = std::to_string(count) + " GPUs exchange directly (" + text + "): NCCL " + nccl +
         ", driver for CUDA " + driver + ", " + std::to_string(plan.groups.size()) +
         (plan.groups.size() == 1 ? " group" : " groups");
  for (const char *name : {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE",
                           "NCCL_NET_GDR_LEVEL", "NCCL_P2P_DISABLE", "NCCL_ALGO", "NCCL_PROTO"})
    if (const char *value = std::getenv(name))
      text += std::string(", ") + name + "=" + value;
  return text;
}
