// A device that forwards every call to another device. Base class of devices that change a few
// calls.
#pragma once

#include "zorse/runtime/Device.h"

#include <memory>
#include <utility>

namespace zorse::runtime {

/// \tparam Base  Device or a subclass of it
template <typename Base> class DeviceWrapper : public Base {
public:
  explicit DeviceWrapper(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::string description() const override { return device_->description(); }
  uint64_t ownMemory() const override { return device_->ownMemory(); }
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                 const AllocationOptions &options) override {
    return device_->allocate(kind, bytes, options);
  }
  Status read(void *to, DeviceAddress from, size_t bytes) override {
    return device_->read(to, from, bytes);
  }
  Status write(DeviceAddress to, const void *from, size_t bytes) override {
    return device_->write(to, from, bytes);
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    return device_->copy(to, from, bytes);
  }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override {
    return device_->fill(to, value, bytes);
  }
  Result<void *> expose(DeviceAddress address, const std::string &transport) override {
    return device_->expose(address, transport);
  }
  Status loadFunctions(const bundle::FunctionLibrary &library,
                       const KernelObjects &objects) override {
    return device_->loadFunctions(library, objects);
  }
  Status runFunction(uint32_t index, const FunctionArguments &arguments) override {
    return device_->runFunction(index, arguments);
  }
  uint64_t launches() const override { return device_->launches(); }

protected:
  std::unique_ptr<Device> device_;
};

} // namespace zorse::runtime
