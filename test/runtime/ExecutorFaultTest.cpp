// Tests the executor when a device fails, when the data ends, and when nothing makes progress.
#include "ExecutorRig.h"
#include "Patience.h"

#include "zorse/runtime/DeviceWrapper.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

/// Forwards all calls; fails or delays as configured.
class TroubledDevice final : public DeviceWrapper<Device> {
public:
  /// A function takes `naps` additional launches of `napMilliseconds` each.
  TroubledDevice(std::unique_ptr<Device> inner, int failAt, int naps = 0, int napMilliseconds = 0)
      : DeviceWrapper(std::move(inner)), failAt_(failAt), naps_(naps), nap_(napMilliseconds) {}
  Status runFunction(uint32_t index, const FunctionArguments &arguments) override {
    if (calls_++ == failAt_)
      return userError("the device has gone");
    for (int i = 0; i < naps_; ++i, ++launches_)
      std::this_thread::sleep_for(std::chrono::milliseconds(nap_));
    return DeviceWrapper::runFunction(index, arguments);
  }
  uint64_t launches() const override { return launches_ + DeviceWrapper::launches(); }

private:
  int failAt_, naps_, nap_, calls_ = 0;
  std::atomic<uint64_t> launches_{0};
};

/// Blocks receives until the run is aborted.
class DeafTransport final : public Transport {
public:
  explicit DeafTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  Status send(Operation o, uint32_t peer, const void *data, size_t bytes) override {
    return inner_->send(o, peer, data, bytes);
  }
  Status receive(Operation, uint32_t, void *, size_t) override {
    int ignored = 0;
    return inner_->receive({9999, 0}, 0, &ignored, sizeof ignored); // no rank sends this
  }
  Status allGather(Operation o, const AllGatherArguments &a) override {
    return inner_->allGather(o, a);
  }
  Status reduceScatter(Operation o, const ReduceScatterArguments &a) override {
    return inner_->reduceScatter(o, a);
  }
  Status allReduce(Operation o, const AllReduceArguments &a) override {
    return inner_->allReduce(o, a);
  }
  uint64_t moved() const override { return inner_->moved(); }
  void abort(const Error &why) override { inner_->abort(why); }

private:
  std::unique_ptr<Transport> inner_;
};

TEST_F(ExecutorTest, AFailureNamesDeviceEntryAndTaskAndStopsEverybody) {
  for (int failAt : {0, 3, 11}) {
    auto devices = makeDevices();
    devices[1] = std::make_unique<TroubledDevice>(std::move(devices[1]), failAt);
    auto executor = make({}, std::move(devices));
    ASSERT_TRUE(executor);
    std::vector<StepReport> reports;
    Result<TrainingEnd> status = train(*executor, two.bundle, training(20, reports));
    ASSERT_TRUE(status.failed());
    EXPECT_EQ(status.error().kind, ErrorKind::User);
    EXPECT_NE(status.message().find("device beta, instruction "), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("the device has gone"), std::string::npos) << status.message();
    if (failAt == 0) {
      EXPECT_NE(status.message().find("(F(cell 1, units 1-2, samples 0-3))"), std::string::npos)
          << status.message();
    }
    EXPECT_TRUE(executor->wait().failed()); // stays failed
  }
}

TEST_F(ExecutorTest, NothingMovingIsReportedWithWhatEverybodyWaitsFor) {
  auto transports = makeLocalTransports(2);
  transports[1] = std::make_unique<DeafTransport>(std::move(transports[1]));
  ExecutorOptions options;
  options.watchdogTimeoutSeconds = 0.2;
  auto executor = make(options, {}, std::move(transports));
  ASSERT_TRUE(executor);
  std::vector<StepReport> reports;
  Result<TrainingEnd> status = train(*executor, two.bundle, training(2, reports));
  ASSERT_TRUE(status.failed());
  EXPECT_EQ(status.error().kind, ErrorKind::Internal);
  EXPECT_NE(status.message().find("device beta: instruction "), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("(receive from alpha)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("device alpha"), std::string::npos) << status.message();
}

TEST_F(ExecutorTest, SlowComputingIsNotAStall) {
  // A function of ten launches: each is shorter than the deadline, all together are longer.
  auto devices = makeDevices();
  devices[0] = std::make_unique<TroubledDevice>(std::move(devices[0]), -1, 10, 70);
  ExecutorOptions options;
  options.watchdogTimeoutSeconds = 0.5;
  auto executor = make(options, std::move(devices));
  std::vector<StepReport> reports;
  Result<TrainingEnd> status = train(*executor, two.bundle, training(1, reports));
  EXPECT_FALSE(status.failed()) << status.message();
}

TEST_F(ExecutorTest, ABodyThatDoesNotReturnIsReported) {
  auto devices = makeDevices();
  const double patience = std::min(4.0, zorse::test::patience());
  devices[0] = std::make_unique<TroubledDevice>(std::move(devices[0]), -1, 1, int(1000 * patience));
  ExecutorOptions options;
  options.watchdogTimeoutSeconds = 0.2;
  auto executor = make(options, std::move(devices));
  std::vector<StepReport> reports;
  auto begin = std::chrono::steady_clock::now();
  Result<TrainingEnd> status = train(*executor, two.bundle, training(1, reports));
  ASSERT_TRUE(status.failed());
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
            0.9 * patience); // the function has not returned yet
  EXPECT_NE(status.message().find("device alpha: instruction "), std::string::npos)
      << status.message();
}

TEST_F(ExecutorTest, DataThatEndsWhileStepsAreUnderWayEndsTheRun) {
  auto executor = make();
  data.failAt = 15;
  std::vector<StepReport> reports;
  Result<TrainingEnd> status = train(*executor, two.bundle, training(10, reports));
  ASSERT_TRUE(status.failed());
  EXPECT_EQ(status.message(), "the data ends here");
  executor.reset(); // must not hang
}

} // namespace
