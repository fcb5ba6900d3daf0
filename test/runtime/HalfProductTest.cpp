// Tests half precision on CPUs: conversions of every number, products against f64 sums, and the
// guarantee that results depend neither on the instruction set nor on how a product is split.
#include "device/cpu/HalfGemm.h"
#include "device/cpu/Matmul.h"
#include "device/cpu/ThreadPool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

using namespace zorse::runtime;

namespace {

uint16_t narrowed(HalfType type, float x) {
  return type == HalfType::BF16 ? narrow<HalfType::BF16>(x) : narrow<HalfType::F16>(x);
}
float widened(HalfType type, uint16_t x) {
  return type == HalfType::BF16 ? widen<HalfType::BF16>(x) : widen<HalfType::F16>(x);
}

constexpr HalfType kTypes[] = {HalfType::BF16, HalfType::F16};

/// The instruction sets that this machine supports.
std::vector<const HalfOps *> allOps() {
  std::vector<const HalfOps *> all;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(&halfV3);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    all.push_back(&halfV4);
  if (__builtin_cpu_supports("avx512bf16"))
    all.push_back(&halfBf16);
#endif
  return all;
}

struct Case {
  HalfType type;
  bool transposeA, transposeB, narrowC, add;
  int64_t m, n, k, lda, ldb, ldc;
  std::vector<uint16_t> a, b;
  std::vector<float> before;

  Case(HalfType type, uint64_t seed) : type(type) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    auto size = [&](int64_t max) { return 1 + static_cast<int64_t>(random() % max); };
    transposeA = random() & 1;
    transposeB = random() & 1;
    narrowC = random() & 1;
    add = !narrowC && (random() & 1);
    m = size(130), n = size(130), k = size(900);
    lda = (transposeA ? m : k) + size(5), ldb = (transposeB ? k : n) + size(5), ldc = n + size(7);
    a.resize((transposeA ? k : m) * lda);
    b.resize((transposeB ? n : k) * ldb);
    before.resize(m * ldc);
    for (uint16_t &x : a)
      x = narrowed(type, normal(random));
    for (uint16_t &x : b)
      x = narrowed(type, normal(random));
    for (float &x : before)
      x = normal(random);
  }

  double exact(int64_t i, int64_t j) const {
    double sum = add ? before[i * ldc + j] : 0;
    for (int64_t q = 0; q < k; ++q)
      sum += double(widened(type, transposeA ? a[q * lda + i] : a[i * lda + q])) *
             widened(type, transposeB ? b[j * ldb + q] : b[q * ldb + j]);
    return sum;
  }

  HalfMatmul product(std::vector<float> &wide, std::vector<uint16_t> &half) const {
    wide = before;
    half.assign(m * ldc, 0x7fc1);
    return {type,
            transposeA,
            transposeB,
            m,
            n,
            k,
            a.data(),
            lda,
            b.data(),
            ldb,
            narrowC,
            add,
            narrowC ? static_cast<void *>(half.data()) : wide.data(),
            ldc};
  }
};

} // namespace

TEST(Half, EveryNumberIsItself) {
  for (HalfType type : kTypes)
    for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
      float x = widened(type, static_cast<uint16_t>(bits));
      if (x == x)
        ASSERT_EQ(narrowed(type, x), bits) << x;
      else
        ASSERT_NE(widened(type, narrowed(type, x)), x); // NaN stays NaN
    }
}

TEST(Half, BetweenTwoNumbersTheNearerOneOrTheEvenOne) {
  for (HalfType type : kTypes)
    for (uint32_t bits = 0; bits + 1 < (type == HalfType::BF16 ? 0x7f80u : 0x7c00u); ++bits) {
      double below = widened(type, static_cast<uint16_t>(bits)),
             above = widened(type, static_cast<uint16_t>(bits + 1));
      auto middle = static_cast<float>((below + above) / 2); // exact: f32 has more bits, except at
                                                             // bf16's minimum
      if (double(middle) != (below + above) / 2)
        continue;
      ASSERT_EQ(narrowed(type, middle), bits + (bits & 1)) << middle;
      ASSERT_EQ(narrowed(type, std::nextafter(middle, 0.0f)), bits) << middle;
      ASSERT_EQ(narrowed(type, std::nextafter(middle, INFINITY)), bits + 1) << middle;
      ASSERT_EQ(narrowed(type, -middle), 0x8000 + bits + (bits & 1)) << -middle;
    }
  EXPECT_EQ(narrowed(HalfType::F16, 65519.0f), 0x7bff);
  EXPECT_EQ(narrowed(HalfType::F16, 65520.0f), 0x7c00);
  EXPECT_EQ(narrowed(HalfType::F16, -1e30f), 0xfc00);
}

TEST(HalfMatmul, IsTheSumOfProducts) {
  for (HalfType type : kTypes)
    for (uint64_t seed = 0; seed < 100; ++seed) {
      Case c(type, seed);
      std::vector<float> wide;
      std::vector<uint16_t> half;
      multiply(c.product(wide, half));
      double step = !c.narrowC ? 2e-6 : type == HalfType::BF16 ? 4e-3 : 5e-4;
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          double want = c.exact(i, j),
                 got = c.narrowC ? widened(type, half[i * c.ldc + j]) : wide[i * c.ldc + j];
          ASSERT_LE(std::fabs(got - want), step * (std::sqrt(double(c.k)) + std::fabs(want)))
              << "seed " << seed << ", element " << i << ", " << j;
        }
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = c.n; j < c.ldc; ++j) // memory between the rows is not touched
          ASSERT_TRUE(c.narrowC ? half[i * c.ldc + j] == 0x7fc1
                                : wide[i * c.ldc + j] == c.before[i * c.ldc + j]);
    }
}

TEST(HalfMatmul, InstructionSetsAgreeBitByBit) {
  std::vector<const HalfOps *> all = allOps();
  if (all.size() < 2)
    GTEST_SKIP() << "one instruction set with FMA runs here: "
                 << (all.empty() ? "none" : all[0]->name) << "; nothing to compare";
  for (HalfType type : kTypes)
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Case c(type, seed);
      std::vector<float> wide[2];
      std::vector<uint16_t> half[2];
      for (int i : {0, 1})
        all[i]->multiply(c.product(wide[i], half[i]));
      ASSERT_EQ(wide[0], wide[1]);
      ASSERT_EQ(half[0], half[1]);
    }
}

TEST(HalfMatmul, PiecesAndThreadsChangeNoBit) {
  const int64_t m = 300, n = 500, k = 700;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(m * k), b(k * n);
  for (uint16_t &x : a)
    x = narrowed(HalfType::BF16, normal(random));
  for (uint16_t &x : b)
    x = narrowed(HalfType::BF16, normal(random));
  std::vector<float> whole(m * n), cut(m * n);
  HalfMatmul product{HalfType::BF16, false, false,        m, n, k, a.data(), k, b.data(), n,
                     false,          false, whole.data(), n};
  multiply(product);
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads, /*spin=*/false);
    std::fill(cut.begin(), cut.end(), NAN);
    product.c = cut.data();
    multiply(BatchedHalfMatmul{product, 1, 0, 0, 0}, pool);
    EXPECT_EQ(whole, cut) << threads << " threads";
  }
}
