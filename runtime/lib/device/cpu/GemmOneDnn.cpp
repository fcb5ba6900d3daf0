#include "Gemm.h"

#include "Simd.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#if ZORSE_HAVE_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

using namespace zorse::runtime;

#if ZORSE_HAVE_ONEDNN
namespace {

/// Makes oneDNN use one thread. It asks OpenMP for the number of threads, separately for each
/// calling thread. The runtime splits the work itself, and two thread pools on the same cores are
/// 1.5 to 2 times slower than one. The function is looked up in the OpenMP library that oneDNN
/// loaded.
void useOneThread() {
  thread_local bool done = [] {
    if (void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
      reinterpret_cast<void (*)(int)>(symbol)(1);
    return true;
  }();
  (void)done;
}

/// Elements of a transposed operand that are copied together: 1 MiB stays in a core's cache during
/// the multiplication.
constexpr int64_t kScratch = 1 << 18;

/// Smaller matrices gain nothing.
constexpr int64_t kSmallestTransposed = 64 * 64;

/// Transposes B itself, some columns of C at a time. oneDNN packs a transposed B at about 1.6 ns
/// per element, which is a fifth of the whole matmul with 256 rows of A, and weights are stored
/// that way (PyTorch's Linear). Our transposition takes a fraction of that. Whether and where B is
/// split depends on B alone, so the rows of A do not change which call computes an element of C.
void multiplyByTransposed(const GemmArguments<float> &g) {
  static thread_local std::vector<float> scratch;
  constexpr int64_t lines = 16; // floats of a cache line
  int64_t max = std::max<int64_t>(lines * lines, kScratch / g.k / lines * lines),
          pieces = (g.n + max - 1) / max;
  int64_t columns = ((g.n + pieces - 1) / pieces + lines - 1) / lines * lines,
          ld = columns + lines; // not a power of two: the lines of a column would share a set of
                                // the cache
  scratch.resize(std::max<size_t>(scratch.size(), size_t(ld * g.k)));
  for (int64_t first = 0; first < g.n; first += columns) {
    int64_t n = std::min(columns, g.n - first);
    simdOps().transposeF32(g.b + first * g.ldb, g.ldb, n, g.k, scratch.data(), ld);
    dnnl_sgemm(g.transposeA ? 'T' : 'N', 'N', g.m, n, g.k, g.alpha, g.a, g.lda, scratch.data(), ld,
               g.beta, g.c + first, g.ldc);
  }
}

class OneDnn final : public Gemm {
public:
  const char *name() const override { return "onednn"; }
  std::string identity() const override {
    const dnnl_version_t *version = dnnl_version();
    char text[64];
    std::snprintf(text, sizeof text, "onednn %d.%d.%d, isa %d", version->major, version->minor,
                  version->patch, int(dnnl_get_effective_cpu_isa()));
    return text;
  }
  void matmul(const GemmArguments<float> &g) const override {
    useOneThread();
    if (g.transposeB && g.n * g.k >= kSmallestTransposed)
      return multiplyByTransposed(g);
    dnnl_sgemm(g.transposeA ? 'T' : 'N', g.transposeB ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a,
               g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }
  void matmul(const GemmArguments<double> &g) const override {
    openBlasGemm()->multiply(g);
  } // oneDNN has no f64 matmul
};

} // namespace

const Gemm *zorse::runtime::oneDnnGemm() {
  static const OneDnn gemm;
  return &gemm;
}
#else
const Gemm *zorse::runtime::oneDnnGemm() { return nullptr; }
#endif
