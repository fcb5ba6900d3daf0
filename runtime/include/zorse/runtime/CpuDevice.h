// The CPU driver: compiled kernels and library routines over the device's own threads, matrix products by a serial BLAS. Its addresses are the
// host's.
#pragma once

#include "zorse/runtime/Device.h"

#include <string>

namespace zorse::runtime {

struct CpuDeviceOptions {
  std::string name = "cpu";
  int threads = 1;   ///< including the calling one; >= 1.
  bool spin = false; ///< wait a few microseconds before sleeping: only where all devices' threads together have a core each.
  std::string gemm;  ///< "onednn", "openblas" or "" (ZORSE_GEMM, else what was measured as faster on this machine).
};

class CpuDevice final : public Device {
public:
  static Result<std::unique_ptr<CpuDevice>> create(const CpuDeviceOptions &options);
  ~CpuDevice() override;

  std::string description() const override;
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes, const AllocationOptions &options) override;
  Status read(void *to, DeviceAddress from, size_t bytes) override;
  Status write(DeviceAddress to, const void *from, size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override;
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override;
  Result<void *> expose(DeviceAddress address, const std::string &transport) override;
  Status loadBodies(const bundle::BodyLibrary &library, const KernelObjects &objects) override;
  Status runBody(uint32_t index, const BodyArguments &arguments) override;
  uint64_t launches() const override;

  /// Runs one body without a library: what tests of code generation use. Symbols are looked up in the objects of `loadObjects`.
  Status loadObject(const std::string &path);
  Status runBody(const bundle::Body &body, const BodyArguments &arguments);

  /// Adds one body to those loaded so far; its index is the number of bodies before.
  Status addBody(const bundle::Body &body);

  /// The matrix library that devices of this process use, with version and processor: the bits of products depend on it. An error where ZORSE_GEMM
  /// names none.
  static Result<std::string> matrixLibrary(bool halfPrecision);

private:
  struct Impl;
  explicit CpuDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace zorse::runtime
