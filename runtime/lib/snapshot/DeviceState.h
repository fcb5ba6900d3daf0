// The copy of one device's state that a snapshot is written from.
#pragma once

#include "Layout.h"

namespace zorse::runtime {

class DeviceState {
public:
  /// Makes room for the copy; the memory is touched, so that the first copy is as fast as the others.
  static Result<DeviceState> create(const Executor &executor, DeviceLayout layout);
  DeviceState(DeviceState &&other) noexcept;
  DeviceState &operator=(DeviceState &&) = delete;
  ~DeviceState();

  const DeviceLayout &layout() const { return layout_; }

  /// At memory speed, with several threads when the state is large.
  Status copy();

  const std::byte *data() const { return data_; }
  const abi::OptimizerStep &optimizerStep() const { return optimizerStep_; }

private:
  DeviceState(const Executor &executor, DeviceLayout layout) : executor_(&executor), layout_(std::move(layout)) {}

  const Executor *executor_;
  DeviceLayout layout_;
  std::byte *data_ = nullptr;
  size_t mapped_ = 0;
  int threads_ = 1;
  abi::OptimizerStep optimizerStep_ = {};
};

} // namespace zorse::runtime
