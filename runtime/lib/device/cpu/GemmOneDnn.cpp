#include "Gemm.h"

#if ZORSE_HAVE_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

using namespace zorse::runtime;

#if ZORSE_HAVE_ONEDNN
namespace {

/// oneDNN asks OpenMP how many threads it may use, for each calling thread anew. One: we split the work ourselves, and two pools on the same cores are
/// 1.5 to 2 times slower than one. Looked up in the OpenMP library that oneDNN brought along, whichever that is.
void useOneThread() {
  thread_local bool done = [] {
    if (void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
      reinterpret_cast<void (*)(int)>(symbol)(1);
    return true;
  }();
  (void)done;
}

class OneDnn final : public Gemm {
public:
  const char *name() const override { return "onednn"; }
  void multiply(const GemmArguments<float> &g) const override {
    useOneThread();
    dnnl_sgemm(g.transposeA ? 'T' : 'N', g.transposeB ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }
  void multiply(const GemmArguments<double> &g) const override { openBlasGemm()->multiply(g); } // oneDNN has no f64 product.
};

} // namespace

const Gemm *zorse::runtime::oneDnnGemm() {
  static const OneDnn gemm;
  return &gemm;
}
#else
const Gemm *zorse::runtime::oneDnnGemm() { return nullptr; }
#endif
