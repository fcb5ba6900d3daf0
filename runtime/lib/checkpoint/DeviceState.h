// The copy of one device's state from which a checkpoint is written.
#pragma once

#include "Layout.h"

namespace zorse::runtime {

/// Copies a device's state at memory bandwidth, with several threads if it is large.
/// \param target  layout.stateBytes bytes
Status copyDeviceState(const Executor &executor, const DeviceLayout &layout, std::byte *target,
                       abi::OptimizerStep &optimizerStep);

class DeviceState {
public:
  /// Allocates the memory of the copy and touches it, so that the first copy is as fast as the
  /// later ones.
  static Result<DeviceState> create(const Executor &executor, DeviceLayout layout);
  DeviceState(DeviceState &&other) noexcept;
  DeviceState &operator=(DeviceState &&) = delete;
  ~DeviceState();

  const DeviceLayout &layout() const { return layout_; }

  Status copy() { return copyDeviceState(*executor_, layout_, data_, optimizerStep_); }

  const std::byte *data() const { return data_; }
  const abi::OptimizerStep &optimizerStep() const { return optimizerStep_; }

private:
  DeviceState(const Executor &executor, DeviceLayout layout)
      : executor_(&executor), layout_(std::move(layout)) {}

  const Executor *executor_;
  DeviceLayout layout_;
  std::byte *data_ = nullptr;
  size_t mapped_ = 0;
  abi::OptimizerStep optimizerStep_ = {};
};

} // namespace zorse::runtime
