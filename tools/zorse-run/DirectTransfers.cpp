#include "DirectTransfers.h"

#include "zorse/runtime/DeviceTransport.h"

#include <algorithm>
#include <cstdio>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

void zorse::run::chooseTransfers(const Options &options, Bundle &bundle,
                                 const std::vector<RankHardware> &hardware, bool speaks) {
  if (bundle.hostStaged.empty())
    return;
  const std::string why = options.hostStaged ? "" : whyNotDirect(bundle, hardware);
  if (why.empty() && !options.hostStaged) {
    if (speaks && !options.quiet)
      printf("%s\n", describeDirect(bundle, hardware).c_str());
    return;
  }
  if (speaks && !why.empty())
    fprintf(stderr, "warning: GPU transfers are staged through host memory: %s; %s\n", why.c_str(),
            stagedCost(bundle).c_str());
  else if (speaks && !options.quiet)
    printf("GPU transfers are staged through host memory (--host-staged); %s\n",
           stagedCost(bundle).c_str());
  bundle.useStaged();
}

Status zorse::run::connectDirectly(const Bundle &bundle, std::vector<LocalDevice> &devices,
                                   ProcessGroup &group, double seconds, bool quiet) {
  if (bundle.hostStaged.empty())
    return Status::success();
  DeviceTransportOptions options;
  options.plan = deviceTransferPlan(bundle);
  options.sums = deviceSums(bundle.summary);
  options.connectSeconds = seconds;
  if (!quiet)
    options.say = [](const std::string &line) { fprintf(stderr, "note: %s\n", line.c_str()); };
  for (const BundleDevice &device : bundle.devices)
    options.names.push_back(device.name);
  std::vector<DeviceTransportMember> members;
  std::vector<LocalDevice *> of;
  for (LocalDevice &local : devices)
    if (std::any_of(options.plan.groups.begin(), options.plan.groups.end(),
                    [&](const std::vector<uint32_t> &together) {
                      return std::binary_search(together.begin(), together.end(), local.index);
                    })) {
      members.push_back({local.index, local.device.get()});
      of.push_back(&local);
    }
  Result<std::vector<std::unique_ptr<DeviceTransport>>> made = connectNccl(members, group, options);
  if (made.failed())
    return made.error();
  for (size_t i = 0; i < of.size(); ++i)
    of[i]->deviceTransport = std::move((*made)[i]);
  return Status::success();
}
