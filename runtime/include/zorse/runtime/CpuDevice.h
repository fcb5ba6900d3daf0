// The CPU driver. Compiled kernels and library routines run on the device's own threads; matrix
// multiplications use a serial BLAS. Device addresses are host addresses.
#pragma once

#include "zorse/runtime/Device.h"

#include <string>

namespace zorse::runtime {

struct CpuDeviceOptions {
  std::string name = "cpu";
  int threads = 1;   ///< including the calling thread; >= 1
  bool spin = false; ///< wait a few microseconds before sleeping; only if the threads of all
                     ///< devices have a core each
  std::string gemm;  ///< "onednn", "openblas" or "" (ZORSE_GEMM, otherwise the one measured as
                     ///< faster on this machine)
};

class CpuDevice final : public Device {
public:
  static Result<std::unique_ptr<CpuDevice>> create(const CpuDeviceOptions &options);
  ~CpuDevice() override;

  std::string description() const override;
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                 const AllocationOptions &options) override;
  Status read(void *to, DeviceAddress from, size_t bytes) override;
  Status write(DeviceAddress to, const void *from, size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override;
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override;
  Result<void *> expose(DeviceAddress address, const std::string &transport) override;
  Status loadFunctions(const bundle::FunctionLibrary &library,
                       const KernelObjects &objects) override;
  Status runFunction(uint32_t index, const FunctionArguments &arguments) override;
  uint64_t launches() const override;

  /// Loads an object file, in which the next function finds symbols. For tests of code generation,
  /// which have no function library.
  Status loadObject(const std::string &path);
  /// Runs one function that is not in a library.
  Status runFunction(const bundle::CompiledFunction &function, const FunctionArguments &arguments);

  /// Adds one function to the loaded ones. Its index is the number of functions before it.
  Status addFunction(const bundle::CompiledFunction &function);

  /// Returns the matrix library that devices of this process use, with version and processor. The
  /// bits of matrix products depend on it. Returns an error if ZORSE_GEMM names no available
  /// library.
  static Result<std::string> matrixLibrary(bool halfPrecision);

private:
  struct Impl;
  explicit CpuDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace zorse::runtime
