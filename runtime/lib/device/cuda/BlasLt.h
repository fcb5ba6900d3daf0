// Products of matrices by cuBLASLt, which is loaded at run time (13, 12 or 11; of the system or of Python's wheels, where the loader finds it).
#pragma once

#include "CudaApi.h"

#include <map>
#include <memory>

namespace zorse::runtime::cuda {

/// C[b] (m x n) = alpha op(A[b]) op(B[b]) + beta C[b], row-major; addresses of device memory.
struct BlasProduct {
  int typeOfOperands = 0, typeOfC = 0; ///< kF32, ...
  bool transposeA = false, transposeB = false;
  int64_t m = 0, n = 0, k = 0, batch = 1, lda = 0, ldb = 0, ldc = 0, strideA = 0, strideB = 0, strideC = 0;
  uint32_t alignmentA = 0, alignmentB = 0, alignmentC = 0; ///< of the addresses, in bytes; set by multiply()

  bool operator<(const BlasProduct &o) const;
};
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14; ///< cudaDataType

class BlasLt {
public:
  /// In the context of later calls, which are made one at a time. `cuda` outlives this object.
  static Result<std::unique_ptr<BlasLt>> create(const CudaApi &cuda);
  ~BlasLt();

  Status multiply(BlasProduct product, double alpha, CUdeviceptr a, CUdeviceptr b, double beta, CUdeviceptr c, CUstream stream);

  /// "cuBLASLt 130100".
  static Result<std::string> identity();

private:
  /// Bytes that an algorithm may use beside its operands; what NVIDIA recommends for the newest GPUs. Part of what a cluster's devices keep in
  /// reserve.
  static constexpr size_t kWorkspace = size_t(32) << 20;

  explicit BlasLt(const CudaApi &cuda);
  struct Plan;
  Result<Plan *> planOf(const BlasProduct &product);
  const CudaApi &cuda_;
  void *handle_ = nullptr;
  std::map<CUstream, CUdeviceptr> workspaces_; ///< products of different streams run side by side
  std::map<BlasProduct, std::unique_ptr<Plan>> plans_;
};

} // namespace zorse::runtime::cuda
