// Multiplies matrices with the sizes, strides and offsets of a list. Compares samples of the
// results with f64 sums, and measures the time.
#include "Probe.h"

#include "device/cuda/BlasLt.h"
#include "zorse/runtime/HalfTypes.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

using namespace zorse;
using namespace zorse::probe;
using namespace zorse::runtime::cuda;

namespace {

/// A line of the list: NAME TYPE TRANSPOSE m n k batch PAD OFFSET. TYPE "bf16+bias" adds a vector
/// to every row. The row stride is `pad` elements more than the row length. Operands start `offset`
/// elements after an address that is a multiple of 256 bytes.
struct Wanted {
  std::string name, type, transpose;
  int64_t m = 0, n = 0, k = 0, batch = 1, pad = 0, offset = 0;
  bool bias = false;
};

bool readLine(const std::string &line, Wanted &out) {
  std::istringstream words(line);
  if (!(words >> out.name >> out.type >> out.transpose >> out.m >> out.n >> out.k >> out.batch >>
        out.pad >> out.offset))
    return false;
  if (const size_t plus = out.type.find("+bias"); plus != std::string::npos)
    out.bias = true, out.type.resize(plus);
  return (out.type == "f32" || out.type == "bf16" || out.type == "f16") &&
         out.transpose.size() == 2;
}

/// Numbers in (-1, 1) that are a function of their position, the same in every type: multiples of
/// 2^-6.
double operand(uint64_t at, uint64_t salt) {
  return double(int64_t((at * 2654435761u + salt * 40503u) >> 7 & 127) - 64) / 64;
}

class Operands {
public:
  Operands(const CudaApi &cuda, const Wanted &w)
      : cuda(cuda), w(w), bytes(w.type == "f32" ? 4 : 2) {}
  ~Operands() {
    for (const CUdeviceptr base : bases)
      if (base)
        cuda.cuMemFree_v2(base);
  }

  /// Allocates one matrix of rows x columns; filled, or zero.
  Result<CUdeviceptr> matrix(int which, int64_t rows, int64_t columns, bool filled) {
    return numbers(which, rows * (columns + w.pad) * w.batch, filled);
  }
  Result<CUdeviceptr> bias() {
    return w.bias ? numbers(3, w.n, true) : Result<CUdeviceptr>(CUdeviceptr(0));
  }

  Result<CUdeviceptr> numbers(int which, int64_t count, bool filled) {
    const int64_t elements = count + w.offset;
    if (Status status =
            cuda.check("cuMemAlloc", cuda.cuMemAlloc_v2(&bases[which], size_t(elements) * bytes));
        status.failed())
      return status.error();
    std::vector<char> host(size_t(elements) * bytes);
    for (int64_t i = 0; filled && i < elements; ++i)
      put(host.data(), i, operand(uint64_t(i - w.offset), uint64_t(which)));
    if (Status status = cuda.check("cuMemcpyHtoD",
                                   cuda.cuMemcpyHtoD_v2(bases[which], host.data(), host.size()));
        status.failed())
      return status.error();
    return bases[which] + uint64_t(w.offset) * bytes;
  }
  void put(char *to, int64_t i, double value) const {
    const auto narrow = float(value);
    const uint16_t half = w.type == "bf16" ? runtime::narrow<runtime::HalfType::BF16>(narrow)
                                           : runtime::narrow<runtime::HalfType::F16>(narrow);
    w.type == "f32" ? std::memcpy(to + i * 4, &narrow, 4) : std::memcpy(to + i * 2, &half, 2);
  }
  double get(const char *from) const {
    float wide = 0;
    uint16_t half = 0;
    if (w.type == "f32")
      return std::memcpy(&wide, from, 4), double(wide);
    std::memcpy(&half, from, 2);
    return w.type == "bf16" ? runtime::widen<runtime::HalfType::BF16>(half)
                            : runtime::widen<runtime::HalfType::F16>(half);
  }

private:
  const CudaApi &cuda;
  const Wanted &w;
  CUdeviceptr bases[4] = {};

public:
  const size_t bytes;
};

BlasMatmul describe(const Wanted &w) {
  BlasMatmul p;
  p.typeOfOperands = p.typeOfC = w.type == "f32" ? kF32 : w.type == "bf16" ? kBF16 : kF16;
  p.transposeA = w.transpose[0] == 't', p.transposeB = w.transpose[1] == 't';
  p.m = w.m, p.n = w.n, p.k = w.k, p.batch = w.batch;
  p.lda = (p.transposeA ? w.m : w.k) + w.pad, p.ldb = (p.transposeB ? w.k : w.n) + w.pad,
  p.ldc = w.n + w.pad;
  p.strideA = (p.transposeA ? w.k : w.m) * p.lda, p.strideB = (p.transposeB ? w.n : w.k) * p.ldb,
  p.strideC = w.m * p.ldc;
  return p;
}

/// The maximum error of 64 elements, in units of the expected rounding: half a unit in the last
/// place of the result, and of f32 for each addition.
Result<double> worstOfSamples(const CudaApi &cuda, const Wanted &w, const BlasMatmul &p,
                              const Operands &operands, CUdeviceptr c) {
  double worst = 0;
  const double last = w.type == "f32" ? 0x1p-24 : w.type == "bf16" ? 0x1p-8 : 0x1p-11;
  for (uint64_t sample = 0; sample < 64; ++sample) {
    const auto b = int64_t(sample % uint64_t(w.batch)), i = int64_t(sample * 7919 % uint64_t(w.m)),
               j = int64_t(sample * 104729 % uint64_t(w.n));
    double sum = 0, sizes = 0;
    for (int64_t q = 0; q < w.k; ++q) {
      const double x = operand(
                       uint64_t(b * p.strideA + (p.transposeA ? q * p.lda + i : i * p.lda + q)), 0),
                   y = operand(
                       uint64_t(b * p.strideB + (p.transposeB ? j * p.ldb + q : q * p.ldb + j)), 1);
      sum += x * y, sizes += std::fabs(x * y);
    }
    if (w.bias)
      sum += operand(uint64_t(j), 3), sizes += std::fabs(operand(uint64_t(j), 3));
    char bytes[4];
    const CUdeviceptr at = c + uint64_t(b * p.strideC + i * p.ldc + j) * operands.bytes;
    if (Status status = cuda.check("cuMemcpyDtoH", cuda.cuMemcpyDtoH_v2(bytes, at, operands.bytes));
        status.failed())
      return status.error();
    const double limit = std::fabs(sum) * last + sizes * 0x1p-24 * double(w.k) + 1e-30;
    worst = std::max(worst, std::fabs(operands.get(bytes) - sum) / limit);
  }
  return worst;
}

Status multiply(const CudaApi &cuda, BlasLt &blas, const Wanted &w) {
  const BlasMatmul p = describe(w);
  Operands operands(cuda, w);
  Result<CUdeviceptr> a = operands.matrix(0, p.transposeA ? w.k : w.m, p.transposeA ? w.m : w.k,
                                          true),
                      b = operands.matrix(1, p.transposeB ? w.n : w.k, p.transposeB ? w.k : w.n,
                                          true),
                      c = operands.matrix(2, w.m, w.n, false), bias = operands.bias();
  for (const Result<CUdeviceptr> *one : {&a, &b, &c, &bias})
    if (one->failed())
      return one->error();
  const BlasOperands at{*a, *b, *c, *bias};
  GpuTimer timer(cuda);
  if (Result<bool> ran = blas.warmUp(p, at, timer.stream()); ran.failed())
    return ran.error();
  Result<double> seconds =
      timer.seconds(5, 4, [&](CUstream stream) { return blas.multiply(p, 1, 0, at, stream); });
  if (seconds.failed())
    return seconds.error();
  Result<double> worst = worstOfSamples(cuda, w, p, operands, *c);
  if (worst.failed())
    return worst.error();
  const double flops = 2.0 * double(w.m) * double(w.n) * double(w.k) * double(w.batch);
  char figure[160], more[64];
  std::snprintf(figure, sizeof figure,
                "%.1f us, %.2f TFLOP/s, worst of 64 samples %.3f of what rounding makes (limit 1)",
                *seconds * 1e6, flops / *seconds * 1e-12, *worst);
  std::snprintf(more, sizeof more, "\"seconds\": %.9f", *seconds);
  say("product " + w.name, *worst <= 1, figure, more);
  return Status::success();
}

} // namespace

int probe::multiplyMatrices(const std::string &list) {
  Result<const CudaApi *> api = openGpu();
  if (api.failed())
    return say("products", false, api.message()), 1;
  Result<std::unique_ptr<BlasLt>> blas = BlasLt::create(**api);
  if (blas.failed())
    return say("products", false, blas.message()), 1;
  std::ifstream lines(list);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    Wanted wanted;
    if (!readLine(line, wanted)) {
      say("products", false, "not a product: " + line);
      continue;
    }
    ++count;
    if (Status status = multiply(**api, **blas, wanted); status.failed())
      say("product " + wanted.name, false, status.message());
  }
  return count == 0 ? (say("products", false, "no products in " + list), 1) : 0;
}
