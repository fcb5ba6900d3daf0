#include "zorse/runtime/ThrottledDevice.h"

#include "zorse/runtime/DeviceWrapper.h"

#include <cerrno>
#include <ctime>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr int64_t kSecond = 1000000000;

int64_t nanoseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t(time.tv_sec) * kSecond + time.tv_nsec;
}

class ThrottledDevice final : public DeviceWrapper<Device> {
public:
  ThrottledDevice(std::unique_ptr<Device> device, double share)
      : DeviceWrapper(std::move(device)), share_(share) {}

  std::string description() const override { return DeviceWrapper::description() + ", throttled"; }
  Status runFunction(uint32_t index, const FunctionArguments &arguments) override {
    // Absolute times, so that wake-up latency does not add up.
    int64_t begin = nanoseconds(CLOCK_MONOTONIC), worked = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    Status status = device_->runFunction(index, arguments);
    worked = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - worked;
    int64_t end = begin + int64_t(double(worked) / share_);
    timespec until = {time_t(end / kSecond), long(end % kSecond)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
    return status;
  }

private:
  double share_;
};

} // namespace

std::unique_ptr<Device> zorse::runtime::makeThrottledDevice(std::unique_ptr<Device> device,
                                                            double share) {
  return share < 1 ? std::make_unique<ThrottledDevice>(std::move(device), share)
                   : std::move(device);
}
