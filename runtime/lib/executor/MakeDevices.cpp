#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Executor.h"

#include <thread>

using namespace zorse::runtime;

Result<std::vector<std::unique_ptr<Device>>> zorse::runtime::makeDevices(const Bundle &bundle) {
  int threads = 0;
  for (const BundleDevice &device : bundle.devices)
    threads += device.threads;
  std::vector<std::unique_ptr<Device>> devices;
  for (const BundleDevice &device : bundle.devices) {
    if (device.kind != "cpu")
      return userError("device '" + device.name + "' is of kind '" + device.kind + "'; this runtime has drivers for: cpu. Compile the model for a cluster of these");
    CpuDeviceOptions options;
    options.name = device.name;
    options.threads = device.threads;
    options.spin = threads <= int(std::thread::hardware_concurrency());
    Result<std::unique_ptr<CpuDevice>> made = CpuDevice::create(options);
    if (made.failed())
      return made.error();
    devices.push_back(std::move(*made));
  }
  return devices;
}
