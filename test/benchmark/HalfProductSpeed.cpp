// Speed of bf16 products at the shapes of GPT-2 124M with 1,024 tokens, in one thread, compared
// with the CPU's peak. The peak is the register throughput of its dot product instruction
// (AVX512-BF16), or else of its fused multiply-add; it is measured before and after every product.
//
//   half-product-speed [LEAST SHARE]     fails below this fraction of the peak; default 0
#include "device/cpu/HalfGemm.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <immintrin.h>

using namespace zorse::runtime;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int kChains = 24;
constexpr int64_t kRounds = 400000;

/// FLOP/s of independent chains.
__attribute__((target("avx512f,avx512bf16"))) double peakOfPairs() {
  __m512 sums[kChains];
  for (auto &sum : sums)
    sum = _mm512_setzero_ps();
  __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  const double begin = seconds();
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma clang loop unroll(full)
    for (auto &sum : sums)
      sum = _mm512_dpbf16_ps(sum, x, x);
    __asm__ volatile("" : "+v"(x));
  }
  const double time = seconds() - begin;
  for (auto &sum : sums)
    __asm__ volatile("" ::"v"(sum));
  return kRounds * kChains * 64.0 / time;
}

__attribute__((target("avx2,fma"))) double peakOfFma() {
  __m256 sums[12];
  for (auto &sum : sums)
    sum = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(1);
  const double begin = seconds();
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma clang loop unroll(full)
    for (auto &sum : sums)
      sum = _mm256_fmadd_ps(x, x, sum);
    __asm__ volatile("" : "+x"(x));
  }
  const double time = seconds() - begin;
  for (auto &sum : sums)
    __asm__ volatile("" ::"x"(sum));
  return kRounds * 12 * 16.0 / time;
}

} // namespace

int main(int argc, char **argv) {
  const double min = argc > 1 ? std::atof(argv[1]) : 0;
  const bool pairs = __builtin_cpu_supports("avx512bf16");
  auto peak = [&] { return pairs ? peakOfPairs() : peakOfFma(); };
  struct Shape {
    const char *name;
    bool transposeA, transposeB, add;
    int64_t m, n, k, times;
  };
  constexpr int64_t rows = 1024;
  std::vector<Shape> shapes;
  struct Layer {
    const char *name;
    int64_t in, out;
  };
  constexpr int64_t times = 12;
  for (auto [name, in, out] : {Layer{"qkv", 768, 2304}, Layer{"o", 768, 768},
                               Layer{"fc", 768, 3072}, Layer{"proj", 3072, 768}})
    for (int way = 0; way < 3; ++way) // forward, to the input, to the weights
      shapes.push_back(way == 0   ? Shape{name, false, false, false, rows, out, in, times}
                       : way == 1 ? Shape{name, false, true, false, rows, in, out, times}
                                  : Shape{name, true, false, true, in, out, rows, times});
  shapes.push_back({"head", false, true, false, rows, 50257, 768, 1});
  shapes.push_back({"head", false, false, false, rows, 768, 50257, 1});
  shapes.push_back({"head", true, false, true, 50257, 768, rows, 1});

  std::mt19937 random(1); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
  double work = 0, time = 0, atPeak = 0;
  peak();
  for (const Shape &s : shapes) {
    std::vector<uint16_t> a(size_t(s.m * s.k)), b(size_t(s.k * s.n));
    std::vector<float> c(size_t(s.m * s.n));
    for (uint16_t &x : a)
      x = narrow<HalfType::BF16>(float(random() % 1000) / 1000 - 0.5f);
    for (uint16_t &x : b)
      x = narrow<HalfType::BF16>(float(random() % 1000) / 1000 - 0.5f);
    const bool narrow = !s.add;
    const HalfMatmul product = {HalfType::BF16,
                                s.transposeA,
                                s.transposeB,
                                s.m,
                                s.n,
                                s.k,
                                a.data(),
                                s.transposeA ? s.m : s.k,
                                b.data(),
                                s.transposeB ? s.k : s.n,
                                narrow,
                                s.add,
                                c.data(),
                                s.n};
    multiply(product);
    double best = 1e30, top = 0;
    for (int repeat = 0; repeat < (s.n > 10000 || s.m > 10000 || s.k > 10000 ? 2 : 5); ++repeat) {
      const double before = peak(), begin = seconds();
      multiply(product);
      best = std::min(best, seconds() - begin);
      top = std::max({top, before, peak()});
    }
    const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k);
    std::printf("%-5s %s%s%s %6lld x %6lld x %6lld  %6.1f GFLOP/s, %.2f of the peak\n", s.name,
                s.transposeA ? "T" : "N", s.transposeB ? "T" : "N", s.add ? "+" : " ",
                (long long)s.m, (long long)s.n, (long long)s.k, flops / best / 1e9,
                flops / best / top);
    work += double(s.times) * flops;
    time += double(s.times) * best;
    atPeak += double(s.times) * flops / top;
  }
  std::printf("all products of a step: %.1f GFLOP/s, %.3f of the peak of %s (%.1f GFLOP/s)\n",
              work / time / 1e9, atPeak / time,
              pairs ? "AVX512-BF16" : "f32, because this CPU has no bf16 instructions",
              work / atPeak / 1e9);
  return atPeak / time >= min ? 0 : 1;
}
