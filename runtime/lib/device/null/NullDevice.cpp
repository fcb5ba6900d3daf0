// A minimal driver: implements exactly the driver contract. To write a new driver, copy this file,
// replace the host memory by the device's memory, load code in loadFunctions and launch it in
// runFunction. test/runtime/DeviceConformance.h must pass after every step. withThreads provides
// queues; a driver with streams later implements QueuedDevice itself (docs/internals/extending.md).
#include "NullDevice.h"

#include "../HostMemory.h"
#include "bundle.pb.h"

#include <atomic>
#include <mutex>

using namespace zorse;
using namespace zorse::runtime;

namespace {

class NullDevice final : public Device {
public:
  explicit NullDevice(const std::string &name) : name_(name) {}

  std::string description() const override {
    return name_ + " (null: computes nothing, its results mean nothing)";
  }

  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                 const AllocationOptions &options) override {
    return allocateOnHost(name_, kind, bytes, options);
  }
  Status read(void *to, DeviceAddress from, size_t bytes) override {
    return moveOnHost(to, from.onHost(), bytes);
  }
  Status write(DeviceAddress to, const void *from, size_t bytes) override {
    return moveOnHost(to.onHost(), from, bytes);
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    return moveOnHost(to.onHost(), from.onHost(), bytes);
  }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override {
    return fillOnHost(to, value, bytes);
  }
  Result<void *> expose(DeviceAddress address, const std::string &transport) override {
    return exposeOnHost(name_, "null", address, transport);
  }

  /// There is no code to load. Invalid bundles are refused as by other drivers.
  Status loadFunctions(const bundle::FunctionLibrary &library, const KernelObjects &) override {
    for (const bundle::CompiledFunction &function : library.functions())
      for (const bundle::Launch &launch : function.launches())
        if (launch.what_case() == bundle::Launch::WHAT_NOT_SET)
          return userError(
              "device '" + name_ + "': function '" + function.name() +
              "' holds a launch that this runtime does not know; compile the model again");
    functions_ = uint32_t(library.functions_size());
    return Status::success();
  }

  Status runFunction(uint32_t index, const FunctionArguments &) override {
    if (index >= functions_)
      return internalError("device '" + name_ + "': function " + std::to_string(index) + " of " +
                           std::to_string(functions_) + " is called");
    std::lock_guard<std::mutex> lock(running_); // one function at a time
    launches_.fetch_add(1, std::memory_order_relaxed);
    return Status::success();
  }

  uint64_t launches() const override { return launches_.load(std::memory_order_relaxed); }

private:
  const std::string name_;
  uint32_t functions_ = 0;
  std::mutex running_;
  std::atomic<uint64_t> launches_{0};
};

} // namespace

std::unique_ptr<Device> zorse::runtime::makeNullDevice(const std::string &name) {
  return std::make_unique<NullDevice>(name);
}
