// Compares instructions on registers with values from the PTX ISA and IEEE 754.
#include "Scalars.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace zorse::emulator::ptx;

namespace {

uint64_t compute(const std::string &opcode, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  const ScalarOperation *operation = findScalar(opcode);
  EXPECT_TRUE(operation) << opcode;
  return operation ? operation->function(a, b, c) : 0;
}
uint64_t real(float x) { return bits(x); }
uint64_t real(double x) { return bits(x); }

constexpr uint64_t kInfinity = 0x7f800000, kNaN = 0x7fc00000;

} // namespace

TEST(PtxIntegers, WrapAround) {
  EXPECT_EQ(compute("add.s32", 0x7fffffff, 1), 0x80000000u);
  EXPECT_EQ(compute("add.s16", 0xffff, 2), 1u);
  EXPECT_EQ(compute("sub.s64", 0, 1), ~uint64_t(0));
  EXPECT_EQ(compute("mul.lo.s32", 0x10000, 0x10000), 0u);
  EXPECT_EQ(compute("mad.lo.s32", 0xffffffff, 3, 5), 2u);
  EXPECT_EQ(compute("neg.s32", 0x80000000), 0x80000000u);
}

TEST(PtxIntegers, KnowTheirSign) {
  EXPECT_EQ(compute("mul.hi.u32", 0xffffffff, 2), 1u);
  EXPECT_EQ(compute("mul.hi.s32", 0xffffffff, 2), 0xffffffffu);
  EXPECT_EQ(compute("mul.hi.u64", ~uint64_t(0), 4), 3u);
  EXPECT_EQ(compute("mul.wide.u32", 0xffffffff, 2), 0x1fffffffeu);
  EXPECT_EQ(compute("mul.wide.s32", 0xffffffff, 2), ~uint64_t(1));
  EXPECT_EQ(compute("mul.wide.u16", 0xffff, 0xffff), 0xfffe0001u);
  EXPECT_EQ(compute("setp.lt.s32", 0xffffffff, 0), 1u);
  EXPECT_EQ(compute("setp.lt.u32", 0xffffffff, 0), 0u);
  EXPECT_EQ(compute("min.s32", 0xffffffff, 1), 0xffffffffu);
  EXPECT_EQ(compute("min.u32", 0xffffffff, 1), 1u);
  EXPECT_EQ(compute("div.s32", 0xfffffff9, 2), 0xfffffffdu); // -7 / 2 = -3
  EXPECT_EQ(compute("rem.s32", 0xfffffff9, 2), 0xffffffffu);
}

TEST(PtxIntegers, ShiftsAreClamped) {
  EXPECT_EQ(compute("shl.b32", 1, 31), 0x80000000u);
  EXPECT_EQ(compute("shl.b32", 1, 32), 0u);
  EXPECT_EQ(compute("shl.b32", 1, 0xffffffff), 0u);
  EXPECT_EQ(compute("shr.u32", 0x80000000, 40), 0u);
  EXPECT_EQ(compute("shr.s32", 0x80000000, 40), 0xffffffffu);
  EXPECT_EQ(compute("shr.s64", 0x8000000000000000, 63), ~uint64_t(0));
  EXPECT_EQ(compute("shr.u16", 0x8000, 15), 1u);
}

TEST(PtxIntegers, BitsAndBytes) {
  EXPECT_EQ(compute("bfe.u32", 0x12345678, 8, 8), 0x56u);
  EXPECT_EQ(compute("bfe.u32", 0x12345678, 28, 8), 1u);
  EXPECT_EQ(compute("bfe.u32", 0x12345678, 4, 0), 0u);
  EXPECT_EQ(compute("bfe.u64", 0xf0, 4, 2), 3u);
  EXPECT_EQ(compute("prmt.b32", 0x33221100, 0x77665544, 0x7632), 0x77663322u);
  EXPECT_EQ(compute("prmt.b32", 0x33221100, 0x77665544, 0x5410), 0x55441100u);
  EXPECT_EQ(compute("prmt.b32", 0x00008000, 0, 0x0009),
            0x000000ffu); // the sign of byte 1, then three times byte 0
  EXPECT_EQ(compute("popc.b32", 0xf0f0), 8u);
  EXPECT_EQ(compute("popc.b64", ~uint64_t(0)), 64u);
  EXPECT_EQ(compute("clz.b32", 1), 31u);
  EXPECT_EQ(compute("clz.b64", 0), 64u);
  EXPECT_EQ(compute("not.b16", 0x00ff), 0xff00u);
  EXPECT_EQ(compute("selp.b32", 5, 6, 0), 6u);
  EXPECT_EQ(compute("not.pred", 1), 0u);
}

TEST(PtxFloats, AreRoundedAsTheySay) {
  EXPECT_EQ(compute("add.rn.f32", real(1.0f), real(0x1p-24f)),
            real(1.0f)); // a tie, rounded to even
  EXPECT_EQ(compute("add.rp.f32", real(1.0f), real(0x1p-24f)), real(1.0f + 0x1p-23f));
  EXPECT_EQ(compute("add.rz.f32", real(-1.0f), real(-0x1.8p-23f)), real(-1.0f - 0x1p-23f));
  EXPECT_EQ(compute("add.rm.f32", real(-1.0f), real(-0x1p-30f)), real(-1.0f - 0x1p-23f));
  EXPECT_EQ(compute("mul.rz.f32", real(1.0f + 0x1p-23f), real(1.0f + 0x1p-23f)),
            real(1.0f + 0x1p-22f));
  EXPECT_EQ(compute("div.rn.f32", real(1.0f), real(3.0f)), real(0x1.555556p-2f));
  EXPECT_EQ(compute("div.rz.f32", real(1.0f), real(3.0f)), real(0x1.555554p-2f));
  EXPECT_EQ(compute("sqrt.rn.f32", real(2.0f)), real(0x1.6a09e6p+0f));
  EXPECT_EQ(compute("sqrt.rp.f32", real(2.0f)), real(0x1.6a09e8p+0f));
  EXPECT_EQ(compute("rcp.rn.f64", real(3.0)), real(1.0 / 3.0));
  EXPECT_EQ(compute("add.f64", real(1.0), real(0x1p-53)), real(1.0));
}

TEST(PtxFloats, FmaIsRoundedOnce) {
  const float x = 1.0f + 0x1p-12f; // x x = 1 + 2^-11 + 2^-24, which f32 rounds
  EXPECT_EQ(compute("mul.rn.f32", real(x), real(x)), real(1.0f + 0x1p-11f));
  EXPECT_EQ(compute("fma.rn.f32", real(x), real(x), real(-1.0f - 0x1p-11f)), real(0x1p-24f));
}

TEST(PtxFloats, NaNIsCanonical) {
  EXPECT_EQ(compute("add.rn.f32", kInfinity, kInfinity | 0x80000000), kNaN32);
  EXPECT_EQ(compute("mul.f32", kInfinity, 0), kNaN32);
  EXPECT_EQ(compute("fma.rn.f32", 0xffc12345, real(1.0f), real(1.0f)), kNaN32);
  EXPECT_EQ(compute("sqrt.rn.f32", real(-1.0f)), kNaN32);
  EXPECT_EQ(compute("max.NaN.f32", kNaN, real(1.0f)), kNaN32);
  EXPECT_EQ(compute("cvt.rn.bf16.f32", kNaN), kNaN16);
  EXPECT_EQ(compute("cvt.rn.f16.f32", 0xffc00001), kNaN16);
}

TEST(PtxFloats, MinimumAndMaximum) {
  EXPECT_EQ(compute("max.f32", kNaN, real(1.0f)), real(1.0f));
  EXPECT_EQ(compute("max.f32", kNaN, kNaN), kNaN32);
  EXPECT_EQ(compute("max.f32", real(-0.0f), real(0.0f)), real(0.0f));
  EXPECT_EQ(compute("min.f32", real(0.0f), real(-0.0f)), real(-0.0f));
  EXPECT_EQ(compute("max.NaN.f16", 0x3c00, 0xbc00), 0x3c00u);
}

TEST(PtxFloats, SubnormalsAreFlushedWhereTheySay) {
  const float tiny = 0x1p-127f;
  EXPECT_EQ(compute("add.rn.f32", real(tiny), real(0.0f)), real(tiny));
  EXPECT_EQ(compute("add.rn.ftz.f32", real(tiny), real(0.0f)), real(0.0f));
  EXPECT_EQ(compute("mul.rn.ftz.f32", real(-0x1p-100f), real(0x1p-27f)), real(-0.0f));
  EXPECT_EQ(compute("ex2.approx.ftz.f32", real(-127.0f)), real(0.0f));
  EXPECT_EQ(compute("ex2.approx.f32", real(-127.0f)), real(tiny));
  EXPECT_EQ(compute("rcp.approx.ftz.f32", real(tiny)), kInfinity);
}

TEST(PtxFloats, ComparisonsKnowNaN) {
  for (const char *ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    EXPECT_EQ(compute(std::string("setp.") + ordered + ".f32", kNaN, real(1.0f)), 0u) << ordered;
  for (const char *unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    EXPECT_EQ(compute(std::string("setp.") + unordered + ".f32", kNaN, real(1.0f)), 1u)
        << unordered;
  EXPECT_EQ(compute("setp.ne.f64", real(1.0), real(2.0)), 1u);
  EXPECT_EQ(compute("setp.ltu.f64", real(2.0), real(1.0)), 0u);
  EXPECT_EQ(compute("setp.eq.f32", real(0.0f), real(-0.0f)), 1u);
}

TEST(PtxFloats, TwoInARegister) {
  const uint64_t pair = real(2.0f) << 32 | real(1.0f);
  EXPECT_EQ(compute("add.rn.f32x2", pair, pair), real(4.0f) << 32 | real(2.0f));
  EXPECT_EQ(compute("fma.rn.f32x2", pair, pair, pair), real(6.0f) << 32 | real(2.0f));
}

TEST(PtxFloats, MixedTypes) {
  EXPECT_EQ(compute("add.rn.f32.f16", 0x0001, real(1.0f)), real(1.0f)); // 2^-24 is a tie
  EXPECT_EQ(compute("sub.rn.f32.bf16", 0x4000, real(0.5f)), real(1.5f));
  EXPECT_EQ(compute("fma.rn.f32.f16", 0x3c01, 0x3c01, real(-1.0f)), real(0x1p-9f + 0x1p-20f));
}

TEST(PtxFloats, ProductsAndSumsOf16BitsAreRoundedOnce) {
  EXPECT_EQ(compute("fma.rn.bf16", 0x3f80, 0x3f80, 0x3b80), 0x3f80u); // 1 + 2^-8, a tie
  EXPECT_EQ(compute("fma.rn.bf16", 0x3f88, 0x3f88, 0x0000), 0x3f90u); // 1.0625^2 is also a tie
  EXPECT_EQ(compute("fma.rn.bf16", 0x3f88, 0x3f88, 0x0d80),
            0x3f91u); // no tie after 2^-100 is added
  EXPECT_EQ(compute("fma.rn.bf16", 0x3f88, 0x3f88, 0x8d80), 0x3f90u);
  EXPECT_EQ(compute("fma.rn.bf16", 0x3fa8, 0x3f98, 0x0d80),
            compute("fma.rn.bf16", 0x3fa8, 0x3f98, 0x0000));
  EXPECT_EQ(compute("fma.rn.bf16", 0x7f00, 0x4000, 0x0000), 0x7f80u); // 2^127 twice
  EXPECT_EQ(compute("fma.rn.bf16", 0x8000, 0x3f80, 0x8000), 0x8000u);
  EXPECT_EQ(compute("fma.rn.bf16", 0x7f80, 0x0000, 0x3f80), kNaN16);
  EXPECT_EQ(compute("fma.rn.bf16x2", 0x3f884000, 0x3f883f80, 0x0d803f80), 0x3f914040u);
}

TEST(PtxFloats, Signs) {
  EXPECT_EQ(compute("neg.f32", real(0.0f)), real(-0.0f));
  EXPECT_EQ(compute("abs.f64", real(-2.0)), real(2.0));
  EXPECT_EQ(compute("copysign.f32", real(-1.0f), real(3.0f)),
            real(-3.0f)); // the sign of the first operand, the magnitude of the second
}

TEST(PtxConversions, NumbersOf16Bits) {
  EXPECT_EQ(compute("cvt.rn.bf16.f32", real(1.0f + 0x1p-8f)), 0x3f80u); // a tie, rounded to even
  EXPECT_EQ(compute("cvt.rn.bf16.f32", real(1.0f + 0x1.8p-7f)), 0x3f82u);
  EXPECT_EQ(compute("cvt.rz.bf16.f32", real(1.0f + 0x1.fp-8f)), 0x3f80u);
  EXPECT_EQ(compute("cvt.rn.bf16.f32", 0x7f7fffff),
            0x7f80u); // the largest f32 is rounded to infinity
  EXPECT_EQ(compute("cvt.rz.bf16.f32", 0x7f7fffff), 0x7f7fu);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(65519.0f)), 0x7bffu);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(65520.0f)), 0x7c00u);
  EXPECT_EQ(compute("cvt.rz.f16.f32", real(1e9f)), 0x7bffu);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(0x1p-24f)), 1u);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(0x1p-25f)), 0u);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(0x1.8p-25f)), 1u);
  EXPECT_EQ(compute("cvt.rn.f16.f32", real(-0x1.8p-24f)), 0x8002u);
  EXPECT_EQ(compute("cvt.rn.f16.f32", kInfinity), 0x7c00u);
  EXPECT_EQ(compute("cvt.f32.f16", 0x0001), real(0x1p-24f));
  EXPECT_EQ(compute("cvt.f32.f16", 0xc000), real(-2.0f));
  EXPECT_EQ(compute("cvt.f32.bf16", 0x4049), 0x40490000u);
  EXPECT_EQ(compute("cvt.rn.bf16x2.f32", real(2.0f), real(1.0f)),
            0x40003f80u); // the first operand is the upper half
  EXPECT_EQ(compute("cvt.rn.f16x2.f32", real(2.0f), real(1.0f)), 0x40003c00u);
  EXPECT_EQ(compute("add.rn.f16x2", 0x3c003c00, 0x3c00c000), 0x4000bc00u);
  // Every f16 is unchanged after conversion to f32 and back.
  for (uint32_t half = 0; half < 0x7c00; ++half)
    ASSERT_EQ(compute("cvt.rn.f16.f32", compute("cvt.f32.f16", half)), half);
}

TEST(PtxConversions, Integers) {
  EXPECT_EQ(compute("cvt.rzi.s32.f32", real(-1.9f)), 0xffffffffu);
  EXPECT_EQ(compute("cvt.rni.s32.f32", real(2.5f)), 2u);
  EXPECT_EQ(compute("cvt.rmi.f32.f32", real(-1.5f)), real(-2.0f));
  EXPECT_EQ(compute("cvt.rzi.s32.f32", real(1e20f)), 0x7fffffffu);
  EXPECT_EQ(compute("cvt.rzi.u32.f32", real(-5.0f)), 0u);
  EXPECT_EQ(compute("cvt.rzi.s32.f32", kNaN), 0u);
  EXPECT_EQ(compute("cvt.rzi.s64.f64", real(-1e300)), 0x8000000000000000u);
  EXPECT_EQ(compute("cvt.rn.f32.s32", 0xffffffff), real(-1.0f));
  EXPECT_EQ(compute("cvt.rn.f32.u32", 0xffffffff), real(4294967296.0f));
  EXPECT_EQ(compute("cvt.rn.f32.f64", real(1.0 + 0x1p-24)), real(1.0f));
  EXPECT_EQ(compute("cvt.rz.f32.f64", real(1.0 - 0x1p-30)), real(1.0f - 0x1p-24f));
  EXPECT_EQ(compute("cvt.s32.s16", 0x1ffff), 0xffffffffu);
  EXPECT_EQ(compute("cvt.u32.u16", 0x1ffff), 0xffffu);
  EXPECT_EQ(compute("cvt.u16.u64", 0x12345), 0x2345u);
}

TEST(PtxScalars, WhatIsNotKnownIsNotThere) {
  for (const char *opcode : {"add.s32.sat", "add.sat.s32", "mul.f32.rn", "cvt.bf16x2.f32",
                             "setp.lt.b32", "fma.f32", "sin.approx.f32", "div.full.f32"})
    EXPECT_FALSE(findScalar(opcode)) << opcode;
}
