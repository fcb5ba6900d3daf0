#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Executor.h"

#include <thread>

using namespace zorse::runtime;

Result<std::unique_ptr<Device>> zorse::runtime::makeDevice(const Bundle &bundle, uint32_t index, int threadsHere) {
  const BundleDevice &device = bundle.devices[index];
  if (device.kind != "cpu")
    return userError("device '" + device.name + "' is of kind '" + device.kind +
                     "'; this runtime has drivers for: cpu. Compile the model for a cluster of these; zorse-run --simulate shows what programs of any kind would do");
  CpuDeviceOptions options;
  options.name = device.name;
  options.threads = device.threads;
  options.spin = threadsHere <= int(std::thread::hardware_concurrency());
  Result<std::unique_ptr<CpuDevice>> made = CpuDevice::create(options);
  if (made.failed())
    return made.error();
  return std::unique_ptr<Device>(std::move(*made));
}

Result<std::vector<LocalDevice>> zorse::runtime::makeLocalDevices(const Bundle &bundle) {
  int threads = 0;
  for (const BundleDevice &device : bundle.devices)
    threads += device.threads;
  std::vector<std::unique_ptr<Transport>> transports = makeLocalTransports(uint32_t(bundle.devices.size()));
  std::vector<LocalDevice> locals;
  for (uint32_t i = 0; i < bundle.devices.size(); ++i) {
    Result<std::unique_ptr<Device>> device = makeDevice(bundle, i, threads);
    if (device.failed())
      return device.error();
    locals.push_back({i, std::move(*device), std::move(transports[i])});
  }
  return locals;
}
