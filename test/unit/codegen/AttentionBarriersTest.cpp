// Every barrier, wait and shuffle of the attention kernels is needed: each is removed in turn, and
// the emulator must report a finding or compute other numbers. With these sizes, every schedule has
// several tiles, and the last tile is partial.
#include "CodegenHarness.h"
#include "EmulatedFunction.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace zorse;
using emulator::HostCode;
using emulator::PlantedBug;

namespace {

/// A forward and a backward with head size `size`.
std::string functions(int size, int queries, int heads, int keyHeads,
                      const std::string &attributes) {
  auto tensor = [&](int count) {
    return "tensor<?x" + std::to_string(queries) + "x" + std::to_string(count) + "x" +
           std::to_string(size) + "xbf16>";
  };
  const std::string q = tensor(heads), k = tensor(keyHeads),
                    lse = "tensor<?x" + std::to_string(heads) + "x" + std::to_string(queries) +
                          "xf32>";
  return "func.func @f(%q: " + q + " {@@boundary_in0}, %k: " + k + " {@@boundary_in1}, %v: " + k +
         " {@@boundary_in2}, %do: " + q + " {@@boundary_in3}) -> (" + q + " {@@boundary_out0}, " +
         lse + " {@@boundary_out1}, " + q + " {@@boundary_out2}, " + k + " {@@boundary_out3}, " +
         k + " {@@boundary_out4}) {\n  %o, %l = zorse.attention %q, %k, %v {" + attributes +
         "} : (" + q + ", " + k + ", " + k + ") -> (" + q + ", " + lse +
         ")\n  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {" + attributes +
         "} : (" + q + ", " + q + ", " + k + ", " + k + ", " + q + ", " + lse + ") -> (" + q +
         ", " + k + ", " + k + ")\n  return %o, %l, %dq, %dk, %dv : " + q + ", " + lse + ", " + q +
         ", " + k + ", " + k + "\n}\n";
}

struct Line {
  alignas(128) char bytes[128];
};

struct Outcome {
  std::vector<std::string> findings;
  std::string results;
};

Outcome run(const HostCode &code, runtime::CpuDevice &products,
            const bundle::CompiledFunction &function) {
  std::vector<std::vector<Line>> buffers;
  emulator::EmulatedCall call{
      1, 0, 0, {}, std::vector<uint8_t>(size_t(function.arguments_size()), 1)};
  std::mt19937 random(7); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
  std::normal_distribution<float> normal;
  for (const bundle::FunctionArgument &argument : function.arguments()) {
    const auto bytes = size_t(argument.bytes().fixed() + argument.bytes().per_row());
    std::vector<Line> &buffer = buffers.emplace_back(bytes / sizeof(Line) + 2);
    call.arguments.push_back(buffer.data()->bytes);
    for (size_t i = 0; argument.type() == bundle::BF16 && i < bytes / 2; ++i) {
      const float x = normal(random);
      std::memcpy(call.arguments.back() + 2 * i, reinterpret_cast<const char *>(&x) + 2, 2);
    }
  }
  Outcome out;
  out.findings = emulator::runFunction(code, products, function, call);
  for (int s = 0; s < function.arguments_size(); ++s)
    if (const bundle::FunctionArgument &argument = function.arguments(s);
        argument.mode() != bundle::READ && argument.kind() != bundle::WORKSPACE)
      out.results.append(call.arguments[size_t(s)],
                         size_t(argument.bytes().fixed() + argument.bytes().per_row()));
  return out;
}

class AttentionBarriers : public testing::TestWithParam<std::pair<int, const char *>> {};

} // namespace

TEST_P(AttentionBarriers, AreAllNeeded) {
  auto products = runtime::CpuDevice::create({});
  ASSERT_FALSE(products.failed());
  auto context = test::makeContext();
  auto module =
      test::parse(*context, functions(GetParam().first, 150, 2, 1, GetParam().second), "bf16");
  ASSERT_TRUE(module);
  codegen::CodegenOptions options;
  options.useCache = false;
  options.arch = "emu";
  auto compiled = codegen::compileFunctions(*module, options);
  ASSERT_TRUE(succeeded(compiled));
  const bundle::CompiledFunction &function = compiled->library.functions(0);
  ASSERT_EQ(function.launches_size(), 4);
  for (const bundle::Launch &launch : function.launches())
    ASSERT_TRUE(launch.has_kernel());
  std::string error;
  auto healthy = HostCode::compile(compiled->object, error);
  ASSERT_TRUE(healthy) << error;
  const Outcome right = run(*healthy, **products, function);
  ASSERT_TRUE(right.findings.empty()) << right.findings.front();
  int byFindingsAlone = 0, found = 0;
  const int places = healthy->places(PlantedBug::NoCollective);
  ASSERT_GE(places, 20); // in four kernels
  for (int number = 0; number < places; ++number) {
    auto code =
        HostCode::compile(compiled->object, error, true, {PlantedBug::NoCollective, number});
    ASSERT_TRUE(code) << error;
    const Outcome wrong = run(*code, **products, function);
    const bool differs = wrong.results != right.results, seen = !wrong.findings.empty();
    EXPECT_TRUE(differs || seen) << "not detected: number " << number;
    found += differs || seen;
    byFindingsAlone += seen && !differs;
  }
  printf("barriers, waits and exchanges of attention dropped: %d of %d found, %d where the numbers "
         "are right\n",
         found, places, byFindingsAlone);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, AttentionBarriers,
    testing::Values(
        std::pair(64, "scale = 0.125 : f64, causal"), std::pair(80, "scale = 0.112 : f64"),
        std::pair(128, "scale = 0.088 : f64, causal"),
        std::pair(256, "scale = 0.0625 : f64, causal"),
        std::pair(64, "scale = 0.125 : f64, causal, dropout = 0.1 : f64, rng_id = 0 : i64")));
