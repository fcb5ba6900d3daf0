#include "zorse/runtime/Drivers.h"
#include "zorse/runtime/Executor.h"

#include <thread>

using namespace zorse::runtime;

Result<std::unique_ptr<QueuedDevice>> zorse::runtime::makeDevice(const Bundle &bundle,
                                                                 uint32_t index, int ordinal,
                                                                 int threadsHere, double share) {
  const BundleDevice &device = bundle.devices[index];
  Result<const Driver *> driver = findDriver(device.kind, device.name);
  if (driver.failed())
    return driver.error();
  DeviceRequest request;
  request.name = device.name;
  request.threads = device.threads;
  request.spin = threadsHere <= int(std::thread::hardware_concurrency());
  request.ordinal = ordinal;
  request.share = share;
  return (*driver)->make(request);
}

Result<std::vector<LocalDevice>>
zorse::runtime::makeLocalDevices(const Bundle &bundle, const std::vector<int> &ordinals,
                                 const std::vector<double> &shares) {
  int threads = 0;
  for (const BundleDevice &device : bundle.devices)
    threads += device.threads;
  std::vector<std::unique_ptr<Transport>> transports =
      makeLocalTransports(uint32_t(bundle.devices.size()));
  std::vector<LocalDevice> locals;
  for (uint32_t i = 0; i < bundle.devices.size(); ++i) {
    Result<std::unique_ptr<QueuedDevice>> device = makeDevice(
        bundle, i, ordinals.empty() ? 0 : ordinals[i], threads, shares.empty() ? 1 : shares[i]);
    if (device.failed())
      return device.error();
    locals.push_back(
        {i, std::move(*device), std::move(transports[i]), nullptr, shares.empty() ? 1 : shares[i]});
  }
  return locals;
}
