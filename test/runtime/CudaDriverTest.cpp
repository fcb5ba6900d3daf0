// Tests the GPU driver on the stand-ins for NVIDIA's libraries (test/emulator), beyond the contract
// common to all drivers.
#include "device/cuda/BlasLt.h"
#include "device/cuda/CudaDevice.h"
#include "device/cuda/CudaFunctions.h"

#include "StandIn.h"
#include "TemporaryDirectory.h"
#include "bundle.pb.h"
#include "zorse/runtime/HalfTypes.h"

#include "gtest/gtest.h"

#include <future>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

struct CudaDriver : testing::Test {
  const CudaApi *cuda = nullptr;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;

  void SetUp() override {
    auto api = cudaApi();
    ASSERT_FALSE(api.failed()) << api.message();
    cuda = *api;
    ASSERT_EQ(cuda->cuDevicePrimaryCtxRetain(&context, 0), kSuccess);
    ASSERT_EQ(cuda->cuCtxSetCurrent(context), kSuccess);
    ASSERT_EQ(cuda->cuMemAlloc_v2(&memory, 4096), kSuccess);
  }
  void TearDown() override {
    cuda->cuMemFree_v2(memory);
    cuda->cuDevicePrimaryCtxRelease_v2(0);
  }
};

// Slices of views begin at any address, so cuBLASLt must not assume that addresses are multiples of
// 256.
TEST_F(CudaDriver, ProductsTakeOperandsAtAnyAddress) {
  auto blas = BlasLt::create(*cuda);
  ASSERT_FALSE(blas.failed()) << blas.message();
  for (uint64_t shift : {0, 4, 8, 64}) {
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    const CUdeviceptr atA = memory + shift, atB = memory + 512 + 2 * shift,
                      atC = memory + 1024 + shift;
    ASSERT_EQ(cuda->cuMemcpyHtoD_v2(atA, a, sizeof a), kSuccess);
    ASSERT_EQ(cuda->cuMemcpyHtoD_v2(atB, b, sizeof b), kSuccess);
    BlasMatmul product;
    product.typeOfOperands = product.typeOfC = kF32;
    product.m = product.n = product.k = product.lda = product.ldb = product.ldc = 2;
    const Status status = (*blas)->multiply(product, 1, 0, {atA, atB, atC}, nullptr);
    ASSERT_TRUE(status.succeeded()) << status.message() << " at " << shift;
    ASSERT_EQ(cuda->cuStreamSynchronize(nullptr), kSuccess);
    float c[4];
    ASSERT_EQ(cuda->cuMemcpyDtoH_v2(c, atC, sizeof c), kSuccess);
    EXPECT_EQ(std::vector<float>(c, c + 4), (std::vector<float>{19, 22, 43, 50}));
  }
}

// The library reads a bias with the type and alignment it was given; every call sets both.
TEST_F(CudaDriver, ProductsAddABiasToEveryRow) {
  auto blas = BlasLt::create(*cuda);
  ASSERT_FALSE(blas.failed()) << blas.message();
  BlasMatmul product;
  product.typeOfOperands = product.typeOfC = kF16;
  product.m = 3, product.n = product.k = product.lda = product.ldb = product.ldc = 2;
  auto put = [&](CUdeviceptr at, std::vector<float> values) {
    std::vector<uint16_t> halves;
    for (float value : values)
      halves.push_back(floatToF16(value));
    ASSERT_EQ(cuda->cuMemcpyHtoD_v2(at, halves.data(), halves.size() * 2), kSuccess);
  };
  put(memory, {1, 2, 3, 4, 5, 6});
  put(memory + 256, {1, 0, 0, 1});
  for (uint64_t shift : {0, 2, 64}) {
    const CUdeviceptr bias = memory + 768 + shift;
    put(bias, {float(10 + shift), 20});
    const Status status =
        (*blas)->multiply(product, 1, 0, {memory, memory + 256, memory + 512, bias}, nullptr);
    ASSERT_TRUE(status.succeeded()) << status.message() << " at " << shift;
    ASSERT_EQ(cuda->cuStreamSynchronize(nullptr), kSuccess);
    uint16_t c[6];
    ASSERT_EQ(cuda->cuMemcpyDtoH_v2(c, memory + 512, sizeof c), kSuccess);
    const float first = float(10 + shift);
    for (int row = 0; row < 3; ++row) {
      EXPECT_EQ(c[2 * row], floatToF16(float(2 * row + 1) + first));
      EXPECT_EQ(c[2 * row + 1], floatToF16(float(2 * row + 2) + 20));
    }
  }
  product.typeOfOperands = product.typeOfC = kF64;
  EXPECT_TRUE(
      (*blas)
          ->multiply(product, 1, 0, {memory, memory + 256, memory + 512, memory + 768}, nullptr)
          .failed());
}

// f16 sums lose bits that f32 sums keep: 2048 + 1 is 2048.
TEST_F(CudaDriver, SumsAreF16WhereItIsAskedFor) {
  auto blas = BlasLt::create(*cuda);
  ASSERT_FALSE(blas.failed()) << blas.message();
  const uint16_t a[3] = {floatToF16(2048), floatToF16(1), floatToF16(1)},
                 b[3] = {floatToF16(1), floatToF16(1), floatToF16(1)};
  ASSERT_EQ(cuda->cuMemcpyHtoD_v2(memory, a, sizeof a), kSuccess);
  ASSERT_EQ(cuda->cuMemcpyHtoD_v2(memory + 256, b, sizeof b), kSuccess);
  BlasMatmul product;
  product.typeOfOperands = product.typeOfC = kF16;
  product.m = product.n = 1, product.k = product.lda = 3, product.ldb = product.ldc = 1;
  for (bool narrow : {false, true}) {
    product.sumsF16 = narrow;
    ASSERT_TRUE((*blas)
                    ->multiply(product, 1, 0, {memory, memory + 256, memory + 512}, nullptr)
                    .succeeded());
    ASSERT_EQ(cuda->cuStreamSynchronize(nullptr), kSuccess);
    uint16_t c = 0;
    ASSERT_EQ(cuda->cuMemcpyDtoH_v2(&c, memory + 512, 2), kSuccess);
    EXPECT_EQ(c, floatToF16(narrow ? 2048 : 2050));
  }
}

// The stand-in must refuse these; otherwise the driver could miss such errors.
TEST_F(CudaDriver, TheStandInRefusesForeignAndDestroyedHandles) {
  constexpr CUresult kInvalidContext = 201, kInvalidHandle = 400;
  CUstream stream = nullptr, foreign = nullptr;
  CUevent event = nullptr;
  CUcontext second = nullptr;
  ASSERT_EQ(cuda->cuStreamCreate(&stream, kStreamNonBlocking), kSuccess);
  ASSERT_EQ(cuda->cuEventCreate(&event, 0), kSuccess);
  CUevent untimed = nullptr;
  float milliseconds = 0;
  ASSERT_EQ(cuda->cuEventCreate(&untimed, kEventDisableTiming), kSuccess);
  ASSERT_EQ(cuda->cuEventRecord(event, stream), kSuccess);
  ASSERT_EQ(cuda->cuEventRecord(untimed, stream), kSuccess);
  ASSERT_EQ(cuda->cuStreamSynchronize(stream), kSuccess);
  EXPECT_EQ(cuda->cuEventElapsedTime(&milliseconds, event, untimed), kInvalidHandle);
  EXPECT_EQ(cuda->cuEventDestroy_v2(untimed), kSuccess);
  ASSERT_EQ(cuda->cuCtxSetCurrent(nullptr), kSuccess);
  EXPECT_EQ(cuda->cuStreamCreate(&foreign, kStreamNonBlocking), kInvalidContext);
  EXPECT_EQ(cuda->cuMemsetD8_v2(memory, 0, 16), kInvalidContext);
  EXPECT_EQ(cuda->cuMemcpyAsync(memory, memory + 64, 16, stream), kInvalidContext);
  EXPECT_EQ(cuda->cuEventRecord(event, stream), kInvalidContext);
  ASSERT_EQ(cuda->cuDevicePrimaryCtxRetain(&second, 1), kSuccess);
  ASSERT_EQ(cuda->cuCtxSetCurrent(second), kSuccess);
  EXPECT_EQ(cuda->cuMemcpyAsync(memory, memory + 64, 16, stream), kInvalidHandle);
  ASSERT_EQ(cuda->cuStreamCreate(&foreign, kStreamNonBlocking), kSuccess);
  EXPECT_EQ(cuda->cuEventRecord(event, foreign), kInvalidHandle);
  ASSERT_EQ(cuda->cuCtxSetCurrent(context), kSuccess);
  EXPECT_EQ(cuda->cuEventRecord(event, stream), kSuccess);
  EXPECT_EQ(cuda->cuStreamDestroy_v2(foreign), kSuccess);
  EXPECT_EQ(cuda->cuStreamSynchronize(foreign), kInvalidHandle);
  EXPECT_EQ(cuda->cuEventDestroy_v2(event), kSuccess);
  EXPECT_EQ(cuda->cuStreamWaitEvent(stream, event, 0), kInvalidHandle);
  EXPECT_EQ(cuda->cuStreamDestroy_v2(stream), kSuccess);
}

TEST_F(CudaDriver, MemoryThatIsTakenIsTold) {
  size_t left = 0, all = 0;
  ASSERT_EQ(cuda->cuMemGetInfo_v2(&left, &all), kSuccess);
  CUdeviceptr others = 0;
  ASSERT_EQ(cuda->cuMemAlloc_v2(&others, size_t(5) << 30), kSuccess);
  auto device = makeCudaDevice("g", 0);
  ASSERT_FALSE(device.failed()) << device.message();
  auto arena = (*device)->allocate(bundle::DEVICE, size_t(4) << 30, {});
  ASSERT_TRUE(arena.failed());
  EXPECT_NE(arena.message().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << arena.message();
  EXPECT_NE(arena.message().find(" of its 8192 MiB are free, 51"), std::string::npos)
      << arena.message();
  EXPECT_NE(arena.message().find("'reserved_memory: 5"), std::string::npos) << arena.message();
  ASSERT_EQ(cuda->cuMemFree_v2(others), kSuccess);
  EXPECT_FALSE((*device)->allocate(bundle::DEVICE, size_t(4) << 30, {}).failed());
}

// According to NVIDIA's release notes.
TEST(BlasLibraries, WhatServesWhere) {
  EXPECT_EQ(whyNotServing(130100, {13000, 80}), "");
  EXPECT_EQ(whyNotServing(130100, {12080, 80}),
            "it needs a driver for CUDA 13.0, there is one for 12.8");
  EXPECT_EQ(whyNotServing(130100, {13000, 70}), "it has dropped GPUs of capability 7.0");
  EXPECT_EQ(whyNotServing(130000, {13010, 75}), "");
  EXPECT_EQ(whyNotServing(120900, {13000, 70}), "");
  EXPECT_EQ(whyNotServing(120900, {12000, 60}), "");
  EXPECT_EQ(whyNotServing(120600, {12080, 100}),
            "it is older than GPUs of capability 10.0, which 12.8.0 and later know");
  EXPECT_EQ(whyNotServing(120900, {12090, 120}), "");
  EXPECT_EQ(whyNotServing(111103, {11080, 90}), "");
  EXPECT_EQ(whyNotServing(110000, {11080, 89}),
            "it is older than GPUs of capability 8.9, which 11.11.0 and later know");
  EXPECT_EQ(whyNotServing(120900, {11080, 80}),
            "it needs a driver for CUDA 12.0, there is one for 11.8");
}

// The stand-ins refuse the same combinations as NVIDIA's releases. ctest repeats this test with
// other GPUs, drivers and broken libraries and sets the expected result.
TEST(BlasLibraries, TheNewestThatServesIsTaken) {
  const char *expected = std::getenv("ZORSE_TEST_EXPECTS");
  auto cuda = cudaApi();
  ASSERT_FALSE(cuda.failed()) << cuda.message();
  CUcontext context = nullptr;
  ASSERT_EQ((*cuda)->cuDevicePrimaryCtxRetain(&context, 0), kSuccess);
  ASSERT_EQ((*cuda)->cuCtxSetCurrent(context), kSuccess);
  auto blas = BlasLt::create(**cuda);
  const std::string found = blas.failed() ? blas.message() : (*blas)->version();
  EXPECT_NE(found.find(expected ? expected : "cuBLASLt 13.1.0"), std::string::npos) << found;
}

/// A function library with one product of square matrices per size.
bundle::FunctionLibrary squareProducts(std::initializer_list<int64_t> sizes) {
  bundle::FunctionLibrary library;
  library.set_arch("emu");
  for (int64_t size : sizes) {
    bundle::CompiledFunction &function = *library.add_functions();
    function.set_name("square");
    for (int i = 0; i < 3; ++i)
      function.add_arguments()->mutable_bytes()->set_fixed(4 * size * size);
    bundle::Matmul &product = *function.add_launches()->mutable_matmul();
    product.set_type(bundle::F32);
    product.mutable_m()->set_fixed(size), product.mutable_n()->set_fixed(size),
        product.mutable_k()->set_fixed(size);
    product.set_lda(size), product.set_ldb(size), product.set_ldc(size);
    product.set_alpha(1);
    product.mutable_a()->set_argument(0), product.mutable_b()->set_argument(1),
        product.mutable_c()->set_argument(2);
  }
  return library;
}

struct Silent final : QueueObserver {
  void finished(uint64_t, double, double) override {}
  void failed(uint64_t, const Error &error) override { ADD_FAILURE() << error.message; }
};

// cuBLASLt loads a kernel at its first run, which waits for the whole GPU. An NCCL kernel that
// waits for a peer may in turn wait for this product.
TEST_F(CudaDriver, ProductsThatAreWarmWaitForNoOtherStream) {
  auto made = makeCudaDevice("g", 0);
  ASSERT_FALSE(made.failed()) << made.message();
  QueuedDevice &device = **made;
  test::TemporaryDirectory directory;
  ASSERT_TRUE(device.loadFunctions(squareProducts({6, 7}), directory.path("")).succeeded());
  auto arena = device.allocate(bundle::DEVICE, 4096, {});
  ASSERT_FALSE(arena.failed()) << arena.message();
  Silent observer;
  ASSERT_TRUE(device.openQueues({0}, observer).succeeded());
  const DeviceAddress base = (*arena)->base(), addresses[] = {base, base + 512, base + 1024};
  const FunctionCall warm{0, {{1, 0, 0}, addresses, nullptr}},
      cold{1, {{1, 0, 0}, addresses, nullptr}};
  Result<bool> ran = device.warmUp(0, &warm, 1);
  ASSERT_FALSE(ran.failed()) << ran.message();
  EXPECT_TRUE(*ran);
  EXPECT_FALSE(*device.warmUp(0, &warm, 1)) << "the second time there is nothing to do";

  CUstream other = nullptr;
  ASSERT_EQ(cuda->cuStreamCreate(&other, kStreamNonBlocking), kSuccess);
  auto *spinning = static_cast<emulator::Stream *>(other);
  emulator::zorseStandInApart(spinning);
  std::promise<void> comes;
  ASSERT_EQ(emulator::zorseStandInPut(
                spinning, "a peer", {},
                [peer = comes.get_future().share()] { return peer.wait(), std::string(); }),
            0);
  const Event first = device.enqueue(0, nullptr, 0, CallWork{&warm, 1}, 0, false);
  device.flush();
  EXPECT_TRUE(device.wait(first).succeeded()); // would otherwise wait for the peer
  const Event second = device.enqueue(0, nullptr, 0, CallWork{&cold, 1}, 0, false);
  device.flush();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(device.isDone(second)) << "the stand-in does not wait, so this test shows nothing";
  comes.set_value();
  EXPECT_TRUE(device.wait(second).succeeded());
  device.closeQueues();
  cuda->cuStreamDestroy_v2(other);
}

TEST_F(CudaDriver, AnErrorOfTheCompilerComesWithItsLog) {
  test::TemporaryDirectory directory;
  const std::string zeros(8, '\0'),
      image = std::string("\x08").append(7, '\0') + "xxxxxxxx" + zeros; // one module of 8 bytes
                                                                        // that are not code
  directory.write("emu/kernels.bc", image);
  auto functions = CudaFunctions::create(*cuda, "emu");
  ASSERT_FALSE(functions.failed()) << functions.message();
  bundle::FunctionLibrary library;
  library.set_arch("emu");
  library.add_objects("kernels.bc");
  const Status status = (*functions)->load(library, directory.path(""));
  ASSERT_TRUE(status.failed());
  EXPECT_NE(status.message().find("cuModuleLoadDataEx"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find('\n'), std::string::npos) << status.message();
}

} // namespace
