// How far the queues of one device are, and waiting for that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace zorse::runtime {

/// Counters of finished work, one per queue. Whoever waits sleeps.
class QueueCounters {
public:
  explicit QueueCounters(size_t queues) : finished_(queues) {}

  uint64_t finished(uint32_t queue) const { return finished_[queue].load(); }

  bool reached(uint32_t queue, uint64_t count) const { return finished_[queue].load(std::memory_order_acquire) >= count; }

  /// Only the thread that serves `queue` calls this.
  void finish(uint32_t queue) {
    finished_[queue].store(finished_[queue].load(std::memory_order_relaxed) + 1);
    if (waiters_.load() > 0) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      } // nobody is between its test and its wait.
      changed_.notify_all();
    }
  }

  /// Returns false when stopped.
  bool waitFor(uint32_t queue, uint64_t count) {
    if (finished_[queue].load() >= count)
      return true;
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiters_;
    changed_.wait(lock, [&] { return stopped_.load() || finished_[queue].load() >= count; });
    --waiters_;
    return finished_[queue].load() >= count;
  }

  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

private:
  std::vector<std::atomic<uint64_t>> finished_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiters_{0};
  std::atomic<bool> stopped_{false};
};

} // namespace zorse::runtime
