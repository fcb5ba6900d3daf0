// Matmuls by cuBLASLt, which is loaded at run time (BlasLibraries.h) from the system or from
// Python's wheels, if the loader finds it.
#pragma once

#include "BlasLibraries.h"
#include "CudaApi.h"

#include <map>
#include <memory>

namespace zorse::runtime::cuda {

/// C[b] (m x n) = alpha op(A[b]) op(B[b]) + beta C[b] + bias, row-major.
struct BlasMatmul {
  int typeOfOperands = 0, typeOfC = 0; ///< kF32, ...
  bool transposeA = false, transposeB = false;
  bool tf32 = false;    ///< f32 only: use tensor cores with operands rounded to TF32
  bool sumsF16 = false; ///< f16 only: accumulate in f16
  int64_t m = 0, n = 0, k = 0, batch = 1, lda = 0, ldb = 0, ldc = 0, strideA = 0, strideB = 0,
          strideC = 0;
  uint32_t alignmentA = 0, alignmentB = 0,
           alignmentC = 0;    ///< alignments of the addresses, in bytes; set by multiply()
  uint32_t alignmentBias = 0; ///< 0: no bias

  bool operator<(const BlasMatmul &o) const;
};
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14; ///< cudaDataType

/// Addresses of device memory.
struct BlasOperands {
  CUdeviceptr a = 0, b = 0, c = 0;
  CUdeviceptr bias = 0; ///< n elements of C's type, added to every row; 0: no bias
};

class BlasLt {
public:
  /// Loads the newest library that supports the GPU. Call it with the context of the later calls
  /// current; these must be made one at a time. `cuda` must outlive this object.
  static Result<std::unique_ptr<BlasLt>> create(const CudaApi &cuda);
  ~BlasLt();

  Status multiply(BlasMatmul matmul, double alpha, double beta, const BlasOperands &at,
                  CUstream stream);

  /// Chooses an algorithm, allocates the stream's workspace and multiplies once, unless an equal
  /// product has been multiplied on any stream. The library loads a kernel when it first runs, and
  /// loading waits for all work on the GPU. Overwrites C. \return  whether it has multiplied
  Result<bool> warmUp(const BlasMatmul &matmul, const BlasOperands &at, CUstream stream);

  /// Name and version of the loaded library: "cuBLASLt 13.1.0".
  std::string version() const;

  /// The libraries that serve the GPUs: "cuBLASLt 130100", or "cuBLASLt 120900 and 130100" if no
  /// library supports all. An error if a GPU has no library and is the only one.
  static Result<std::string> identity(const std::vector<BlasHost> &hosts);

private:
  /// Workspace of an algorithm in bytes, in addition to its operands: NVIDIA's recommendation for
  /// the newest GPUs. It is part of the memory that a cluster's devices reserve.
  static constexpr size_t kWorkspace = size_t(32) << 20;

  BlasLt(const CudaApi &cuda, const BlasLibrary &library);
  struct Plan;
  Result<Plan *> planOf(const BlasMatmul &matmul, CUdeviceptr bias);
  Result<CUdeviceptr> workspaceOf(CUstream stream);
  const CudaApi &cuda_;
  const BlasLibrary &library_;
  void *handle_ = nullptr;
  std::map<CUstream, CUdeviceptr> workspaces_; ///< separate: products of different streams run in
                                               ///< parallel
  std::map<BlasMatmul, std::unique_ptr<Plan>> plans_;
};

} // namespace zorse::runtime::cuda
