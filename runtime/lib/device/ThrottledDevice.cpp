#include "zorse/runtime/ThrottledDevice.h"

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

class ThrottledDevice final : public Device {
public:
  ThrottledDevice(std::unique_ptr<Device> device, double share) : device_(std::move(device)), share_(share) {}

  std::string description() const override { return device_->description() + ", throttled"; }
  uint64_t ownMemory() const override { return device_->ownMemory(); }
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes, const AllocationOptions &options) override {
    return device_->allocate(kind, bytes, options);
  }
  Status read(void *to, DeviceAddress from, size_t bytes) override { return device_->read(to, from, bytes); }
  Status write(DeviceAddress to, const void *from, size_t bytes) override { return device_->write(to, from, bytes); }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override { return device_->copy(to, from, bytes); }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override { return device_->fill(to, value, bytes); }
  Result<void *> expose(DeviceAddress address, const std::string &transport) override { return device_->expose(address, transport); }
  Status loadBodies(const bundle::BodyLibrary &library, const KernelObjects &objects) override { return device_->loadBodies(library, objects); }
  uint64_t launches() const override { return device_->launches(); }

  Status runBody(uint32_t index, const BodyArguments &arguments) override {
    // Absolute times: what waking up costs is not added.
    int64_t begin = nanoseconds(CLOCK_MONOTONIC), worked = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    Status status = device_->runBody(index, arguments);
    worked = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - worked;
    int64_t end = begin + int64_t(double(worked) / share_);
    timespec until = {time_t(end / kSecond), long(end % kSecond)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
    return status;
  }

private:
  std::unique_ptr<Device> device_;
  double share_;
};

} // namespace

std::unique_ptr<Device> zorse::runtime::makeThrottledDevice(std::unique_ptr<Device> device, double share) {
  return share < 1 ? std::make_unique<ThrottledDevice>(std::move(device), share) : std::move(device);
}
