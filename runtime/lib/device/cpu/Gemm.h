// One interface to serial matrix-product libraries; our own threads split the work (MatrixProduct.cpp).
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdint>
#include <string>

namespace zorse::runtime {

/// C (m x n) = alpha * op(A) (m x k) * op(B) (k x n) + beta * C, row-major. Leading dimensions in elements, of the stored (not transposed) matrices.
template <typename T> struct GemmArguments {
  bool transposeA, transposeB;
  int64_t m, n, k;
  T alpha;
  const T *a;
  int64_t lda;
  const T *b;
  int64_t ldb;
  T beta;
  T *c;
  int64_t ldc;
};

/// A library that multiplies in the calling thread. With beta = 0, C is not read.
class Gemm {
public:
  virtual ~Gemm() = default;
  virtual const char *name() const = 0;
  /// Name, version and what it chose for this processor: libraries that say the same give the same bits.
  virtual std::string identity() const = 0;
  /// Ends the process where rows overlap: libraries say so on the error output and leave C as it is, which nobody would notice.
  template <typename T> void multiply(const GemmArguments<T> &arguments) const {
    requireRows(arguments.lda, arguments.transposeA ? arguments.m : arguments.k);
    requireRows(arguments.ldb, arguments.transposeB ? arguments.k : arguments.n);
    requireRows(arguments.ldc, arguments.n);
    product(arguments);
  }

protected:
  virtual void product(const GemmArguments<float> &arguments) const = 0;
  virtual void product(const GemmArguments<double> &arguments) const = 0;

private:
  static void requireRows(int64_t leading, int64_t columns) {
    if (leading < columns || leading < 1)
      endOverlapping(leading, columns);
  }
  [[noreturn]] static void endOverlapping(int64_t leading, int64_t columns); ///< GemmChoice.cpp
};

const Gemm *openBlasGemm(); ///< null where it cannot be used; `openBlasProblem` says why.
const std::string &openBlasProblem();
const Gemm *oneDnnGemm(); ///< null where the runtime was built without oneDNN.

/// The library to use: `name`, else the environment variable ZORSE_GEMM, else the one that was measured to be faster on this machine. The measurement
/// is taken once and remembered in the user's cache directory; where nothing can be remembered the choice is fixed, so that two runs give the same
/// bits.
Result<const Gemm *> chooseGemm(const std::string &name);

} // namespace zorse::runtime
