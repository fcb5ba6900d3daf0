// Compares products of a function with three nested loops: both libraries, both types, every
// transpose, odd sizes, batches, accumulation, threads.
#include "HostArguments.h"
#include "bundle.pb.h"
#include "device/cpu/Gemm.h"
#include "device/cpu/Matmul.h"
#include "zorse/runtime/CpuDevice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;

namespace {

struct Case {
  int64_t m, n, k, batch;
};

template <typename T> T element(uint64_t i) {
  return T(int64_t((i * 2654435761u) % 2001) - 1000) / T(1000);
}

template <typename T>
void check(CpuDevice &device, const Case &c, bool ta, bool tb, bool accumulate,
           std::vector<T> *out = nullptr) {
  bundle::CompiledFunction function;
  for (int i = 0; i < 3; ++i) {
    bundle::FunctionArgument &argument = *function.add_arguments();
    argument.set_mode(i == 2 ? bundle::ACCUMULATE : bundle::READ);
    argument.mutable_bytes()->set_fixed(1 << 30);
  }
  bundle::Matmul &product = *function.add_launches()->mutable_matmul();
  product.set_type(sizeof(T) == 4 ? bundle::F32 : bundle::F64);
  product.set_transpose_a(ta);
  product.set_transpose_b(tb);
  product.mutable_m()->set_fixed(c.m);
  product.mutable_n()->set_fixed(c.n);
  product.mutable_k()->set_fixed(c.k);
  product.mutable_batch()->set_fixed(c.batch);
  int64_t lda = (ta ? c.m : c.k) + 3, ldb = (tb ? c.k : c.n) + 5, ldc = c.n + 1;
  int64_t sizeA = (ta ? c.k : c.m) * lda, sizeB = (tb ? c.n : c.k) * ldb, sizeC = c.m * ldc;
  product.mutable_a()->set_argument(0);
  product.mutable_b()->set_argument(1);
  product.mutable_c()->set_argument(2);
  product.set_lda(lda);
  product.set_ldb(ldb);
  product.set_ldc(ldc);
  product.set_batch_stride_a(sizeA);
  product.set_batch_stride_b(sizeB);
  product.set_batch_stride_c(sizeC);
  product.set_alpha(0.5);
  product.set_accumulates(true);

  std::vector<T> a(sizeA * c.batch), b(sizeB * c.batch), result(sizeC * c.batch, T(2));
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = element<T>(i + 1);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = element<T>(3 * i + 7);
  if (!accumulate)
    std::fill(result.begin(), result.end(), T(NAN)); // must not be read
  zorse::runtime::test::HostArguments memory{a.data(), b.data(), result.data()};
  uint8_t overwrite[] = {0, 0, uint8_t(!accumulate)};
  FunctionArguments arguments;
  arguments.addresses = memory;
  arguments.overwrite = overwrite;
  Status status = device.runFunction(function, arguments);
  ASSERT_FALSE(status.failed()) << status.message();

  double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  int64_t stepI = std::max<int64_t>(1, c.m / 40), stepJ = std::max<int64_t>(1, c.n / 40);
  for (int64_t batch = 0; batch < c.batch; ++batch)
    for (int64_t i = 0; i < c.m; i += stepI)
      for (int64_t j = 0; j < c.n; j += stepJ) {
        double sum = 0, size = 1;
        for (int64_t l = 0; l < c.k; ++l) {
          double term = double(a[batch * sizeA + (ta ? l * lda + i : i * lda + l)]) *
                        double(b[batch * sizeB + (tb ? j * ldb + l : l * ldb + j)]);
          sum += term;
          size += std::abs(term);
        }
        double expected = 0.5 * sum + (accumulate ? 2 : 0);
        ASSERT_NEAR(result[batch * sizeC + i * ldc + j], expected, tolerance * size)
            << c.m << "x" << c.n << "x" << c.k << " " << ta << tb << accumulate;
      }
  if (out)
    *out = result;
}

std::unique_ptr<CpuDevice> makeDevice(const std::string &gemm, int threads) {
  CpuDeviceOptions options;
  options.gemm = gemm;
  options.threads = threads;
  auto device = CpuDevice::create(options);
  return device.failed() ? nullptr : std::move(*device);
}

TEST(Matmul, AgreesWithLoops) {
  for (const char *gemm : {"openblas", "onednn"}) {
    auto device = makeDevice(gemm, 2);
    if (!device)
      continue; // built without this library
    for (Case c : {Case{1, 1, 1, 1},
                   {5, 7, 3, 1},
                   {1, 33, 17, 2},
                   {33, 1, 17, 2},
                   {64, 48, 8, 3},
                   {129, 65, 100, 1},
                   {3, 1501, 203, 1},
                   {7, 9, 0, 1}})
      for (int bits = 0; bits < 8; ++bits) {
        check<float>(*device, c, bits & 1, bits & 2, bits & 4);
        check<double>(*device, c, bits & 1, bits & 2, bits & 4);
      }
  }
}

TEST(Matmul, BitsDoNotDependOnThreads) {
  for (const char *gemm : {"openblas", "onednn"}) {
    auto one = makeDevice(gemm, 1), three = makeDevice(gemm, 3);
    if (!one)
      continue;
    for (Case c : {Case{300, 1000, 200, 1}, {1000, 300, 257, 1}, {128, 130, 64, 6}})
      for (int bits = 0; bits < 4; ++bits) {
        std::vector<float> a, b;
        check<float>(*one, c, bits & 1, bits & 2, true, &a);
        check<float>(*three, c, bits & 1, bits & 2, true, &b);
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << gemm;
      }
  }
}

TEST(Matmul, PiecesCoverAndStayLarge) {
  for (Case c : {Case{1024, 768, 768, 1},
                 {1024, 50257, 768, 1},
                 {768, 3072, 1024, 1},
                 {16, 100000, 512, 1},
                 {100000, 16, 512, 1},
                 {2048, 64, 64, 96}}) {
    MatmulPieces pieces = choosePieces(c.m, c.n, c.k, c.batch);
    EXPECT_GT(pieces.rows, 0);
    EXPECT_GT(pieces.columns, 0);
    int64_t count = ((c.m + pieces.rows - 1) / pieces.rows) *
                    ((c.n + pieces.columns - 1) / pieces.columns);
    EXPECT_LE(count, 16);
    if (c.batch == 1) {
      EXPECT_GE(count, 3) << c.m << " " << c.n; // enough work for several threads
    }
  }
}

} // namespace

namespace {

/// Repeats products of one size. Returns how many differ from the first product, which ran before
/// the threads started.
template <typename T>
int differing(const Gemm &gemm, int64_t m, int repeats, std::vector<T> &first) {
  int64_t n = 176, k = 64;
  std::vector<T> a(m * k), b(k * n), c(m * n);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = element<T>(i + m);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = element<T>(5 * i + m);
  int bad = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    gemm.multiply(
        GemmArguments<T>{false, false, m, n, k, T(1), a.data(), k, b.data(), n, T(0), c.data(), n});
    if (first.empty())
      first = c;
    bad += std::memcmp(c.data(), first.data(), c.size() * sizeof(T)) != 0;
  }
  return bad;
}

template <typename T> void fromSeveralThreads(const Gemm &gemm) {
  constexpr int threads = 4, repeats = 4000;
  std::vector<std::vector<T>> first(threads);
  std::vector<int> bad(threads);
  for (int i = 0; i < threads; ++i)
    differing<T>(gemm, 64 + 16 * i, 1, first[i]);
  std::vector<std::thread> callers;
  for (int i = 0; i < threads; ++i)
    callers.emplace_back([&, i] { bad[i] = differing<T>(gemm, 64 + 16 * i, repeats, first[i]); });
  for (std::thread &caller : callers)
    caller.join();
  for (int i = 0; i < threads; ++i)
    EXPECT_EQ(bad[i], 0) << gemm.name() << ", " << 8 * sizeof(T) << " bits, thread " << i
                         << ": products of " << repeats << " that differ";
}

} // namespace

// Devices are threads of one process. A library that is not thread-safe (such as OpenBLAS's serial
// build) occasionally returns wrong products.
TEST(Matmul, LibrariesMayBeCalledFromSeveralThreads) {
  for (const Gemm *gemm : {openBlasGemm(), oneDnnGemm()})
    if (gemm) {
      fromSeveralThreads<float>(*gemm);
      fromSeveralThreads<double>(*gemm);
    }
}
