// Progress counters of a device's queues, with blocking waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace zorse::runtime {

/// Counters of finished work, one per queue. A waiting thread sleeps and is woken only when its
/// queue has reached the count: waking threads that must continue to wait costs more than most work
/// items.
class QueueCounters {
public:
  explicit QueueCounters(size_t queues) : queues_(queues) {}

  uint64_t finished(uint32_t queue) const { return queues_[queue].finished.load(); }

  bool reached(uint32_t queue, uint64_t count) const {
    return queues_[queue].finished.load(std::memory_order_acquire) >= count;
  }

  /// Only the thread that serves `queue` calls this.
  void finish(uint32_t queue) {
    Queue &mine = queues_[queue];
    const uint64_t count = mine.finished.load(std::memory_order_relaxed) + 1;
    mine.finished.store(count);
    if (mine.wanted.load() > count)
      return;
    {
      std::lock_guard<std::mutex> lock(mutex_); // no thread is between its check and its wait
      mine.wanted = kNothing;                   // a thread that continues to wait sets it again
    }
    mine.changed.notify_all();
  }

  /// Returns false when stopped.
  bool waitFor(uint32_t queue, uint64_t count) {
    if (reached(queue, count))
      return true;
    Queue &mine = queues_[queue];
    std::unique_lock<std::mutex> lock(mutex_);
    mine.changed.wait(lock, [&] {
      mine.wanted = std::min(mine.wanted.load(), count);
      return stopped_.load() || mine.finished.load() >= count;
    });
    return mine.finished.load() >= count;
  }

  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    for (Queue &queue : queues_)
      queue.changed.notify_all();
  }

private:
  static constexpr uint64_t kNothing = UINT64_MAX;
  struct Queue {
    std::atomic<uint64_t> finished{0};
    std::atomic<uint64_t> wanted{kNothing}; ///< smallest count that a thread waits for; written
                                            ///< with `mutex_` held
    std::condition_variable changed;
  };
  std::vector<Queue> queues_;
  std::mutex mutex_;
  std::atomic<bool> stopped_{false};
};

} // namespace zorse::runtime
