#include "Gemm.h"

#include <cblas.h>

using namespace zorse::runtime;

namespace {

CBLAS_TRANSPOSE flag(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

class OpenBlas final : public Gemm {
public:
  OpenBlas() { openblas_set_num_threads(1); } // Our own threads split the work; CMakeLists.txt says why it is not the serial build.
  const char *name() const override { return "openblas"; }
  std::string identity() const override {
    std::string build = openblas_get_config(); // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": name and version
    size_t name = build.find(' '), version = name == std::string::npos ? name : build.find(' ', name + 1);
    return "openblas" + (name == std::string::npos ? std::string() : build.substr(name, version - name)) + ", " + openblas_get_corename();
  }
  void multiply(const GemmArguments<float> &g) const override {
    cblas_sgemm(CblasRowMajor, flag(g.transposeA), flag(g.transposeB), g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }
  void multiply(const GemmArguments<double> &g) const override {
    cblas_dgemm(CblasRowMajor, flag(g.transposeA), flag(g.transposeB), g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }
};

} // namespace

const Gemm *zorse::runtime::openBlasGemm() {
  static const OpenBlas gemm;
  return &gemm;
}
