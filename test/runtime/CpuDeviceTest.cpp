// Tests functions built by hand on the CPU device: kernels, products, reductions, the clip/skip
// decision, and refusals.
#include "zorse/runtime/CpuDevice.h"
#include "HostArguments.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;

namespace {

std::unique_ptr<CpuDevice> makeDevice(int threads, const std::string &gemm = "") {
  CpuDeviceOptions options;
  options.threads = threads;
  options.gemm = gemm;
  Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create(options);
  EXPECT_FALSE(device.failed()) << device.message();
  EXPECT_FALSE((*device)->loadObject(ZORSE_TEST_KERNELS).failed());
  return std::move(*device);
}

uint32_t addArgument(bundle::CompiledFunction &function, bundle::ArgumentKind kind,
                     bundle::AccessMode mode, int64_t fixed, int64_t perRow) {
  bundle::FunctionArgument &argument = *function.add_arguments();
  argument.set_kind(kind);
  argument.set_mode(mode);
  argument.mutable_bytes()->set_fixed(fixed);
  argument.mutable_bytes()->set_per_row(perRow);
  return function.arguments_size() - 1;
}

bundle::CompiledFunction doubleFunction(int64_t perRow) {
  bundle::CompiledFunction function;
  function.set_name("double");
  addArgument(function, bundle::BOUNDARY_IN, bundle::READ, 0, perRow * 4);
  addArgument(function, bundle::BOUNDARY_OUT, bundle::ACCUMULATE, 0, perRow * 4);
  bundle::KernelLaunch &kernel = *function.add_launches()->mutable_kernel();
  kernel.set_symbol("zorse_test_double");
  kernel.add_operands()->set_argument(0);
  kernel.add_operands()->set_argument(1);
  kernel.mutable_iterations()->set_per_row(perRow);
  kernel.mutable_cost()->set_per_row(perRow * 8);
  kernel.add_accumulates(1);
  return function;
}

bundle::CompiledFunction libraryFunction(const std::string &name,
                                         const std::vector<int64_t> &argumentBytes,
                                         bundle::ElementType type = bundle::F32) {
  bundle::CompiledFunction function;
  function.set_name(name);
  bundle::LibraryCall &call = *function.add_launches()->mutable_library();
  call.set_name(name);
  call.set_type(type);
  for (int64_t bytes : argumentBytes)
    call.add_operands()->set_argument(
        addArgument(function, bundle::STATE, bundle::UPDATE, bytes, 8));
  return function;
}

TEST(CpuDevice, KernelsAreSplitAndAccumulateByBinding) {
  for (int threads : {1, 2, 5}) {
    auto device = makeDevice(threads);
    int64_t rows = 7, perRow = 20000;
    std::vector<float> x(rows * perRow), y(rows * perRow, 1.0f);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(i % 1000);
    bundle::CompiledFunction function = doubleFunction(perRow);
    zorse::runtime::test::HostArguments memory{x.data(), y.data()};
    uint8_t overwrite[] = {0, 1};
    ASSERT_FALSE(device->runFunction(function, {{rows}, memory}).failed());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], 1.0f + 2.0f * x[i]);
    ASSERT_FALSE(device->runFunction(function, {{rows}, memory, overwrite}).failed());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], 2.0f * x[i]);
  }
}

TEST(CpuDevice, KernelsLearnTheirSamplesAndInstances) {
  auto device = makeDevice(1);
  bundle::CompiledFunction function;
  addArgument(function, bundle::LOSS, bundle::WRITE, 16, 8);
  bundle::KernelLaunch &kernel = *function.add_launches()->mutable_kernel();
  kernel.set_symbol("zorse_test_identify");
  kernel.add_operands()->set_fixed(16);
  kernel.mutable_iterations()->set_per_row(1);
  std::vector<double> y(5, -1);
  zorse::runtime::test::HostArguments memory{y.data()};
  FunctionArguments arguments;
  arguments.addresses = memory;
  arguments.rows = 3;
  arguments.sampleBase = 40;
  arguments.rngIdBase = 2;
  ASSERT_FALSE(device->addFunction(function).failed());
  ASSERT_FALSE(device->runFunction(0u, arguments).failed());
  EXPECT_EQ(y, (std::vector<double>{-1, -1, 2040, 2041, 2042}));
}

TEST(CpuDevice, SquaredNormCountsNonFiniteElementsAndIgnoresThreads) {
  bundle::CompiledFunction function = libraryFunction("squared_norm", {4 << 20, 16});
  std::vector<float> x(300001);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(float(i));
  double expected = 0;
  for (float value : x)
    expected += double(value) * value;
  double first = 0;
  for (int threads : {1, 2, 3}) {
    auto device = makeDevice(threads);
    double sums[2] = {1.0, 0.0};
    zorse::runtime::test::HostArguments memory{x.data(), sums};
    ASSERT_FALSE(device->runFunction(function, {{int64_t(x.size())}, memory}).failed());
    EXPECT_NEAR(sums[0], 1.0 + expected, 1e-9 * expected);
    EXPECT_EQ(sums[1], 0.0);
    if (threads == 1)
      first = sums[0];
    EXPECT_EQ(sums[0], first);
  }
  x[5] = std::numeric_limits<float>::infinity();
  x[300000] = std::nanf("");
  double sums[2] = {0, 0};
  zorse::runtime::test::HostArguments memory{x.data(), sums};
  ASSERT_FALSE(makeDevice(2)->runFunction(function, {{int64_t(x.size())}, memory}).failed());
  EXPECT_EQ(sums[1], 2.0);
}

TEST(CpuDevice, SumLossAddsEveryTermInRowOrder) {
  bundle::CompiledFunction function = libraryFunction("sum_loss", {64, 64, 128});
  float a[] = {1, 2, 4}, b[] = {0.5f, 0, 0.25f};
  double sums[16] = {};
  sums[2] = 10;
  zorse::runtime::test::HostArguments memory{a, b, sums};
  ASSERT_FALSE(makeDevice(1)->runFunction(function, {{3}, memory}).failed());
  EXPECT_EQ(sums[2], 17.0);
  EXPECT_EQ(sums[3], 0.75);
}

TEST(CpuDevice, DecideClipsAsTorchAndSkipsWholeSteps) {
  bundle::CompiledFunction function = libraryFunction("decide", {128, 1024, 8});
  auto device = makeDevice(1);
  auto decide = [&](double squares, double bad, double loss, uint64_t skipNonFinite, double seed,
                    double clip, double &optimizerStep) {
    zorse::abi::StepScalars scalars = {};
    scalars.clipNorm = clip;
    scalars.skipNonFinite = skipNonFinite;
    scalars.lossGradient[1] = seed;
    double sums[16] = {squares, bad, loss};
    zorse::runtime::test::HostArguments memory{sums, &scalars, &optimizerStep};
    EXPECT_FALSE(device->runFunction(function, {{1}, memory}).failed());
    return scalars.decided;
  };
  double step = 0, infinity = std::numeric_limits<double>::infinity();
  auto decided = decide(4.0, 0, 1.0, 1, 0, 1.0, step);
  EXPECT_EQ(decided.gradientNorm, 2.0);
  EXPECT_EQ(decided.clipFactor, 1.0 / (2.0 + 1e-6));
  EXPECT_EQ(decided.skip, 0u);
  EXPECT_EQ(step, 1.0);
  EXPECT_EQ(decide(0.25, 0, 1.0, 1, 0, 1.0, step).clipFactor, 1.0);
  EXPECT_EQ(decide(4.0, 0, 1.0, 1, 0, 0.0, step).clipFactor, 1.0);
  EXPECT_EQ(step, 3.0);
  EXPECT_EQ(decide(4.0, 1, 1.0, 1, 0, 1.0, step).skip, 1u);
  EXPECT_EQ(decide(4.0, 0, infinity, 1, 0, 1.0, step).skip, 1u);
  EXPECT_EQ(decide(0.0, 0, 0.0, 0, infinity, 0.0, step).skip, 1u);
  EXPECT_EQ(decide(0.0, 0, 0.0, 1, std::nan(""), 0.0, step).skip, 1u);
  EXPECT_EQ(step, 3.0);
  EXPECT_EQ(decide(4.0, 1, 1.0, 0, 0, 0.0, step).skip, 0u);
  EXPECT_EQ(step, 4.0);
}

// Follows GradScaler's rule, and divides everything by the scale that must be divided by it.
TEST(CpuDevice, DecideKeepsTheScale) {
  bundle::CompiledFunction function = libraryFunction("decide", {128, 1024, 32});
  (*function.mutable_launches(0)->mutable_library()->mutable_integers())["scale_interval"] = 3;
  auto device = makeDevice(1);
  zorse::abi::OptimizerStep state = {.updates = 5, .lossScale = 8, .goodSteps = 0, .overflows = 0};
  auto decide = [&](double squares, double bad, double loss, double seed = 1) {
    zorse::abi::StepScalars scalars = {};
    scalars.clipNorm = 1;
    scalars.skipNonFinite = 1;
    scalars.lossGradient[13] = seed;
    double sums[16] = {squares, bad, loss};
    zorse::runtime::test::HostArguments memory{sums, &scalars, &state};
    EXPECT_FALSE(device->runFunction(function, {{1}, memory}).failed());
    return scalars.decided;
  };
  auto expect = [&](double updates, double scale, double good, double overflows) {
    EXPECT_EQ(state.updates, updates);
    EXPECT_EQ(state.lossScale, scale);
    EXPECT_EQ(state.goodSteps, good);
    EXPECT_EQ(state.overflows, overflows);
  };
  auto decided = decide(64 * 4.0, 0, 1.0);
  EXPECT_EQ(decided.gradientNorm, 2.0);
  EXPECT_EQ(decided.clipFactor, 1.0 / 8 / (2.0 + 1e-6));
  EXPECT_EQ(decided.lossScale, 8.0);
  expect(6, 8, 1, 0);
  decided = decide(64 * 4.0, 1, 1.0);
  EXPECT_EQ(decided.skip, 1u);
  EXPECT_EQ(decided.lossScale, 8.0);
  expect(6, 4, 0, 1);
  decide(1.0, 0, std::numeric_limits<double>::quiet_NaN());
  expect(6, 2, 0, 2);
  EXPECT_EQ(decide(0.0, 1, 0.0, std::numeric_limits<double>::infinity()).skip, 1u);
  expect(6, 2, 0, 2); // a batch without labels does not affect the scale
  for (int good = 0; good < 3; ++good)
    decide(1.0, 0, 1.0);
  expect(9, 4, 0, 2);
  for (int bad = 0; bad < 5; ++bad)
    decide(1.0, 3, 1.0);
  expect(9, 1, 0, 7);

  zorse::abi::StepScalars scalars = {};
  scalars.learningRate = 3;
  scalars.lossGradient[0] = 0.25;
  scalars.lossGradient[13] = 0.5;
  state.lossScale = 1024;
  zorse::runtime::test::HostArguments memory{&scalars, &state};
  EXPECT_FALSE(
      device->runFunction(libraryFunction("scale_seeds", {1024, 32}), {{1}, memory}).failed());
  EXPECT_EQ(scalars.lossGradient[0], 256.0);
  EXPECT_EQ(scalars.lossGradient[13], 512.0);
  EXPECT_EQ(scalars.learningRate, 3.0);
}

TEST(CpuDevice, RefusesWhatItDoesNotKnow) {
  auto device = makeDevice(1);
  auto message = [&](const bundle::CompiledFunction &function) {
    Status status = device->addFunction(function);
    return status.failed() ? status.message() : std::string("accepted");
  };

  EXPECT_NE(message(libraryFunction("fft", {64})).find("unknown library routine 'fft'"),
            std::string::npos);
  EXPECT_NE(message(libraryFunction("decide", {64})).find("expects 3 operands, got 1"),
            std::string::npos);
  EXPECT_NE(message(libraryFunction("squared_norm", {64, 16}, bundle::I64))
                .find("expects element type F32 or F64, got I64"),
            std::string::npos);
  EXPECT_NE(message(libraryFunction("attention_forward", {1, 1, 1, 1, 1, 1}))
                .find("misses integer 'query_length'"),
            std::string::npos);

  bundle::CompiledFunction unknownSymbol = doubleFunction(1);
  unknownSymbol.mutable_launches(0)->mutable_kernel()->set_symbol("nowhere");
  EXPECT_NE(
      message(unknownSymbol).find("kernel 'nowhere' is in none of the bundle's kernel objects"),
      std::string::npos);
  bundle::CompiledFunction badArgument = doubleFunction(1);
  badArgument.mutable_launches(0)->mutable_kernel()->mutable_operands(1)->set_argument(2);
  EXPECT_NE(message(badArgument).find("argument 2 of 2 is named"), std::string::npos);
  bundle::CompiledFunction outside = doubleFunction(1);
  outside.mutable_launches(0)->mutable_kernel()->mutable_operands(1)->set_fixed(400);
  EXPECT_NE(message(outside).find("outside argument 1 of 0 + 4 per row bytes"), std::string::npos);
  bundle::CompiledFunction empty = doubleFunction(1);
  empty.add_launches();
  EXPECT_NE(message(empty).find("launch 1: holds nothing"), std::string::npos);

  EXPECT_NE(device->loadObject("/nonexistent/kernels.so").message().find("cannot be loaded"),
            std::string::npos);
  bundle::FunctionLibrary foreign;
  foreign.set_arch("sm_90");
  EXPECT_NE(device->loadFunctions(foreign, "/nonexistent").message().find("kernels are for sm_90"),
            std::string::npos);
  EXPECT_TRUE(device->runFunction(99u, {}).failed());
  CpuDeviceOptions wrong;
  wrong.gemm = "mkl";
  EXPECT_NE(CpuDevice::create(wrong).message().find("got \"mkl\""), std::string::npos);
  wrong = {};
  wrong.threads = 0;
  EXPECT_TRUE(CpuDevice::create(wrong).failed());
}

// For all numbers in a function and every number of rows, launches stay inside the arguments they
// name, or the function is refused before anything runs.
TEST(CpuDevice, KernelsStayInsideTheirSlots) {
  auto device = makeDevice(1);
  auto message =
      [&](const std::function<void(bundle::CompiledFunction &, bundle::KernelLaunch &)> &change) {
        bundle::CompiledFunction function = doubleFunction(100);
        change(function, *function.mutable_launches(0)->mutable_kernel());
        Status status = device->addFunction(function);
        return status.failed() ? status.message() : std::string("accepted");
      };
  auto says =
      [&](const char *words,
          const std::function<void(bundle::CompiledFunction &, bundle::KernelLaunch &)> &change) {
        std::string said = message(change);
        EXPECT_NE(said.find(words), std::string::npos) << said;
      };
  says("accepted", [](auto &, auto &) {});
  says("operand 0 reaches to byte 0 + 404 per row, outside argument 0 of 0 + 400 per row bytes",
       [](auto &, auto &launch) { launch.mutable_iterations()->set_per_row(101); });
  says("outside argument 0",
       [](auto &, auto &launch) { launch.mutable_iterations()->set_per_row(100 + (1 << 24)); });
  says("outside argument 0",
       [](auto &, auto &launch) { launch.mutable_iterations()->set_per_row(INT64_MAX); });
  says("outside argument 0",
       [](auto &, auto &launch) { launch.mutable_iterations()->set_fixed(1); });
  says("points", [](auto &, auto &launch) { launch.mutable_iterations()->set_per_row(-1); });
  says("outside argument 1",
       [](auto &, auto &launch) { launch.mutable_operands(1)->set_fixed(4); });
  says("outside argument 1",
       [](auto &, auto &launch) { launch.mutable_operands(1)->set_per_row(INT64_MAX); });
  says("outside argument 1",
       [](auto &, auto &launch) { launch.mutable_operands(1)->set_fixed(-4); });
  says("outside argument 0", [](auto &function, auto &) {
    function.mutable_arguments(0)->mutable_bytes()->set_per_row(399);
  });
  says("expects 2 operands, got 1", [](auto &, auto &launch) {
    launch.mutable_operands()->RemoveLast();
    launch.clear_accumulates();
  });
  says("is written to, but argument 0 is only read",
       [](auto &, auto &launch) { launch.mutable_operands(1)->set_argument(0); });
  says("does not say what it touches",
       [](auto &, auto &launch) { launch.set_symbol("zorse_test_double_needs"); });
}

TEST(CpuDevice, ProductsAndRoutinesStayInsideTheirSlots) {
  auto device = makeDevice(1);
  auto message = [&](const bundle::CompiledFunction &function) {
    Status status = device->addFunction(function);
    return status.failed() ? status.message() : std::string("accepted");
  };
  // (rows x 8) times (8 x 4).
  bundle::CompiledFunction product;
  addArgument(product, bundle::BOUNDARY_IN, bundle::READ, 0, 32);
  addArgument(product, bundle::PARAMETER, bundle::READ, 128, 0);
  addArgument(product, bundle::BOUNDARY_OUT, bundle::WRITE, 0, 16);
  bundle::Matmul &p = *product.add_launches()->mutable_matmul();
  p.set_type(bundle::F32);
  p.mutable_m()->set_per_row(1);
  p.mutable_n()->set_fixed(4);
  p.mutable_k()->set_fixed(8);
  p.mutable_b()->set_argument(1);
  p.mutable_c()->set_argument(2);
  p.set_lda(8);
  p.set_ldb(4);
  p.set_ldc(4);
  p.set_alpha(1);
  EXPECT_EQ(message(product), "accepted");
  auto says = [&](const char *words, const std::function<void(bundle::Matmul &)> &change) {
    bundle::CompiledFunction changed = product;
    change(*changed.mutable_launches(0)->mutable_matmul());
    std::string said = message(changed);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  says("expects ldc from 1 to 2^31 - 1, got 1099511627776",
       [](auto &p) { p.set_ldc(int64_t(1) << 40); });
  says("operand c reaches", [](auto &p) { p.set_ldc(5); });
  says("operand b reaches", [](auto &p) { p.set_ldb(5); });
  says("operand a reaches", [](auto &p) { p.set_lda(9); });
  says("operand a reaches", [](auto &p) { p.mutable_m()->set_per_row(2); });
  says("operand a reaches", [](auto &p) { p.mutable_m()->set_fixed(1); });
  says("operand b reaches", [](auto &p) {
    p.set_transpose_b(true), p.set_ldb(8), p.mutable_n()->set_fixed(5), p.set_ldc(5);
  });
  says("operand a reaches",
       [](auto &p) { p.mutable_batch()->set_fixed(2), p.set_batch_stride_a(8); });
  says("expects extents and strides from 0 to 2^48",
       [](auto &p) { p.set_batch_stride_c(INT64_MAX); });
  says("expects extents and strides from 0 to 2^48",
       [](auto &p) { p.mutable_m()->set_per_row(-1); });
  says("is written to, but argument 0 is only read",
       [](auto &p) { p.mutable_c()->set_argument(0); });

  bundle::CompiledFunction norm = libraryFunction("squared_norm", {0, 16});
  EXPECT_EQ(message(norm), "accepted");
  norm.mutable_arguments(0)->mutable_bytes()->set_per_row(3);
  EXPECT_NE(message(norm).find("operand 0 reaches to byte 0 + 4 per row"), std::string::npos);
  bundle::CompiledFunction decide = libraryFunction("decide", {128, 1024, 8});
  decide.mutable_arguments(1)->mutable_bytes()->set_fixed(64);
  EXPECT_NE(message(decide).find("operand 1 reaches to byte 256"), std::string::npos)
      << message(decide);

  // Two heads of size 8 at 4 positions: per row, 256 bytes each for q, k, v and out, and 32 for the
  // log-sum-exp.
  bundle::CompiledFunction attention;
  for (int64_t bytes : {256, 256, 256, 256, 32})
    addArgument(attention, bundle::WORKSPACE, bundle::WRITE, 0, bytes);
  bundle::LibraryCall &call = *attention.add_launches()->mutable_library();
  call.set_name("attention_forward");
  call.set_type(bundle::F32);
  for (uint32_t argument : {0u, 1u, 2u, 0xffffffffu, 3u, 4u})
    call.add_operands()->set_argument(argument);
  for (auto [name, value] :
       {std::pair("query_length", 4), {"key_length", 4}, {"heads", 2}, {"head_size", 8}})
    (*call.mutable_integers())[name] = value;
  EXPECT_EQ(message(attention), "accepted");
  for (const char *name : {"query_length", "key_length", "heads", "head_size"})
    for (int64_t value : {int64_t(8), int64_t(1) << 24, int64_t(1) << 48, INT64_MAX}) {
      bundle::CompiledFunction changed = attention;
      if (std::string(name) == "head_size" && value == 8)
        value = 16;
      (*changed.mutable_launches(0)->mutable_library()->mutable_integers())[name] = value;
      std::string said = message(changed);
      EXPECT_TRUE(said.find("reaches to byte") != std::string::npos ||
                  said.find("<= 2^48") != std::string::npos)
          << name << " " << value << ": " << said;
    }
}

TEST(CpuDevice, MemoryIsZeroOrPoison) {
  auto device = makeDevice(1);
  auto zero = device->allocate(bundle::DEVICE, 5 << 20, {});
  ASSERT_FALSE(zero.failed());
  EXPECT_EQ((*zero)->base().value % 64, 0u);
  EXPECT_EQ((*zero)->bytes(), size_t(5 << 20));
  EXPECT_EQ(int((*zero)->base().onHost()[(5 << 20) - 1]), 0);
  AllocationOptions options;
  options.poison = true;
  auto poison = device->allocate(bundle::DEVICE, 4096, options);
  ASSERT_FALSE(poison.failed());
  EXPECT_TRUE(std::isnan(*reinterpret_cast<float *>((*poison)->base().onHost() + 64)));
  EXPECT_TRUE(std::isnan(*reinterpret_cast<double *>((*poison)->base().onHost() + 64)));
}

} // namespace
