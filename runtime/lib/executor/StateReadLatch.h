// Counter pair that protects persistent state while readers copy it between steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace zorse::runtime {

/// Makes a device's updates wait until the readers of its state have released it. Counts how often
/// the state was lent and released.
class StateReadLatch {
public:
  void acquire() { ++lent_; } ///< only for the thread that submits steps, like `acquired`
  uint64_t acquired() const { return lent_; }

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

  /// Waits until the state has been released `count` times. Returns false if stopped.
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
