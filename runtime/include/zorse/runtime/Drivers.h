// Which drivers this runtime has: by kind, beside what zorse/Bundle/DeviceKinds.h says of the kind. A new driver is one line in
// runtime/lib/device/Drivers.cpp (docs/devices.md).
#pragma once

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/runtime/Device.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// One device to be made.
struct DeviceRequest {
  std::string name;
  int threads = 1;   ///< of host processors; others ignore it.
  bool spin = false; ///< threads may spin: all devices here together have a core per thread.
  int ordinal = 0;   ///< which of Driver.units
  double share = 1;  ///< of its speed, in (0, 1]: for clusters of unequal devices on one machine
};

/// Hardware that one device may use: a GPU, a slice of one (MIG), or the processors that this process has.
struct HardwareUnit {
  std::string id;           ///< the same for the same hardware in all processes of a host: "GPU-" and its UUID, or its address
  std::string address;      ///< on the PCI bus, "0000:41:00.0"; slices of one GPU have the same. "": not told
  std::string model;        ///< as its vendor calls it; "": not told
  std::string architecture; ///< the most that it runs: one of DeviceKind.architectures, or a name of its own
  uint64_t memory = 0;      ///< bytes of its own; 0: the host's
};

struct Driver {
  const char *kind;
  Result<std::unique_ptr<QueuedDevice>> (*make)(const DeviceRequest &request);
  /// What this process may use, in an order that is the same in all processes that may use the same.
  std::vector<HardwareUnit> (*units)();
  /// What the bits of its results depend on beside the bundle: libraries with versions, and what multiplies half precision if the bundle has some.
  /// May fail where the environment asks for a library that is not there.
  Result<std::string> (*numerics)(bool halfPrecision);
  /// The version of what drives it; "": there is none.
  std::string (*version)();
};

const std::vector<Driver> &drivers();

/// The driver of a device, or an error that names those there are.
Result<const Driver *> findDriver(const std::string &kind, const std::string &device);

} // namespace zorse::runtime
