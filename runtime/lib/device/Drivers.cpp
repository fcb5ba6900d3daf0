#include "zorse/runtime/Drivers.h"

#include "cpu/Processor.h"
#include "cuda/CudaDevice.h"
#include "null/NullDevice.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/ThrottledDevice.h"

using namespace zorse;
using namespace zorse::runtime;

namespace {

Result<std::unique_ptr<QueuedDevice>> makeCpu(const DeviceRequest &request) {
  CpuDeviceOptions options;
  options.name = request.name;
  options.threads = request.threads;
  options.spin = request.spin;
  Result<std::unique_ptr<CpuDevice>> made = CpuDevice::create(options);
  if (made.failed())
    return made.error();
  return withThreads(makeThrottledDevice(std::move(*made), request.share));
}

/// The hardware units of devices that are threads of the host.
std::vector<HardwareUnit> cpus(const std::string &architecture) {
  return {{"", "", "", architecture, 0}};
}
std::string noVersion() { return {}; }

Result<std::unique_ptr<QueuedDevice>> makeNull(const DeviceRequest &request) {
  return withThreads(makeThrottledDevice(makeNullDevice(request.name), request.share));
}

Result<std::unique_ptr<QueuedDevice>> makeCuda(const DeviceRequest &request) {
  Result<std::unique_ptr<QueuedDevice>> made = makeCudaDevice(request.name, request.ordinal);
  if (made.failed() || request.share >= 1)
    return made;
  return withThreads(makeThrottledDevice(std::move(*made), request.share));
}

} // namespace

const std::vector<Driver> &zorse::runtime::drivers() {
  static const std::vector<Driver> all = {
      {"cpu", makeCpu, [] { return cpus(cpuHere()); }, CpuDevice::matrixLibrary, noVersion},
      {"null", makeNull, [] { return cpus("none"); },
       [](bool) { return Result<std::string>(std::string("none (null devices compute nothing)")); },
       noVersion},
      {"cuda", makeCuda, cudaUnits, [](bool) { return cudaNumerics(); }, cudaDriver},
  };
  return all;
}

Result<const Driver *> zorse::runtime::findDriver(const std::string &kind,
                                                  const std::string &device) {
  std::string known;
  for (const Driver &driver : drivers()) {
    if (kind == driver.kind)
      return &driver;
    known += (known.empty() ? "" : ", ") + std::string(driver.kind);
  }
  return userError("device '" + device + "' is of kind '" + kind +
                   "'; this runtime has drivers for: " + known +
                   ". Compile the model for a cluster of these; zorse-run --simulate shows what "
                   "programs of any kind would do");
}
