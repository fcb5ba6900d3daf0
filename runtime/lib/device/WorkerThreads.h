// Threads that take work off queues in the order of enqueueing. What a piece of work means is the owner's matter.
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

/// The failure that everybody hears of: the first.
class FirstFailure {
public:
  /// True if this is it.
  bool keep(const Error &error) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool first = !error_;
    if (first)
      error_ = error;
    return first;
  }

  /// Precondition: there is one.
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
    uint64_t number; ///< in its queue, from 0
    uint32_t queue, waits;
    bool notify;
    bool last = false; ///< of what was flushed together: the worker may have nothing to do after it
  };
  /// In the worker's thread, for each of its items in order. \param waits  as many as the item has. False: the worker ends.
  using Serve = std::function<bool(const Item &item, const Event *waits)>;

  /// Once. \param workers  by queue, as QueuedDevice::openQueues
  void open(const std::vector<uint32_t> &workers, Serve serve);
  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work, uint64_t tag, bool notify);
  void flush();

  /// From any thread, more than once: workers end when they ask for more. Whoever stops them wakes `serve`.
  void stop();
  void join();

private:
  struct Batch {
    std::vector<Item> items;
    std::vector<Event> waits; ///< of all items, in order
  };
  struct Worker {
    explicit Worker(uint32_t number) : number(number) {}
    const uint32_t number;
    Batch filling;    ///< of the thread that enqueues
    std::mutex mutex; ///< guards what follows
    std::condition_variable changed;
    std::deque<Batch> ready;
    Batch spare; ///< memory of a batch that is done: no allocation in a step.
    bool stopped = false;
    std::thread thread;
  };

  void run(Worker &worker);

  Serve serve_;
  std::vector<uint64_t> enqueued_; ///< per queue
  std::list<Worker> workers_;
  std::vector<Worker *> workerOf_; ///< per queue
};

} // namespace zorse::runtime
