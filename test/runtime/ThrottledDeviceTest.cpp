#include "zorse/runtime/ThrottledDevice.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>

using namespace zorse;
using namespace zorse::runtime;

namespace {

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// Its functions use 20 ms of CPU time.
class Busy final : public Device {
public:
  std::string description() const override { return "busy"; }
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind, size_t,
                                                 const AllocationOptions &) override {
    return internalError("none");
  }
  Status read(void *, DeviceAddress, size_t) override { return Status::success(); }
  Status write(DeviceAddress, const void *, size_t) override { return Status::success(); }
  Status copy(DeviceAddress, DeviceAddress, size_t) override { return Status::success(); }
  Status fill(DeviceAddress, std::byte, size_t) override { return Status::success(); }
  Result<void *> expose(DeviceAddress, const std::string &) override {
    return internalError("none");
  }
  Status loadFunctions(const bundle::FunctionLibrary &, const KernelObjects &) override {
    return Status::success();
  }
  uint64_t launches() const override { return 7; }
  Status runFunction(uint32_t index, const FunctionArguments &) override {
    double begin = seconds(CLOCK_MONOTONIC), until = seconds(CLOCK_THREAD_CPUTIME_ID) + 0.02;
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < until) {
    }
    held = seconds(CLOCK_MONOTONIC) - begin;
    return index == 0 ? Status::success() : Status(userError("as asked"));
  }
  double held = 0; ///< seconds of the last function; longer if other processes use the CPU
};

TEST(ThrottledDevice, BodiesTakeOneOverTheShare) {
  auto owned = std::make_unique<Busy>();
  Busy &busy = *owned;
  std::unique_ptr<Device> device = makeThrottledDevice(std::move(owned), 0.25);
  EXPECT_EQ(device->launches(), 7u);
  double over = 1e9;
  for (int i = 0; i < 5; ++i) {
    double begin = seconds(CLOCK_MONOTONIC);
    EXPECT_FALSE(device->runFunction(0, {}).failed());
    double took = seconds(CLOCK_MONOTONIC) - begin;
    EXPECT_GE(took, 0.0799);
    over = std::min(over, took - std::max(0.08, busy.held));
  }
  EXPECT_LE(over, 0.004); // the best of five: wake-up may take long on a busy machine
  EXPECT_TRUE(device->runFunction(1, {}).failed());
}

TEST(ThrottledDevice, AWholeProcessorIsTheDeviceItself) {
  auto owned = std::make_unique<Busy>();
  Device *inner = owned.get();
  EXPECT_EQ(makeThrottledDevice(std::move(owned), 1).get(), inner);
}

} // namespace
