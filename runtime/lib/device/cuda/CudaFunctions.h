// Launches the functions of a bundle's library on a stream.
#pragma once

#include "BlasLt.h"
#include "CudaApi.h"
#include "zorse/runtime/Device.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace zorse::bundle {
class KernelLaunch;
class Launch;
} // namespace zorse::bundle

namespace zorse::runtime::cuda {

struct Linear { ///< fixed + perRow * rows
  int64_t fixed = 0, perRow = 0;
  int64_t at(int64_t rows) const { return fixed + perRow * rows; }
};
struct Place { ///< position in an argument of a function
  uint32_t argument = 0;
  Linear offset;
};

/// All calls require the device's context to be current.
class CudaFunctions {
public:
  /// \param arch  architecture of the device. `cuda` must outlive this object.
  static Result<std::unique_ptr<CudaFunctions>> create(const CudaApi &cuda,
                                                       const std::string &arch);

  /// Name and version of the matmul library.
  std::string matmuls() const { return blas_->version(); }
  ~CudaFunctions();

  /// Implements Device::loadFunctions.
  Status load(const bundle::FunctionLibrary &library, const KernelObjects &objects);

  /// Enqueues the launches of a function on a stream, one function at a time. Does not wait for
  /// them.
  Status launch(uint32_t index, const FunctionArguments &arguments, CUstream stream);

  /// Warms up the products of a function (BlasLt::warmUp). Kernels need no warm-up:
  /// cuModuleGetFunction has loaded them. \return  whether a product ran
  Result<bool> warmUp(uint32_t index, const FunctionArguments &arguments, CUstream stream);

  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }

private:
  struct Launch {
    // Kernels; a null function means a product.
    CUfunction function = nullptr;
    std::vector<Place> operands;
    uint64_t accumulates = 0; ///< bit i: operand i; of a product: bit 0
    Linear iterations;
    uint32_t threads = 0, perThread = 0, sharedBytes = 0;
    // Products.
    BlasMatmul matmul;
    Linear m, n, k, batch;
    double alpha = 1;
  };

  CudaFunctions(const CudaApi &cuda, std::string arch) : cuda_(cuda), arch_(std::move(arch)) {}
  /// Loads one kernel object of the bundle, which the driver compiles. The error contains the
  /// compiler's log.
  Status loadModule(const std::string &image);
  CUfunction findFunction(const std::string &symbol) const;
  Status checkBounds(const bundle::CompiledFunction &function, const bundle::KernelLaunch &kernel);
  Status prepare(const bundle::CompiledFunction &function, const bundle::Launch &from, Launch &out);
  /// Returns the launches of a call; null: it calls a function or segment that does not exist.
  const std::vector<Launch> *launchesOf(uint32_t index, const FunctionArguments &arguments) const;
  Status launchKernel(const Launch &launch, const FunctionArguments &arguments, CUstream stream);
  static BlasMatmul matmulOf(const Launch &launch, int64_t rows);
  static BlasOperands operandsOf(const Launch &launch, const FunctionArguments &arguments);
  Status launchMatmul(const Launch &launch, const FunctionArguments &arguments, CUstream stream);

  static DeviceAddress resolve(const Place &place, const FunctionArguments &arguments) {
    return arguments.addresses[place.argument] + uint64_t(place.offset.at(arguments.rows));
  }

  const CudaApi &cuda_;
  const std::string arch_;
  std::unique_ptr<BlasLt> blas_;
  std::vector<CUmodule> modules_;
  /// By function and segment: the launches between two exchanges are called separately.
  std::vector<std::vector<std::vector<Launch>>> functions_;
  std::mutex mutex_; ///< guards launches and the members below, which avoid allocation during a
                     ///< step
  std::vector<uint64_t> addresses_;
  std::vector<void *> parameters_;
  std::atomic<uint64_t> launches_{0};
};

} // namespace zorse::runtime::cuda
