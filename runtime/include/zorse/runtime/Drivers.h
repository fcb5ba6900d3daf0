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
  int ordinal = 0;   ///< of this kind on its node: which of the machine's GPUs; others ignore it.
  double share = 1;  ///< of its speed, in (0, 1]: for clusters of unequal devices on one machine
};

struct Driver {
  const char *kind;
  Result<std::unique_ptr<QueuedDevice>> (*make)(const DeviceRequest &request);
  /// The most that devices of this kind run here: one of DeviceKind.architectures, or a name of its own.
  std::string (*architecture)();
  /// What the bits of its results depend on beside the bundle: libraries with versions, and what multiplies half precision if the bundle has some.
  /// May fail where the environment asks for a library that is not there.
  Result<std::string> (*numerics)(bool halfPrecision);
  /// Where the hardware is that an ordinal means on this machine; two ordinals may mean the same. "": not told.
  std::string (*unit)(int ordinal);
  /// The version of what drives it; "": there is none.
  std::string (*version)();
};

const std::vector<Driver> &drivers();

/// The driver of a device, or an error that names those there are.
Result<const Driver *> findDriver(const std::string &kind, const std::string &device);

} // namespace zorse::runtime
