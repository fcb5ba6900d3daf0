// The threads of one CPU device. They sleep between jobs and do not compete with another pool for
// cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace zorse::runtime {

class ThreadPool {
public:
  /// \param threads  number of threads, including the caller of forEach
  /// \param spin     poll for the next job for a few microseconds before sleeping
  ThreadPool(int threads, bool spin);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(i) for every i in [0, count), in any order on any thread. Returns when all calls
  /// have returned. Concurrent callers are served one at a time.
  template <typename Task> void forEach(int64_t count, Task &&task) {
    using Plain = std::remove_reference_t<Task>;
    run(
        count, [](void *context, int64_t i) { (*static_cast<Plain *>(context))(i); },
        const_cast<void *>(static_cast<const void *>(&task)));
  }

private:
  using Function = void (*)(void *, int64_t);

  void run(int64_t count, Function function, void *context);
  void work();
  void takeItems(Function function, void *context, int64_t count);

  std::vector<std::thread> workers_;
  bool spin_;
  std::mutex caller_;

  std::mutex mutex_;
  std::condition_variable jobReady_, workersLeft_;
  std::atomic<uint64_t> generation_{0}; ///< changes under mutex_ when a job opens or the pool stops
  bool stop_ = false;
  bool open_ = false; ///< workers may join the job
  Function function_ = nullptr;
  void *context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<int> inside_{0}; ///< workers that have joined the job; changes under mutex_
};

} // namespace zorse::runtime
