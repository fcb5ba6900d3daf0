// The drivers of this runtime, by device kind; zorse/Bundle/DeviceKinds.h describes the kinds. A
// new driver is one line in runtime/lib/device/Drivers.cpp (docs/internals/extending.md).
#pragma once

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/runtime/Device.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Parameters for the creation of one device.
struct DeviceRequest {
  std::string name;
  int threads = 1;   ///< CPU threads; only for devices on the host's CPU
  bool spin = false; ///< threads may spin: the threads of all devices on this host have a core each
  int ordinal = 0;   ///< index in Driver.units
  double share = 1;  ///< fraction of its speed, in (0, 1]: emulates clusters of unequal devices on
                     ///< one machine
};

/// Hardware for one device: a GPU, a slice of one (MIG), or the CPUs that this process may use.
struct HardwareUnit {
  std::string id; ///< equal for the same hardware in all processes of a host: "GPU-" and its UUID,
                  ///< or its address
  std::string address; ///< PCI address, "0000:41:00.0"; equal for slices of one GPU. "": unknown
  std::string model;   ///< the vendor's name; "": unknown
  std::string architecture; ///< the newest that it runs: one of DeviceKind.architectures, or
                            ///< another name
  uint64_t memory = 0;      ///< bytes of its dedicated memory; 0: it uses the host's
};

struct Driver {
  const char *kind;
  Result<std::unique_ptr<QueuedDevice>> (*make)(const DeviceRequest &request);
  /// Hardware that this process may use, in an order that is equal in all processes that may use
  /// the same.
  std::vector<HardwareUnit> (*units)();
  /// Returns the software that the bits of its results depend on in addition to the bundle:
  /// libraries with versions, and the library for half-precision matrix multiplication if the
  /// bundle needs one. Fails if the environment requests a library that is missing.
  Result<std::string> (*numerics)(bool halfPrecision);
  /// Version of the driver software; "": none.
  std::string (*version)();
};

const std::vector<Driver> &drivers();

/// Returns the driver of a device, or an error that names the available drivers.
Result<const Driver *> findDriver(const std::string &kind, const std::string &device);

} // namespace zorse::runtime
