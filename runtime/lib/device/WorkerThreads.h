// Threads that execute queued work items in the order of enqueueing. The owner defines the items'
// meaning.
#pragma once

#include "zorse/runtime/Device.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace zorse::runtime {

/// Keeps the first failure, which is reported to all.
class FirstFailure {
public:
  /// Returns true if the error is the first.
  bool keep(const Error &error) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool first = !error_;
    if (first)
      error_ = error;
    return first;
  }

  /// Precondition: a failure was kept.
  Error get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return *error_;
  }

private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

class WorkerThreads {
public:
  struct Item {
    Work work;
    uint64_t tag;
    uint64_t number; ///< index in its queue, from 0
    uint32_t queue, waits;
    bool notify;
    bool last = false; ///< last item of a flushed batch: the worker may be idle after it
  };
  /// Called in the worker's thread, for each of its items in order. \param waits  the item's waits
  /// (Item::waits elements). Returning false ends the worker.
  using Serve = std::function<bool(const Item &item, const Event *waits)>;

  /// Call once. \param workers  worker of every queue, as in QueuedDevice::openQueues
  void open(const std::vector<uint32_t> &workers, Serve serve);
  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                uint64_t tag, bool notify);
  void flush();

  /// Any thread may call it, more than once. A worker ends when it asks for its next item. The
  /// caller must wake a `serve` that is blocked.
  void stop();
  void join();

private:
  struct Batch {
    std::vector<Item> items;
    std::vector<Event> waits; ///< waits of all items, in order
  };
  struct Worker {
    explicit Worker(uint32_t number) : number(number) {}
    const uint32_t number;
    Batch filling;    ///< used only by the thread that enqueues
    std::mutex mutex; ///< guards the members below
    std::condition_variable changed;
    std::deque<Batch> ready;
    Batch spare; ///< memory of a finished batch, reused to avoid allocation during a step
    bool stopped = false;
    std::thread thread;
  };

  void run(Worker &worker);

  Serve serve_;
  std::vector<uint64_t> enqueued_; ///< number of enqueued items, by queue
  std::list<Worker> workers_;
  std::vector<Worker *> workerOf_; ///< by queue
};

} // namespace zorse::runtime
