#include "zorse/runtime/HostCpu.h"

#include "ArgumentBindings.h"
#include "zorse/runtime/Workers.h"

#include <algorithm>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;

uint32_t zorse::runtime::hostTarget(const Bundle &bundle) {
  const Driver &host = **findDriver("cpu", "host");
  for (uint32_t target = 0; target <= bundle.otherTargets.size(); ++target)
    if (findDeviceKind(host.kind)->runs(host.units().front().architecture,
                                        bundle.target(target).arch()))
      return target;
  return 0;
}

Result<std::unique_ptr<QueuedDevice>>
zorse::runtime::makeHostCpu(const Bundle &bundle, uint32_t target,
                            const std::set<uint32_t> &functions, const DeviceRequest &request) {
  Result<std::unique_ptr<QueuedDevice>> device = (*findDriver("cpu", request.name))->make(request);
  if (device.failed())
    return device;
  const bundle::FunctionLibrary &code = bundle.target(target);
  bundle::FunctionLibrary library;
  library.set_arch(code.arch());
  *library.mutable_objects() = code.objects();
  for (uint32_t b = 0; b < uint32_t(code.functions_size()); ++b)
    if (functions.count(b))
      *library.add_functions() = code.functions(int(b));
    else
      library.add_functions()->set_name(code.functions(int(b)).name());
  if (Status status = (*device)->loadFunctions(library, bundle.kernels); status.failed())
    return status;
  return device;
}

bool zorse::runtime::runsBeside(const Bundle &bundle, uint32_t device,
                                const bundle::Instruction &instruction) {
  const DeviceKind &kind = deviceKindOf(bundle.devices[device].kind);
  const bundle::Program &program = bundle.programs[device];
  if (!instruction.has_compute() || !kind.computes)
    return false;
  if (kind.hostCpus)
    return isBeside(program.queues(int(instruction.queue())));
  for (const bundle::Call &call : instruction.compute().calls()) {
    const bundle::ArgumentBindings bindings(program, call);
    for (int s = 0; s < bindings.size(); ++s)
      if (const bundle::Region &region = bindings[s].region; region.bytes())
        return program.arenas(int(region.arena())).kind() != bundle::DEVICE;
  }
  return false;
}

Result<std::unique_ptr<QueuedDevice>> zorse::runtime::makeCpuBeside(const Bundle &bundle,
                                                                    uint32_t device,
                                                                    size_t devicesHere,
                                                                    double share) {
  const bundle::Program &program = bundle.programs[device];
  std::set<uint32_t> functions;
  for (const bundle::Instruction &instruction : program.instructions())
    if (runsBeside(bundle, device, instruction))
      for (const bundle::Call &call : instruction.compute().calls())
        functions.insert(call.function());
  if (functions.empty())
    return std::unique_ptr<QueuedDevice>();
  const BundleDevice &described = bundle.devices[device];
  const bool own = deviceKindOf(described.kind).hostCpus;
  DeviceRequest request;
  request.name = "host of " + described.name;
  request.threads = own ? described.threads
                        : std::max(1, int(std::thread::hardware_concurrency() /
                                          std::max<size_t>(devicesHere, 1)));
  request.share = own ? share : 1;
  const uint32_t target = own ? described.target : hostTarget(bundle);
  for (uint32_t function : functions)
    if (bundle.target(target).functions(int(function)).launches_size() == 0)
      return userError(bundle.directory + ": has no code for the host of device '" +
                       described.name + "', which updates state in its memory (function '" +
                       bundle.target(target).functions(int(function)).name() +
                       "'); compile the model again");
  return makeHostCpu(bundle, target, functions, request);
}
