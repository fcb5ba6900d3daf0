// Tests short kernels: the values that they write, and the findings.
#include "PtxHarness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

using namespace zorse::test;

namespace {

const char *kStore = "add.s64 %rd4, %rd1, %rd3;\nst.global.b32 [%rd4], %r2;";
const char *kTile = ".shared .align 16 .b8 tile[512];\n";
/// %rd5: the thread's word of the tile
const char *kPlace = "mov.b64 %rd6, tile;\nadd.s64 %rd5, %rd6, %rd3;\n";

/// Expects that `text` gives this finding under several orders.
void expectFinding(const std::string &kind, const std::string &text, PtxGrid grid = {}) {
  for (grid.seed = 1; grid.seed <= 8; ++grid.seed) {
    const PtxRun run = runPtx(text, grid);
    EXPECT_TRUE(run.hasOnly(kind)) << "seed " << grid.seed << ": " << run.first();
  }
}
PtxRun expectNothing(const std::string &text, PtxGrid grid = {}) {
  PtxRun run;
  for (grid.seed = 1; grid.seed <= 8; ++grid.seed) {
    run = runPtx(text, grid);
    EXPECT_TRUE(run.findings.empty()) << "seed " << grid.seed << ": " << run.first();
  }
  return run;
}

uint32_t wordOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

} // namespace

TEST(PtxText, UnknownIsRefused) {
  for (const char *line : {"frobnicate.b32 %r2, %r1;", "add.s32.odd %r2, %r1, 1;",
                           "ld.global.L1::evict_last.b32 %r2, [%rd2];", ".local .b8 depot[8];",
                           "bar.sync 1;", "mov.u32 %r2, %clock;", "st.local.b32 [%rd1], %r1;",
                           "bra nowhere;", "ld.shared.v4.b64 {%rd1, %rd1, %rd1, %rd1}, [%rd2];"}) {
    const PtxRun run = runPtx(ptxKernel(line));
    EXPECT_EQ(run.first().rfind("PTX: line ", 0), 0u) << line << ": " << run.first();
  }
  EXPECT_EQ(runPtx(ptxKernel("", ".weak .global .b8 x[4];\n")).first().rfind("PTX: ", 0), 0u);
}

TEST(PtxText, WidthsOfRegistersMatter) {
  EXPECT_NE(runPtx(ptxKernel("add.s32 %r2, %rd1, 1;")).first(), "");
  EXPECT_NE(runPtx(ptxKernel("setp.eq.b32 %r2, %r1, 1;")).first(), "");
  EXPECT_NE(runPtx(ptxKernel("ld.global.b64 %r2, [%rd2];")).first(), "");
}

TEST(PtxText, BracesDeclareNames) {
  const PtxRun run = expectNothing(ptxKernel(
      std::string("mov.b64 %rd7, 0x500000003;\n{ .reg .b32 tmp; mov.b64 {tmp, %r2}, %rd7; }\n"
                  "{ .reg .b32 tmp; mov.b64 {%r3, tmp}, %rd7; }\nadd.s32 %r2, %r2, %r3;\n") +
      kStore));
  EXPECT_EQ(run.out[7], 8u);
}

TEST(PtxLaunch, ThreadsWriteTheirNumbers) {
  PtxGrid grid;
  grid.threads = 64;
  grid.blocks = 3;
  grid.out = 192;
  const PtxRun run = expectNothing(
      ptxKernel(
          "mov.u32 %r3, %ctaid.x;\nmad.lo.s32 %r2, %r3, 64, %r1;\nmul.wide.u32 %rd3, %r2, 4;\n" +
          std::string(kStore)),
      grid);
  for (uint32_t i = 0; i < 192; ++i)
    EXPECT_EQ(run.out[i], i);
}

TEST(PtxLaunch, LoopsAndBranchesDiverge) { // thread t adds the numbers from 1 to t
  const PtxRun run = expectNothing(ptxKernel(
      "mov.b32 %r2, 0;\nmov.b32 %r3, 0;\nLOOP:\nadd.s32 %r3, %r3, 1;\nadd.s32 %r2, %r2, %r3;\n"
      "setp.lt.u32 %p1, %r3, %r1;\n@%p1 bra LOOP;\n" +
      std::string(kStore)));
  for (uint32_t i = 1; i < 32; ++i)
    EXPECT_EQ(run.out[i], i * (i + 1) / 2);
}

TEST(PtxLaunch, PackAndUnpack) {
  const PtxRun run = expectNothing(ptxKernel("cvt.u16.u32 %rs1, %r1;\nmov.b16 %rs2, 7;\nmov.b32 "
                                             "%r3, {%rs1, %rs2};\nmov.b32 {_, %rs3}, %r3;\n"
                                             "mov.b32 %r2, {%rs3, %rs1};\n" +
                                             std::string(kStore)));
  EXPECT_EQ(run.out[5], 5u << 16 | 7);
}

TEST(PtxMemory, BoundsAndAlignment) {
  expectFinding("out of bounds",
                ptxKernel(std::string("mov.b32 %r2, 1;\nadd.s64 %rd3, %rd3, 4;\n") + kStore));
  expectFinding("out of bounds",
                ptxKernel("st.global.b32 [%rd2], %r1;")); // `in` is read-only and empty
  expectFinding("misaligned", ptxKernel("ld.global.v2.b32 {%r2, %r3}, [%rd1+4];"));
  expectFinding("out of bounds",
                ptxKernel("mov.b64 %rd6, tile;\nst.shared.b32 [%rd6+512], %r1;", kTile));
  expectFinding("out of bounds", ptxKernel("mov.b64 %rd6, tile;\nst.global.b32 [%rd6], %r1;",
                                           kTile)); // another state space
}

TEST(PtxMemory, UndefinedValuesAreFoundWhereTheyMatter) {
  expectFinding("undefined", ptxKernel(kStore));                  // a register that was not written
  expectFinding("undefined", ptxKernel("@%p1 bra END;\nEND:\n")); // a guard
  expectFinding("undefined", ptxKernel("st.global.b32 [%rd9], %r1;")); // an address
  expectFinding("undefined",
                ptxKernel(std::string(kPlace) + "ld.shared.b32 %r2, [%rd5];\n" + kStore,
                          kTile)); // shared memory
  PtxGrid grid;
  grid.outIsDefined = false;
  expectFinding(
      "undefined",
      ptxKernel(std::string("add.s64 %rd4, %rd1, %rd3;\nld.global.b32 %r2, [%rd4];\n") + kStore),
      grid);
  // Bits without effect may be undefined.
  expectNothing(ptxKernel(std::string("and.b32 %r2, %r9, 0;\n") + kStore));
  expectNothing(ptxKernel(
      std::string("mov.b16 %rs1, 3;\nmov.b32 %r3, {%rs1, %rs9};\nand.b32 %r2, %r3, 255;\n") +
      kStore));
  expectNothing(
      ptxKernel(std::string("setp.lt.u32 %p1, %r1, 99;\nselp.b32 %r2, 1, %r9, %p1;\n") + kStore));
  expectNothing(ptxKernel(
      std::string(kPlace) + "ld.shared.b32 %r3, [%rd5];\nmov.b32 %r2, 1;\n" + kStore, kTile));
}

TEST(PtxMemory, UnusedBytesOfALoadAreUndefined) {
  const std::string load =
      ".pragma \"used_bytes_mask 0xf\";\nld.global.v2.b32 {%r2, %r3}, [%rd1];\n";
  const std::string place = "shl.b64 %rd3, %rd3, 2;\nadd.s64 %rd4, %rd1, %rd3;\n";
  PtxGrid grid;
  grid.out = 128;
  expectNothing(ptxKernel(load + place + "st.global.b32 [%rd4+8], %r2;"), grid);
  expectFinding("undefined", ptxKernel(load + place + "st.global.b32 [%rd4+8], %r3;"), grid);
  EXPECT_EQ(runPtx(ptxKernel(".pragma \"used_bytes_mask 0xf\";\nmov.b32 %r2, 1;"))
                .first()
                .rfind("PTX: line ", 0),
            0u);
  EXPECT_EQ(runPtx(ptxKernel(".pragma \"unroll 4\";")).first().rfind("PTX: line ", 0), 0u);
}

TEST(PtxMemory, RacesAreFound) {
  const std::string write = std::string(kPlace) + "st.shared.b32 [%rd5], %r1;\n",
                    read = "xor.b32 %r3, %r1, 33;\nmul.wide.u32 %rd7, %r3, 4;\n"
                           "add.s64 %rd8, %rd6, %rd7;\nld.shared.b32 %r2, [%rd8];\n";
  PtxGrid grid;
  grid.threads = 64;
  grid.out = 64;
  expectFinding("race", ptxKernel(write + read + "mov.b32 %r2, 0;\n" + kStore, kTile), grid);
  expectFinding(
      "race", ptxKernel(write + "bar.warp.sync -1;\n" + read + "mov.b32 %r2, 0;\n" + kStore, kTile),
      grid); // a word of the other warp
  const PtxRun run = expectNothing(ptxKernel(write + "bar.sync 0;\n" + read + kStore, kTile), grid);
  EXPECT_EQ(run.out[2], 35u);
  // A write after reads.
  expectFinding("race",
                ptxKernel(write + "bar.sync 0;\n" + read + "st.shared.b32 [%rd5], %r2;\n", kTile),
                grid);
  expectNothing(
      ptxKernel(write + "bar.sync 0;\n" + read + "bar.sync 0;\nst.shared.b32 [%rd5], %r2;\n",
                kTile),
      grid);
  // All threads write one word.
  expectFinding("race", ptxKernel("st.global.b32 [%rd1], %r1;"));
}

TEST(PtxMemory, AWarpOrdersItself) {
  const std::string write = std::string(kPlace) + "st.shared.b32 [%rd5], %r1;\n",
                    read = "xor.b32 %r3, %r1, 1;\nmul.wide.u32 %rd7, %r3, 4;\n"
                           "add.s64 %rd8, %rd6, %rd7;\nld.shared.b32 %r2, [%rd8];\n";
  const PtxRun run = expectNothing(ptxKernel(write + "bar.warp.sync -1;\n" + read + kStore, kTile));
  EXPECT_EQ(run.out[2], 3u);
  // A shuffle of registers does not order memory accesses.
  expectFinding("race", ptxKernel(write + "shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;\n" + read +
                                      "mov.b32 %r2, 0;\n" + kStore,
                                  kTile));
}

TEST(PtxMemory, ConstantLoadsSeeNoWrites) {
  expectFinding("race", ptxKernel(std::string("mov.b32 %r2, 1;\n") + kStore +
                                  "\nld.global.nc.b32 %r3, [%rd4];"));
}

TEST(PtxMemory, CopiesComeWhenTheyAreWaitedFor) {
  PtxGrid grid;
  for (uint32_t i = 0; i < 128; ++i)
    grid.in.push_back(1000 + i);
  const std::string
      copy = std::string(kPlace) +
             "shl.b64 %rd7, %rd3, 2;\nadd.s64 %rd8, %rd6, %rd7;\nadd.s64 %rd9, %rd2, %rd7;\n"
             "cp.async.cg.shared.global [%rd8], [%rd9], 16;\n",
      commit = "cp.async.commit_group;\n";
  const std::string read = "ld.shared.b32 %r2, [%rd8];\n";
  EXPECT_EQ(expectNothing(
                ptxKernel(copy + commit + "cp.async.wait_group 0;\n" + read + kStore, kTile), grid)
                .out[3],
            1012u);
  expectFinding("race", ptxKernel(copy + commit + read + "mov.b32 %r2, 0;\n" + kStore, kTile),
                grid);
  expectFinding(
      "race",
      ptxKernel(copy + commit + "cp.async.wait_group 1;\n" + read + "mov.b32 %r2, 0;\n" + kStore,
                kTile),
      grid);
  expectFinding(
      "race",
      ptxKernel(copy + "cp.async.wait_group 0;\n" + read + "mov.b32 %r2, 0;\n" + kStore, kTile),
      grid); // not committed
  // Reading another thread's copy also needs a barrier.
  const std::string other =
      "xor.b32 %r3, %r1, 1;\nmul.wide.u32 %rd7, %r3, 16;\nadd.s64 %rd8, %rd6, %rd7;\n";
  expectFinding("race",
                ptxKernel(copy + commit + "cp.async.wait_group 0;\n" + other + read +
                              "mov.b32 %r2, 0;\n" + kStore,
                          kTile),
                grid);
  EXPECT_EQ(expectNothing(ptxKernel(copy + commit + "cp.async.wait_group 0;\nbar.sync 0;\n" +
                                        other + read + kStore,
                                    kTile),
                          grid)
                .out[3],
            1008u);
  // Bytes that are not copied are 0.
  const std::string part =
      std::string(kPlace) +
      "shl.b64 %rd7, %rd3, 2;\nadd.s64 %rd8, %rd6, %rd7;\nadd.s64 %rd9, %rd2, %rd7;\n"
      "mov.b32 %r4, 8;\ncp.async.cg.shared.global [%rd8], [%rd9], 16, %r4;\n";
  EXPECT_EQ(
      expectNothing(ptxKernel(part + commit +
                                  "cp.async.wait_group 0;\nld.shared.b32 %r2, [%rd8+4];\n" + kStore,
                              kTile),
                    grid)
          .out[3],
      1013u);
  EXPECT_EQ(
      expectNothing(ptxKernel(part + commit +
                                  "cp.async.wait_group 0;\nld.shared.b32 %r2, [%rd8+8];\n" + kStore,
                              kTile),
                    grid)
          .out[3],
      0u);
}

TEST(PtxWarp, BarriersThatSomeDoNotReach) {
  PtxGrid grid;
  grid.threads = 64;
  expectFinding("divergent",
                ptxKernel("setp.lt.u32 %p1, %r1, 40;\n@%p1 bra END;\nbar.sync 0;\nEND:\n"), grid);
  expectFinding("divergent",
                ptxKernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra OTHER;\nbar.sync 0;\nbra "
                          "END;\nOTHER:\nbar.sync 0;\nEND:\n"),
                grid);
  expectFinding("divergent",
                ptxKernel("setp.lt.u32 %p1, %r1, 40;\n@%p1 bra END;\nshfl.sync.bfly.b32 %r2, %r1, "
                          "1, 31, -1;\nEND:\n"),
                grid);
  expectFinding("no end", ptxKernel("LOOP:\nbra LOOP;\n"), PtxGrid());
}

TEST(PtxWarp, Exchange) {
  EXPECT_EQ(
      expectNothing(ptxKernel(std::string("shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;\n") + kStore))
          .out[8],
      13u);
  // Segments of 8 lanes (24 in the upper bits): a lane with its source outside the segment keeps
  // its own value.
  EXPECT_EQ(
      expectNothing(ptxKernel(std::string("shfl.sync.bfly.b32 %r2, %r1, 8, 6175, -1;\n") + kStore))
          .out[1],
      1u);
  EXPECT_EQ(
      expectNothing(
          ptxKernel(std::string("setp.lt.u32 %p1, %r1, 3;\nvote.sync.ballot.b32 %r2, %p1, -1;\n") +
                    kStore))
          .out[9],
      7u);
}

TEST(PtxWarp, MatricesAreMultiplied) {
  // A(r, c) = r - c and B(k, n) = k + 2 n as f16 in global memory, row by row; C = 1.
  PtxGrid grid;
  auto half = [](int x) { // for small integers
    if (x == 0)
      return 0u;
    const auto size = unsigned(std::abs(x));
    const auto log = unsigned(std::ilogb(double(size)));
    return (x < 0 ? 0x8000u : 0u) | (15 + log) << 10 | ((size << 10 >> log) & 1023);
  };
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; c += 2)
      grid.in.push_back(half(r - c) | half(r - c - 1) << 16);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; n += 2)
      grid.in.push_back(half(k + 2 * n) | half(k + 2 * n + 2) << 16);
  grid.out = 128;
  // Copy 4 words of A and 2 of B per thread to shared memory. ldmatrix loads A directly and B
  // transposed.
  const std::string text =
      ptxKernel("mov.b64 %rd6, tile;\nshl.b64 %rd7, %rd3, 2;\nadd.s64 %rd8, %rd2, %rd7;\nadd.s64 "
                "%rd9, %rd6, %rd7;\n"
                "cp.async.cg.shared.global [%rd9], [%rd8], 16;\nshl.b64 %rd7, %rd3, 1;\nadd.s64 "
                "%rd8, %rd2, %rd7;\nadd.s64 %rd9, %rd6, %rd7;\n"
                "cp.async.ca.shared.global [%rd9+512], [%rd8+512], "
                "8;\ncp.async.commit_group;\ncp.async.wait_group 0;\nbar.warp.sync -1;\n"
                // Row t mod 16 and column 8 (t / 16) of A; rows of B, twice.
                "and.b32 %r3, %r1, 15;\nshr.u32 %r4, %r1, 4;\nmul.lo.s32 %r5, %r3, 32;\nmad.lo.s32 "
                "%r5, %r4, 16, %r5;\ncvt.u64.u32 %rd10, %r5;\n"
                "add.s64 %rd11, %rd6, %rd10;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, "
                "%r11, %r12, %r13}, [%rd11];\n"
                "mul.wide.u32 %rd12, %r3, 16;\nadd.s64 %rd13, %rd6, %rd12;\n"
                "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14, %r15, %r16, %r17}, "
                "[%rd13+512];\nmov.b32 %r20, 0f3F800000;\n"
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r21, %r22, %r23, %r24}, "
                "{%r10, %r11, %r12, %r13}, {%r14, %r15}, "
                "{%r20, %r20, %r20, %r20};\n"
                // Rows t / 4 and t / 4 + 8, columns 2 (t mod 4) and the next.
                "shr.u32 %r3, %r1, 2;\nand.b32 %r4, %r1, 3;\nmul.lo.s32 %r5, %r3, 32;\nmad.lo.s32 "
                "%r5, %r4, 8, %r5;\ncvt.u64.u32 %rd10, %r5;\n"
                "add.s64 %rd14, %rd1, %rd10;\nst.global.v2.b32 [%rd14], {%r21, "
                "%r22};\nst.global.v2.b32 [%rd14+256], {%r23, %r24};",
                ".shared .align 16 .b8 tile[768];\n");
  const PtxRun run = expectNothing(text, grid);
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      int sum = 1;
      for (int k = 0; k < 16; ++k)
        sum += (r - k) * (k + 2 * n);
      EXPECT_EQ(run.out[size_t(r * 8 + n)], wordOf(float(sum))) << r << ", " << n;
    }
}

namespace {

/// Every block stores a number; the last one adds them.
std::string lastBlock(const std::string &release, const std::string &acquire) {
  return ptxKernel(
      "mov.u32 %r3, %ctaid.x;\nmul.wide.u32 %rd7, %r3, 4;\nmov.b64 %rd8, parts;\nadd.s64 %rd9, "
      "%rd8, %rd7;\n"
      "setp.ne.b32 %p1, %r1, 0;\n@%p1 bra END;\nadd.s32 %r4, %r3, 10;\nst.global.b32 [%rd9], "
      "%r4;\n" +
          release +
          "mov.b64 %rd10, counter;\natom.global.inc.u32 %r5, [%rd10], 2;\nsetp.ne.b32 %p2, %r5, "
          "2;\n@%p2 bra END;\n" +
          acquire +
          "ld.volatile.global.b32 %r6, [%rd8];\nld.volatile.global.b32 %r7, "
          "[%rd8+4];\nld.volatile.global.b32 %r8, [%rd8+8];\n"
          "add.s32 %r6, %r6, %r7;\nadd.s32 %r6, %r6, %r8;\nst.global.b32 [%rd1], %r6;\nEND:\n",
      ".global .align 16 .b8 counter[4];\n.global .align 16 .b8 parts[12];\n");
}

} // namespace

TEST(PtxMemory, BlocksAreOrderedByFencesAndACounter) {
  PtxGrid grid;
  grid.blocks = 3;
  EXPECT_EQ(expectNothing(lastBlock("fence.acq_rel.gpu;\n", "fence.acq_rel.gpu;\n"), grid).out[0],
            33u);
  EXPECT_EQ(expectNothing(lastBlock("membar.gl;\n", "membar.gl;\n"), grid).out[0], 33u);
  expectFinding("race", lastBlock("", "fence.acq_rel.gpu;\n"), grid);
  expectFinding("race", lastBlock("fence.acq_rel.gpu;\n", ""), grid);
}
