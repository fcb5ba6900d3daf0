// Persistent state lent to readers between steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace zorse::runtime {

/// Updates of a device that wait until those who read its state have released it: how often it was lent and given back.
class StateHold {
public:
  void lend() { ++lent_; } ///< by the thread that submits steps, which is also the only one to ask for `lent`.
  uint64_t lent() const { return lent_; }

  void release() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++released_;
    }
    changed_.notify_all();
  }

  bool released(uint64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    return released_ >= count;
  }

  /// False when stopped.
  bool waitUntilReleased(uint64_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || released_ >= count; });
    return !stopped_;
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

private:
  uint64_t lent_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t released_ = 0;
  bool stopped_ = false;
};

} // namespace zorse::runtime
