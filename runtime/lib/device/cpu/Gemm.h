// Common interface of serial matmul libraries. The runtime's own threads split the work
// (Matmul.cpp).
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdint>
#include <string>

namespace zorse::runtime {

/// C (m x n) = alpha * op(A) (m x k) * op(B) (k x n) + beta * C, row-major. Leading dimensions in
/// elements, of the stored (not transposed) matrices.
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

/// A library that multiplies in the calling thread. C is not read if beta = 0.
class Gemm {
public:
  virtual ~Gemm() = default;
  virtual const char *name() const = 0;
  /// Name, version and the kernel chosen for this CPU. Libraries with equal identities give the
  /// same bits.
  virtual std::string identity() const = 0;
  /// Ends the process if rows overlap. The libraries only print an error then and leave C
  /// unchanged, which would go unnoticed.
  template <typename T> void multiply(const GemmArguments<T> &arguments) const {
    requireRows(arguments.lda, arguments.transposeA ? arguments.m : arguments.k);
    requireRows(arguments.ldb, arguments.transposeB ? arguments.k : arguments.n);
    requireRows(arguments.ldc, arguments.n);
    matmul(arguments);
  }

protected:
  virtual void matmul(const GemmArguments<float> &arguments) const = 0;
  virtual void matmul(const GemmArguments<double> &arguments) const = 0;

private:
  static void requireRows(int64_t leading, int64_t columns) {
    if (leading < columns || leading < 1)
      endOverlapping(leading, columns);
  }
  [[noreturn]] static void endOverlapping(int64_t leading, int64_t columns); ///< GemmChoice.cpp
};

const Gemm *openBlasGemm(); ///< null if it cannot be used; `openBlasProblem` has the reason
const std::string &openBlasProblem();
const Gemm *oneDnnGemm(); ///< null if the runtime was built without oneDNN

/// Chooses the library: `name`, else the environment variable ZORSE_GEMM, else the one that was
/// measured to be faster on this machine. The measurement is made once and stored in the user's
/// cache directory. If it cannot be stored, the choice is fixed, so that two runs give the same
/// bits.
Result<const Gemm *> chooseGemm(const std::string &name);

} // namespace zorse::runtime
