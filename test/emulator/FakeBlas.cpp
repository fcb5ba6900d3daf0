// Stand-in for cuBLASLt, in three versions. Products are plain loops with sums in f32 (f64 for
// f64). The first product of a kind on a GPU loads a kernel, which waits for all streams.
//
//   ZORSE_STANDIN_BLAS_BROKEN=13    version 13 cannot be created
//   ZORSE_STANDIN_BLAS_WRONG=1      products are 1 % too large
#include "StandIn.h"
#include "zorse/runtime/HalfTypes.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <set>
#include <vector>

namespace {

constexpr int kInvalidValue = 7;  // CUBLAS_STATUS_INVALID_VALUE
constexpr int kNotSupported = 15; // CUBLAS_STATUS_NOT_SUPPORTED
constexpr int kCompute16F = 64,
              kComputeTf32 = 77; // CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F_FAST_TF32
constexpr uint32_t kNoEpilogue = 1, kBiasEpilogue = 4; // CUBLASLT_EPILOGUE_DEFAULT, _BIAS

struct Description {
  int compute = 68;
  int scale = 0;
  bool transpose[2] = {false, false};
  uint32_t epilogue = kNoEpilogue;
  const void *bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

/// Alignments in bytes that a caller guarantees for A, B, C and D. Part of the algorithm that the
/// heuristic returns.
struct Alignments {
  uint32_t bytes[4] = {256, 256, 256, 256};
  bool hold(std::initializer_list<const void *> addresses) const {
    const uint32_t *promised = bytes;
    for (const void *address : addresses)
      if (uintptr_t(address) % *promised++)
        return false;
    return true;
  }
};

using namespace zorse::runtime;

double get(const void *data, int type, int64_t at) {
  switch (type) {
  case 0:
    return static_cast<const float *>(data)[at];
  case 1:
    return static_cast<const double *>(data)[at];
  case 2:
    return widen<HalfType::F16>(static_cast<const uint16_t *>(data)[at]);
  default:
    return widen<HalfType::BF16>(static_cast<const uint16_t *>(data)[at]);
  }
}
void put(void *data, int type, int64_t at, double value) {
  if (type == 0)
    static_cast<float *>(data)[at] = float(value);
  else if (type == 1)
    static_cast<double *>(data)[at] = value;
  else
    static_cast<uint16_t *>(data)[at] = type == 2 ? narrow<HalfType::F16>(float(value))
                                                  : narrow<HalfType::BF16>(float(value));
}

/// Rounds to 10 bits of mantissa, ties to even, as cuBLAS does for tensor cores.
float roundedToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7f800000) != 0x7f800000)
    bits = (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// Adds a term as the tensor cores of `compute` do.
template <typename T> T sumOf(int compute, T sum, T term) {
  return compute == kCompute16F ? T(widen<HalfType::F16>(narrow<HalfType::F16>(float(sum + term))))
                                : sum + term;
}

template <typename T>
void multiply(const Description &d, double alpha, const void *a, const Layout &la, const void *b,
              const Layout &lb, double beta, void *c, const Layout &lc) {
  const auto m = int64_t(lc.rows), n = int64_t(lc.columns),
             k = int64_t(d.transpose[0] ? la.rows : la.columns);
  auto operand = [&](T value) {
    return d.compute == kComputeTf32 ? T(roundedToTf32(float(value))) : value;
  };
  std::vector<T> left(size_t(m * k)), right(size_t(k * n)), row(static_cast<size_t>(m));
  for (int32_t batch = 0; batch < lc.batch; ++batch) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t q = 0; q < k; ++q)
        left[size_t(q * m + i)] = operand(T(
            get(a, la.type, batch * la.stride + (d.transpose[0] ? i * la.ld + q : q * la.ld + i))));
    for (int64_t j = 0; j < n; ++j) {
      std::fill(row.begin(), row.end(), T(0));
      for (int64_t q = 0; q < k; ++q) {
        const T factor = operand(T(
            get(b, lb.type, batch * lb.stride + (d.transpose[1] ? q * lb.ld + j : j * lb.ld + q))));
        const T *column = left.data() + q * m;
        for (int64_t i = 0; i < m; ++i)
          row[size_t(i)] = sumOf(d.compute, row[size_t(i)], column[i] * factor);
      }
      for (int64_t i = 0; i < m; ++i) {
        const int64_t at = batch * lc.stride + j * lc.ld + i;
        const T added = T(beta != 0 ? beta * get(c, lc.type, at) : 0) +
                        T(d.bias ? get(d.bias, lc.type, i) : 0);
        put(c, lc.type, at, T(alpha * double(row[size_t(i)])) + added);
      }
    }
  }
}

/// Identifies a kernel of the library, which is loaded at its first run.
using ProductKind = std::array<int64_t, 16>;

void loadOnce(const ProductKind &kind) {
  static std::mutex mutex;
  static std::set<ProductKind> loaded;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!loaded.insert(kind).second)
      return;
  }
  zorse::emulator::zorseStandInLoads();
}

} // namespace

extern "C" {

int cuDriverGetVersion(int *version);

/// Like the releases: CUBLAS_STATUS_NOT_INITIALIZED if the driver is too old or there is no
/// context; CUBLAS_STATUS_ARCH_MISMATCH for a GPU that the release has dropped or does not know.
int cublasLtCreate(void **handle) {
  int driver = 0;
  const int capability = zorse::emulator::zorseStandInCapability();
  if (cuDriverGetVersion(&driver) != 0 || driver < ZORSE_STANDIN_BLAS / 10000 * 1000 ||
      capability == 0)
    return 1;
  if ((ZORSE_STANDIN_BLAS >= 130000 && capability < 75) ||
      (ZORSE_STANDIN_BLAS < 120000 && capability > 90))
    return 8;
  if (const char *broken = std::getenv("ZORSE_STANDIN_BLAS_BROKEN");
      broken && std::atoi(broken) == ZORSE_STANDIN_BLAS / 10000)
    return 3; // CUBLAS_STATUS_ALLOC_FAILED
  return *handle = new int(0), 0;
}
int cublasLtDestroy(void *handle) { return delete static_cast<int *>(handle), 0; }
size_t cublasLtGetVersion() { return ZORSE_STANDIN_BLAS; }
int cublasLtMatmulDescCreate(void **description, int compute, int scale) {
  return *description = new Description{compute, scale}, 0;
}
int cublasLtMatmulDescDestroy(void *description) {
  return delete static_cast<Description *>(description), 0;
}
int cublasLtMatmulDescSetAttribute(void *description, int attribute, const void *value,
                                   size_t bytes) {
  auto &d = *static_cast<Description *>(description);
  if (bytes != (attribute == 8 ? 8 : 4))
    return kInvalidValue;
  if (attribute == 3 || attribute == 4)
    d.transpose[attribute - 3] = *static_cast<const int32_t *>(value) != 0;
  else if (attribute == 7)
    std::memcpy(&d.epilogue, value, 4);
  else if (attribute == 8)
    std::memcpy(&d.bias, value, 8);
  else
    return kInvalidValue;
  return 0;
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t ld) {
  if (ld < int64_t(rows))
    return kInvalidValue;
  *layout = new Layout{type, rows, columns, ld};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) { return delete static_cast<Layout *>(layout), 0; }
int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
  auto &l = *static_cast<Layout *>(layout);
  if (attribute == 5 && bytes == 4)
    std::memcpy(&l.batch, value, 4);
  else if (attribute == 6 && bytes == 8)
    std::memcpy(&l.stride, value, 8);
  else
    return kInvalidValue;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void **preference) { return *preference = new Alignments, 0; }
int cublasLtMatmulPreferenceDestroy(void *preference) {
  return delete static_cast<Alignments *>(preference), 0;
}
int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value,
                                         size_t bytes) {
  if (attribute == 1)
    return bytes == 8 ? 0 : kInvalidValue;
  if (attribute < 5 || attribute > 8 || bytes != 4)
    return kInvalidValue;
  std::memcpy(&static_cast<Alignments *>(preference)->bytes[attribute - 5], value, 4);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *, void *description, void *a, void *b, void *c, void *,
                                   void *preference, int, void *result, int *found) {
  std::memcpy(result, preference, sizeof(Alignments)); // the algorithm is the result's first member
  const auto &d = *static_cast<Description *>(description);
  const auto &la = *static_cast<Layout *>(a), &lb = *static_cast<Layout *>(b),
             &lc = *static_cast<Layout *>(c);
  const uint64_t m = d.transpose[0] ? la.columns : la.rows,
                 k = d.transpose[0] ? la.rows : la.columns;
  const uint64_t k2 = d.transpose[1] ? lb.columns : lb.rows,
                 n = d.transpose[1] ? lb.rows : lb.columns;
  // Not supported: features that the GPU does not have, and products without a kernel.
  const bool biased = d.epilogue != kNoEpilogue;
  const auto promised = static_cast<const Alignments *>(preference)->bytes[3];
  if ((d.compute == kComputeTf32 &&
       (la.type != 0 || lc.type != 0 || zorse::emulator::zorseStandInCapability() < 80)) ||
      (d.compute == kCompute16F ? la.type != 2 || lc.type != 2 || d.scale != 2
                                : d.scale != (lc.type == 1 ? 1 : 0)) ||
      (biased && (d.epilogue != kBiasEpilogue || !d.bias || lc.type == 1 || lc.batch > 1 ||
                  uintptr_t(d.bias) % promised)))
    return *found = 0, kNotSupported;
  *found = m == lc.rows && n == lc.columns && k == k2 && la.type == lb.type &&
           la.batch == lc.batch && lb.batch == lc.batch;
  return 0;
}
int cublasLtMatmul(void *, void *description, const void *alpha, const void *a, void *layoutA,
                   const void *b, void *layoutB, const void *beta, const void *c, void *layoutC,
                   void *d, void *, const void *algorithm, void *workspace, size_t workspaceBytes,
                   void *stream) {
  Alignments promised;
  std::memcpy(&promised, algorithm, sizeof promised);
  const Description &how = *static_cast<Description *>(description);
  if (!promised.hold({a, b, c, d}) || (how.bias && uintptr_t(how.bias) % promised.bytes[3]))
    return kInvalidValue; // a kernel of the library would fail with a misaligned address, or read
                          // wider words than allowed
  if (zorse::emulator::zorseStandInLeavesOut(static_cast<zorse::emulator::Stream *>(stream)))
    return 0;
  const auto &lc = *static_cast<Layout *>(layoutC);
  auto number = [&](const void *at) { return get(at, how.scale, 0); };
  auto access = [](const void *from, const Layout &l, bool write) {
    const int64_t elements = (l.batch - 1) * l.stride + int64_t(l.columns - 1) * l.ld +
                             int64_t(l.rows);
    const auto begin = uintptr_t(from);
    return zorse::emulator::Access{begin,
                                   begin + uintptr_t(elements) * (l.type == 1   ? 8
                                                                  : l.type == 0 ? 4
                                                                                : 2),
                                   write};
  };
  const Layout la = *static_cast<Layout *>(layoutA), lb = *static_cast<Layout *>(layoutB);
  loadOnce({zorse::emulator::zorseStandInUnit(), how.compute, la.type, lc.type, how.transpose[0],
            how.transpose[1], int64_t(la.rows), int64_t(la.columns), int64_t(lc.rows),
            int64_t(lc.columns), lc.batch, promised.bytes[0], promised.bytes[1], promised.bytes[2],
            promised.bytes[3], how.epilogue});
  std::vector<zorse::emulator::Access> accesses = {
      access(a, la, false),
      access(b, lb, false),
      access(d, lc, true),
      {uintptr_t(workspace), uintptr_t(workspace) + workspaceBytes, true, false}};
  if (how.bias)
    accesses.push_back(access(how.bias, {lc.type, lc.rows, 1, int64_t(lc.rows)}, false));
  return zorse::emulator::zorseStandInPut(
      static_cast<zorse::emulator::Stream *>(stream), "a product", accesses,
      [=, factor = number(alpha) * (std::getenv("ZORSE_STANDIN_BLAS_WRONG") ? 1.01 : 1),
       added = number(beta), how = how, lc = lc] {
        if (zorse::emulator::zorseStandInComputes())
          (lc.type == 1 ? multiply<double> : multiply<float>)(how, factor, a, la, b, lb, added, d,
                                                              lc);
        return std::string();
      });
}

} // extern "C"
