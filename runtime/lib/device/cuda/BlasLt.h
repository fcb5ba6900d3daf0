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

  bool operator<(const BlasProduct &o) const;
};
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14; ///< cudaDataType

class BlasLt {
public:
  /// \param context  current where calls are made
  static Result<std::unique_ptr<BlasLt>> create();
  ~BlasLt();

  Status multiply(const BlasProduct &product, double alpha, CUdeviceptr a, CUdeviceptr b, double beta, CUdeviceptr c, CUstream stream);

  /// "cuBLASLt 130100".
  static Result<std::string> identity();

private:
  BlasLt() = default;
  struct Plan;
  Result<Plan *> planOf(const BlasProduct &product);
  void *handle_ = nullptr;
  std::map<BlasProduct, std::unique_ptr<Plan>> plans_;
};

} // namespace zorse::runtime::cuda
