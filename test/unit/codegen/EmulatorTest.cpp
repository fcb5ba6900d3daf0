// Tests that the emulator detects faults in kernels of every class: each collective is removed,
// each access moved and each guard opened in turn. A fault is detected if there is a finding or if
// results differ. Some faults leave results correct, so comparing numbers is not enough. In the
// runs, every guard is closed for some thread: there are so few rows that some threads have no
// work, and results are both added to and overwritten.
#include "CodegenHarness.h"
#include "EmulatedFunction.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

using namespace zorse;
using emulator::HostCode;
using emulator::PlantedBug;

namespace {

struct Class {
  const char *name, *text;
  int64_t rows;
};

const Class kClasses[] = {
    {"elements", R"(
func.func @f(%x: tensor<?x5x48xf32> {@@boundary_in0}, %b: tensor<48xf32> {@@parameter0}) -> (tensor<?x5x48xf32> {@@boundary_out0}) {
  %bb = zorse.broadcast %b dims [2] : tensor<48xf32> -> tensor<?x5x48xf32>
  %s = arith.addf %x, %bb : tensor<?x5x48xf32>
  return %s : tensor<?x5x48xf32>
})",
     3},
    {"elements, with a tail", R"(
func.func @f(%x: tensor<?xf32> {@@boundary_in0}, %y: tensor<?xf32> {@@boundary_in1}) -> (tensor<?xf32> {@@boundary_out0}) {
  %s = arith.mulf %x, %y : tensor<?xf32>
  return %s : tensor<?xf32>
})",
     1027},
    {"rows of a warp", R"(
func.func @f(%x: tensor<?x3x100xf32> {@@boundary_in0}, %d: tensor<?x3x100xf32> {@@boundary_in1}) -> (tensor<?x3x100xf32> {@@boundary_out0}) {
  %y = zorse.softmax_grad %x, %d : tensor<?x3x100xf32>
  return %y : tensor<?x3x100xf32>
})",
     3},
    {"rows of a block", R"(
func.func @f(%x: tensor<?x1500xf32> {@@boundary_in0}, %d: tensor<?x1500xf32> {@@boundary_in1}) -> (tensor<?x1500xf32> {@@boundary_out0}) {
  %y = zorse.softmax_grad %x, %d : tensor<?x1500xf32>
  return %y : tensor<?x1500xf32>
})",
     2},
    {"columns", R"(
func.func @f(%x: tensor<?x70x50xf32> {@@boundary_in0}) -> (tensor<?x50xf32> {@@boundary_out0}) {
  %y = zorse.reduce sum %x dims [1] : tensor<?x70x50xf32> -> tensor<?x50xf32>
  return %y : tensor<?x50xf32>
})",
     2},
    {"columns of several blocks", R"(
func.func @f(%x: tensor<?x7x9xf32> {@@boundary_in0}) -> (tensor<9xf32> {@@parameter_gradient0}) {
  %y = zorse.reduce sum %x dims [0, 1] : tensor<?x7x9xf32> -> tensor<9xf32>
  return %y : tensor<9xf32>
})",
     140},
    {"scatter", R"(
func.func @f(%d: tensor<?x150x40xf32> {@@boundary_out_gradient0}, %i: tensor<?x150xi64> {@@input0}) -> (tensor<9x40xf32> {@@parameter_gradient0}) {
  %y = zorse.scatter_add %i, %d : tensor<?x150xi64>, tensor<?x150x40xf32> -> tensor<9x40xf32>
  return %y : tensor<9x40xf32>
})",
     10},
};

struct Outcome {
  std::vector<std::string> findings;
  std::string results;
};

/// The parameters of a run.
struct Setting {
  int64_t rows;
  bool add;
  unsigned seed;
};

/// Runs a compiled function with unused memory around every argument, so that a faulty access stays
/// inside the allocation.
Outcome run(const HostCode &code, runtime::CpuDevice &products,
            const bundle::CompiledFunction &function, Setting setting) {
  const int64_t rows = setting.rows;
  struct alignas(64) Line {
    float numbers[16];
  };
  std::vector<std::vector<Line>> buffers;
  emulator::EmulatedCall call{
      rows, 0, 0, {}, std::vector<uint8_t>(size_t(function.arguments_size()), !setting.add)};
  std::mt19937 random(setting.seed);
  for (const bundle::FunctionArgument &argument : function.arguments()) {
    const size_t bytes = size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows);
    std::vector<Line> &buffer = buffers.emplace_back(bytes / sizeof(Line) + 8);
    for (Line &line : buffer)
      for (float &x : line.numbers)
        x = std::normal_distribution<float>()(random);
    call.arguments.push_back(reinterpret_cast<char *>(buffer.data() + 2));
    if (argument.kind() == bundle::INPUT)
      for (size_t i = 0; i < bytes / 8; ++i)
        reinterpret_cast<int64_t *>(call.arguments.back())[i] = int64_t(random() % 9);
  }
  Outcome out;
  out.findings = emulator::runFunction(code, products, function, call);
  for (int s = 0; s < function.arguments_size(); ++s)
    if (const bundle::FunctionArgument &argument = function.arguments(s);
        argument.mode() != bundle::READ && argument.kind() != bundle::WORKSPACE)
      out.results.append(call.arguments[size_t(s)],
                         size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows));
  return out;
}

} // namespace

TEST(Emulator, FindsPlantedBugs) {
  auto products = runtime::CpuDevice::create({});
  ASSERT_FALSE(products.failed());
  struct Count {
    const char *name;
    int planted = 0, found = 0, byNumbersAlone = 0, byFindingsAlone = 0;
  };
  std::map<PlantedBug::Kind, Count> counts = {{PlantedBug::NoCollective, {"collectives dropped"}},
                                              {PlantedBug::MovedAccess, {"accesses moved"}},
                                              {PlantedBug::OpenGuard, {"guards opened"}}};
  for (const Class &c : kClasses) {
    SCOPED_TRACE(c.name);
    auto context = test::makeContext();
    auto module = test::parse(*context, c.text, "f32");
    ASSERT_TRUE(module);
    codegen::CodegenOptions options;
    options.useCache = false;
    options.arch = "emu";
    auto compiled = codegen::compileFunctions(*module, options);
    ASSERT_TRUE(succeeded(compiled));
    const bundle::CompiledFunction &function = compiled->library.functions(0);
    std::string error;
    auto healthy = HostCode::compile(compiled->object, error);
    ASSERT_TRUE(healthy) << error;
    std::vector<Setting> settings;
    std::vector<Outcome> right;
    for (unsigned seed = 0; seed < 3; ++seed)
      for (bool add : {false, true})
        for (int64_t rows : {c.rows, int64_t(1)}) {
          settings.push_back({rows, add, seed});
          right.push_back(run(*healthy, **products, function, settings.back()));
          ASSERT_TRUE(right.back().findings.empty()) << right.back().findings.front();
        }
    for (auto &[kind, count] : counts)
      for (int number = 0; number < healthy->places(kind); ++number) {
        auto code = HostCode::compile(compiled->object, error, true, {kind, number});
        ASSERT_TRUE(code) << error;
        bool differs = false, seen = false;
        emulator::takeReached();
        for (size_t i = 0; i < settings.size() && !differs && !seen; ++i) {
          const Outcome outcome = run(*code, **products, function, settings[i]);
          differs = outcome.results != right[i].results;
          seen = !outcome.findings.empty();
        }
        if (!emulator::takeReached()) // code for other sizes
          continue;
        ++count.planted;
        count.found += differs || seen;
        count.byNumbersAlone += differs && !seen;
        count.byFindingsAlone += seen && !differs;
        EXPECT_TRUE(differs || seen) << count.name << ": not detected: number " << number;
      }
  }
  int planted = 0, found = 0;
  for (const auto &[kind, count] : counts) {
    printf("%s: %d of %d found, %d by findings where the numbers are right, %d by numbers alone\n",
           count.name, count.found, count.planted, count.byFindingsAlone, count.byNumbersAlone);
    EXPECT_GE(count.planted, 5);
    planted += count.planted;
    found += count.found;
  }
  printf("planted bugs: %d of %d found\n", found, planted);
}
