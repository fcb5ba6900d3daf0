// OpenBLAS, loaded at its first use. A program that is linked with it starts threads and maps
// memory before main; with a limit on address space (ulimit -v) even --help then hung.
#include "Gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

using namespace zorse::runtime;

namespace {

/// Bytes that OpenBLAS maps for every thread that calls it at the same time. If the mapping fails,
/// it retries forever.
constexpr size_t kBytesPerThread = size_t(128) << 20;

CBLAS_TRANSPOSE flag(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

class OpenBlas final : public Gemm {
public:
  OpenBlas() {
    if (!(problem_ = isOutOfMemory()).empty())
      return;
    ::setenv("OPENBLAS_NUM_THREADS", "1",
             1); // the runtime's threads split the work; CMakeLists.txt explains why the serial
                 // build is not used
    tellCoreType();
    void *library = ::dlopen(ZORSE_OPENBLAS_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library)
      library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char *why = ::dlerror();
      problem_ = std::string("OpenBLAS cannot be loaded: ") + (why ? why : "unknown") +
                 "; expected " ZORSE_OPENBLAS_FILE " (Debian: libopenblas0-pthread)";
      return;
    }
    sgemm_ = reinterpret_cast<decltype(sgemm_)>(::dlsym(library, "cblas_sgemm"));
    dgemm_ = reinterpret_cast<decltype(dgemm_)>(::dlsym(library, "cblas_dgemm"));
    auto setThreads = reinterpret_cast<decltype(&openblas_set_num_threads)>(
        ::dlsym(library, "openblas_set_num_threads"));
    config_ = reinterpret_cast<decltype(config_)>(::dlsym(library, "openblas_get_config"));
    corename_ = reinterpret_cast<decltype(corename_)>(::dlsym(library, "openblas_get_corename"));
    if (!sgemm_ || !dgemm_ || !setThreads || !config_ || !corename_) {
      problem_ = "OpenBLAS does not export one of cblas_sgemm, cblas_dgemm, "
                 "openblas_set_num_threads, openblas_get_config and openblas_get_corename";
      return;
    }
    setThreads(1);
  }

  const std::string &problem() const { return problem_; }
  const char *name() const override { return "openblas"; }
  std::string identity() const override {
    std::string build = config_(); // for example "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...":
                                   // name and version are kept
    size_t name = build.find(' '),
           version = name == std::string::npos ? name : build.find(' ', name + 1);
    return "openblas" +
           (name == std::string::npos ? std::string() : build.substr(name, version - name)) + ", " +
           corename_();
  }
  void matmul(const GemmArguments<float> &g) const override {
    sgemm_(CblasRowMajor, flag(g.transposeA), flag(g.transposeB), g.m, g.n, g.k, g.alpha, g.a,
           g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }
  void matmul(const GemmArguments<double> &g) const override {
    dgemm_(CblasRowMajor, flag(g.transposeA), flag(g.transposeB), g.m, g.n, g.k, g.alpha, g.a,
           g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  }

private:
  /// OpenBLAS 0.3.21 does not detect AVX-512 on AMD's CPUs. With the core type set, a Zen 5 core
  /// reaches 220 GFLOP/s in f32 instead of 113. A core type that the user set is kept.
  static void tellCoreType() {
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd"))
      ::setenv("OPENBLAS_CORETYPE", "SkylakeX", /*overwrite=*/0);
#endif
  }

  static std::string isOutOfMemory() {
    rlimit limit = {};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
      return {};
    // Threads that start later also need address space, and a matmul that finds none never ends.
    // Disable per-thread heaps, and count the stacks.
    ::mallopt(M_ARENA_MAX, 1);
    constexpr size_t kThreads = 16;
    rlimit stack = {};
    const bool known = ::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
    const size_t bytes = kBytesPerThread * std::max(2u, std::thread::hardware_concurrency()) +
                         kThreads * (known ? stack.rlim_cur : size_t(8) << 20);
    void *probe = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED)
      return "matrix products and threads need " + std::to_string(bytes >> 20) +
             " MiB of address space, more than the limit of " +
             std::to_string(limit.rlim_cur >> 20) +
             " MiB (ulimit -v) leaves; expected a higher limit, or none";
    ::munmap(probe, bytes);
    return {};
  }

  decltype(&cblas_sgemm) sgemm_ = nullptr;
  decltype(&cblas_dgemm) dgemm_ = nullptr;
  decltype(&openblas_get_config) config_ = nullptr;
  decltype(&openblas_get_corename) corename_ = nullptr;
  std::string problem_;
};

const OpenBlas &library() {
  static const OpenBlas gemm;
  return gemm;
}

} // namespace

const Gemm *zorse::runtime::openBlasGemm() {
  return library().problem().empty() ? &library() : nullptr;
}

const std::string &zorse::runtime::openBlasProblem() { return library().problem(); }
