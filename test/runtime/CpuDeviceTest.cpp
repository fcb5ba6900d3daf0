// Bodies by hand on the CPU device: kernels, products, reductions, the commit decision, and what is refused.
#include "bundle.pb.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <gtest/gtest.h>

#include <cmath>
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

uint32_t addSlot(bundle::Body &body, bundle::SlotKind kind, bundle::AccessMode mode, int64_t fixed, int64_t perRow) {
  bundle::Slot &slot = *body.add_slots();
  slot.set_kind(kind);
  slot.set_mode(mode);
  slot.mutable_bytes()->set_fixed(fixed);
  slot.mutable_bytes()->set_per_row(perRow);
  return body.slots_size() - 1;
}

bundle::Body doubleBody(int64_t perRow) {
  bundle::Body body;
  body.set_name("double");
  addSlot(body, bundle::BOUNDARY_IN, bundle::READ, 0, perRow * 4);
  addSlot(body, bundle::BOUNDARY_OUT, bundle::ACCUMULATE, 0, perRow * 4);
  bundle::KernelLaunch &kernel = *body.add_launches()->mutable_kernel();
  kernel.set_symbol("zorse_test_double");
  kernel.add_operands()->set_slot(0);
  kernel.add_operands()->set_slot(1);
  kernel.mutable_points()->set_per_row(perRow);
  kernel.mutable_cost()->set_per_row(perRow * 8);
  kernel.add_accumulates(1);
  return body;
}

bundle::Body libraryBody(const std::string &name, const std::vector<int64_t> &slotBytes, bundle::ElementType type = bundle::F32) {
  bundle::Body body;
  body.set_name(name);
  bundle::LibraryCall &call = *body.add_launches()->mutable_library();
  call.set_name(name);
  call.set_type(type);
  for (int64_t bytes : slotBytes)
    call.add_operands()->set_slot(addSlot(body, bundle::STATE, bundle::UPDATE, bytes, 0));
  return body;
}

TEST(CpuDevice, KernelsAreSplitAndAccumulateByBinding) {
  for (int threads : {1, 2, 5}) {
    auto device = makeDevice(threads);
    int64_t rows = 7, perRow = 20000;
    std::vector<float> x(rows * perRow), y(rows * perRow, 1.0f);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(i % 1000);
    bundle::Body body = doubleBody(perRow);
    void *slots[] = {x.data(), y.data()};
    uint8_t overwrite[] = {0, 1};
    ASSERT_FALSE(device->runBody(body, {slots, nullptr, rows}).failed());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], 1.0f + 2.0f * x[i]);
    ASSERT_FALSE(device->runBody(body, {slots, overwrite, rows}).failed());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], 2.0f * x[i]);
  }
}

TEST(CpuDevice, KernelsLearnTheirSamplesAndInstances) {
  auto device = makeDevice(1);
  bundle::Body body;
  addSlot(body, bundle::LOSS, bundle::WRITE, 16, 8);
  bundle::KernelLaunch &kernel = *body.add_launches()->mutable_kernel();
  kernel.set_symbol("zorse_test_identify");
  kernel.add_operands()->set_fixed(16);
  kernel.mutable_points()->set_per_row(1);
  std::vector<double> y(5, -1);
  void *slots[] = {y.data()};
  BodyArguments arguments;
  arguments.slots = slots;
  arguments.rows = 3;
  arguments.sampleBase = 40;
  arguments.instanceBase = 2;
  ASSERT_FALSE(device->addBody(body).failed());
  ASSERT_FALSE(device->runBody(0u, arguments).failed());
  EXPECT_EQ(y, (std::vector<double>{-1, -1, 2040, 2041, 2042}));
}

TEST(CpuDevice, SquaredNormCountsNonFiniteElementsAndIgnoresThreads) {
  bundle::Body body = libraryBody("squared_norm", {4 << 20, 16});
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
    void *slots[] = {x.data(), sums};
    ASSERT_FALSE(device->runBody(body, {slots, nullptr, int64_t(x.size())}).failed());
    EXPECT_NEAR(sums[0], 1.0 + expected, 1e-9 * expected);
    EXPECT_EQ(sums[1], 0.0);
    if (threads == 1)
      first = sums[0];
    EXPECT_EQ(sums[0], first);
  }
  x[5] = std::numeric_limits<float>::infinity();
  x[300000] = std::nanf("");
  double sums[2] = {0, 0};
  void *slots[] = {x.data(), sums};
  ASSERT_FALSE(makeDevice(2)->runBody(body, {slots, nullptr, int64_t(x.size())}).failed());
  EXPECT_EQ(sums[1], 2.0);
}

TEST(CpuDevice, SumLossAddsEveryTermInRowOrder) {
  bundle::Body body = libraryBody("sum_loss", {64, 64, 128});
  float a[] = {1, 2, 4}, b[] = {0.5f, 0, 0.25f};
  double sums[16] = {};
  sums[2] = 10;
  void *slots[] = {a, b, sums};
  ASSERT_FALSE(makeDevice(1)->runBody(body, {slots, nullptr, 3}).failed());
  EXPECT_EQ(sums[2], 17.0);
  EXPECT_EQ(sums[3], 0.75);
}

TEST(CpuDevice, DecideClipsAsTorchAndSkipsWholeSteps) {
  bundle::Body body = libraryBody("decide", {128, 512, 8});
  auto device = makeDevice(1);
  auto decide = [&](double squares, double bad, double loss, uint64_t skipNonFinite, uint64_t zeroDenominator, double clip, double &optimizerStep) {
    zorse::abi::StepScalars scalars = {};
    scalars.lossScale = 1;
    scalars.clipNorm = clip;
    scalars.skipNonFinite = skipNonFinite;
    scalars.zeroDenominator = zeroDenominator;
    double sums[16] = {squares, bad, loss};
    void *slots[] = {sums, &scalars, &optimizerStep};
    EXPECT_FALSE(device->runBody(body, {slots, nullptr, 1}).failed());
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
  EXPECT_EQ(decide(0.0, 0, 0.0, 0, 1, 0.0, step).skip, 1u);
  EXPECT_EQ(step, 3.0);
  EXPECT_EQ(decide(4.0, 1, 1.0, 0, 0, 0.0, step).skip, 0u);
  EXPECT_EQ(step, 4.0);
}

TEST(CpuDevice, RefusesWhatItDoesNotKnow) {
  auto device = makeDevice(1);
  auto message = [&](const bundle::Body &body) {
    Status status = device->addBody(body);
    return status.failed() ? status.message() : std::string("accepted");
  };

  EXPECT_NE(message(libraryBody("fft", {64})).find("unknown library routine 'fft'"), std::string::npos);
  EXPECT_NE(message(libraryBody("decide", {64})).find("expects 3 operands, got 1"), std::string::npos);
  EXPECT_NE(message(libraryBody("squared_norm", {64, 16}, bundle::I64)).find("expects element type F32 or F64, got I64"), std::string::npos);
  EXPECT_NE(message(libraryBody("attention_forward", {1, 1, 1, 1, 1, 1})).find("misses integer 'query_length'"), std::string::npos);

  bundle::Body unknownSymbol = doubleBody(1);
  unknownSymbol.mutable_launches(0)->mutable_kernel()->set_symbol("nowhere");
  EXPECT_NE(message(unknownSymbol).find("kernel 'nowhere' is in none of the bundle's kernel objects"), std::string::npos);
  bundle::Body badSlot = doubleBody(1);
  badSlot.mutable_launches(0)->mutable_kernel()->mutable_operands(1)->set_slot(2);
  EXPECT_NE(message(badSlot).find("slot 2 of 2 is named"), std::string::npos);
  bundle::Body outside = doubleBody(1);
  outside.mutable_launches(0)->mutable_kernel()->mutable_operands(1)->set_fixed(400);
  EXPECT_NE(message(outside).find("lies outside slot 1"), std::string::npos);
  bundle::Body empty = doubleBody(1);
  empty.add_launches();
  EXPECT_NE(message(empty).find("launch 1: holds nothing"), std::string::npos);

  EXPECT_NE(device->loadObject("/nonexistent/kernels.so").message().find("cannot be loaded"), std::string::npos);
  bundle::BodyLibrary foreign;
  foreign.set_arch("sm_90");
  EXPECT_NE(device->loadBodies(foreign, "/nonexistent").message().find("kernels are for sm_90"), std::string::npos);
  EXPECT_TRUE(device->runBody(99u, {}).failed());
  CpuDeviceOptions wrong;
  wrong.gemm = "mkl";
  EXPECT_NE(CpuDevice::create(wrong).message().find("got \"mkl\""), std::string::npos);
  wrong = {};
  wrong.threads = 0;
  EXPECT_TRUE(CpuDevice::create(wrong).failed());
}

TEST(CpuDevice, MemoryIsZeroOrPoison) {
  auto device = makeDevice(1);
  auto zero = device->allocate(5 << 20, {});
  ASSERT_FALSE(zero.failed());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*zero)->base()) % 64, 0u);
  EXPECT_EQ((*zero)->bytes(), size_t(5 << 20));
  EXPECT_EQ(int((*zero)->base()[(5 << 20) - 1]), 0);
  AllocationOptions options;
  options.poison = true;
  auto poison = device->allocate(4096, options);
  ASSERT_FALSE(poison.failed());
  EXPECT_TRUE(std::isnan(*reinterpret_cast<float *>((*poison)->base() + 64)));
  EXPECT_TRUE(std::isnan(*reinterpret_cast<double *>((*poison)->base() + 64)));
}

} // namespace
