// Several readers of a device's state between two steps, such as a checkpoint to storage and one in
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace zorse::runtime {

/// Releases a device's state after all of its readers have released it.
class StateReaders {
public:
  /// \param release  Executor::releaseState
  explicit StateReaders(std::function<void(uint32_t device)> release)
      : release_(std::move(release)) {}

  /// Announces another reader of the state that is quiescent now.
  void add(uint32_t device) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++others_[device];
  }

  void release(uint32_t device) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (uint32_t &others = others_[device]; others > 0) {
        --others;
        return;
      }
    }
    release_(device);
  }

private:
  std::function<void(uint32_t)> release_;
  std::mutex mutex_;
  std::map<uint32_t, uint32_t> others_; ///< readers but one
};

} // namespace zorse::runtime
