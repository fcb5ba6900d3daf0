// Products of matrices by cuBLASLt, which is loaded at run time (BlasLibraries.h; of the system or of Python's wheels, where the loader finds it).
#pragma once

#include "BlasLibraries.h"
#include "CudaApi.h"

#include <map>
#include <memory>

namespace zorse::runtime::cuda {

/// C[b] (m x n) = alpha op(A[b]) op(B[b]) + beta C[b] + bias, row-major.
struct BlasProduct {
  int typeOfOperands = 0, typeOfC = 0; ///< kF32, ...
  bool transposeA = false, transposeB = false;
  bool tf32 = false;    ///< of f32: on tensor cores, operands rounded to TF32
  bool sumsF16 = false; ///< of f16 alone: sums are f16
  int64_t m = 0, n = 0, k = 0, batch = 1, lda = 0, ldb = 0, ldc = 0, strideA = 0, strideB = 0, strideC = 0;
  uint32_t alignmentA = 0, alignmentB = 0, alignmentC = 0; ///< of the addresses, in bytes; set by multiply()
  uint32_t alignmentBias = 0;                              ///< 0: there is none

  bool operator<(const BlasProduct &o) const;
};
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14; ///< cudaDataType

/// Addresses of device memory.
struct BlasOperands {
  CUdeviceptr a = 0, b = 0, c = 0;
  CUdeviceptr bias = 0; ///< n elements of C's type, added to every row; 0: none
};

class BlasLt {
public:
  /// In the context of later calls, which are made one at a time. `cuda` outlives this object. With the newest library that serves the GPU.
  static Result<std::unique_ptr<BlasLt>> create(const CudaApi &cuda);
  ~BlasLt();

  Status multiply(BlasProduct product, double alpha, double beta, const BlasOperands &at, CUstream stream);

  /// Chooses an algorithm, allocates the stream's workspace and multiplies once, where no product like it has been multiplied on any stream: the
  /// library loads a kernel when it is first run, which waits for everything that is on the GPU. Overwrites C. \return  whether it has multiplied
  Result<bool> warmUp(const BlasProduct &product, const BlasOperands &at, CUstream stream);

  /// "cuBLASLt 13.1.0": the one that was taken.
  std::string version() const;

  /// "cuBLASLt 130100": what GPUs like these compute with, "cuBLASLt 120900 and 130100" where one library does not serve all. An error where the only
  /// one has none.
  static Result<std::string> identity(const std::vector<BlasHost> &hosts);

private:
  /// Bytes that an algorithm may use beside its operands; what NVIDIA recommends for the newest GPUs. Part of what a cluster's devices keep in
  /// reserve.
  static constexpr size_t kWorkspace = size_t(32) << 20;

  BlasLt(const CudaApi &cuda, const BlasLibrary &library);
  struct Plan;
  Result<Plan *> planOf(const BlasProduct &product, CUdeviceptr bias);
  Result<CUdeviceptr> workspaceOf(CUstream stream);
  const CudaApi &cuda_;
  const BlasLibrary &library_;
  void *handle_ = nullptr;
  std::map<CUstream, CUdeviceptr> workspaces_; ///< products of different streams run side by side
  std::map<BlasProduct, std::unique_ptr<Plan>> plans_;
};

} // namespace zorse::runtime::cuda
