// What the executor needs of a device. Drivers (cpu; cuda and sim later) implement it; programs and transports do not know which one they use.
#pragma once

#include "zorse/runtime/Status.h"
#include "zorse/runtime/abi/KernelAbi.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zorse::bundle {
class Body;
class BodyLibrary;
} // namespace zorse::bundle

namespace zorse::runtime {

/// What one call of a body needs beside the body itself.
struct BodyArguments : ZorseCallContext {
  void *const *slots = nullptr;       ///< one address per Body.slots, 64-byte aligned.
  const uint8_t *overwrite = nullptr; ///< one flag per slot: nonzero = SlotBinding.overwrite. Null: no slot is overwritten, accumulators are added to.
};

/// One static allocation. Its contents are zero (or poison, when asked for) until written.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  virtual std::byte *base() const = 0;
  virtual size_t bytes() const = 0;
};

struct AllocationOptions {
  bool poison = false; ///< fill with kPoisonWord, so that reads of what nobody wrote show up as NaN and untouched bytes can be counted.
};

/// Eight bytes that are a NaN as one f64 and as two f32.
inline constexpr uint64_t kPoisonWord = 0xfffadeadfffadeadull;

class Device {
public:
  virtual ~Device() = default;

  /// "a (cpu, 2 threads)", for messages.
  virtual std::string description() const = 0;

  virtual Result<std::unique_ptr<DeviceMemory>> allocate(size_t bytes, const AllocationOptions &options) = 0;

  /// Resolves every symbol and routine that the bodies name. Kernel objects lie under `kernelDirectory`/<arch>/. Once per device.
  virtual Status loadBodies(const bundle::BodyLibrary &library, const std::string &kernelDirectory) = 0;

  /// Runs body `index` of the loaded library; returns when its writes are visible to every thread that synchronises with the caller. May be called from
  /// several threads; calls then run one after the other.
  virtual Status runBody(uint32_t index, const BodyArguments &arguments) = 0;

  /// Grows while a body runs: launches finished. How a watchdog tells a long body from one that never returns.
  virtual uint64_t launches() const = 0;

  /// Whether host memory is this device's memory, so that a copy is over when `copy` returns and needs no queue of its own.
  virtual bool sharesHostMemory() const = 0;

  /// Copies inside the device's memory, or between it and host memory.
  virtual Status copy(void *to, const void *from, size_t bytes) = 0;
};

} // namespace zorse::runtime
