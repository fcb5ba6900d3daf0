#include "ThreadPool.h"

#include <algorithm>

using namespace zorse::runtime;

namespace {

constexpr int kSpins = 4000; // about 20 microseconds: less than half the cost of waking a sleeping
                             // thread

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

} // namespace

ThreadPool::ThreadPool(int threads, bool spin) : spin_(spin) {
  for (int i = 1; i < threads; ++i)
    workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  jobReady_.notify_all();
  for (std::thread &worker : workers_)
    worker.join();
}

void ThreadPool::takeItems(Function function, void *context, int64_t count) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;)
    function(context, i);
}

void ThreadPool::run(int64_t count, Function function, void *context) {
  if (count <= 0)
    return;
  if (count == 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i)
      function(context, i);
    return;
  }

  std::lock_guard<std::mutex> turn(caller_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    function_ = function;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    open_ = true;
    ++generation_;
  }
  if (count - 1 < static_cast<int64_t>(workers_.size()))
    for (int64_t i = 0; i < count - 1; ++i)
      jobReady_.notify_one();
  else
    jobReady_.notify_all();

  takeItems(function, context, count);

  // A worker that wakes up after this finds the job closed; workers inside still use `context`.
  std::unique_lock<std::mutex> lock(mutex_);
  open_ = false;
  if (spin_ && inside_ > 0) {
    lock.unlock();
    for (int i = 0; i < kSpins && inside_.load(std::memory_order_acquire) > 0; ++i)
      pause();
    lock.lock();
  }
  workersLeft_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadPool::work() {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    if (generation_ == seen) {
      if (spin_) {
        lock.unlock();
        for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; ++i)
          pause();
        lock.lock();
      }
      jobReady_.wait(lock, [&] { return generation_ != seen; });
    }
    seen = generation_;
    if (!open_ || stop_)
      continue;
    ++inside_;
    Function function = function_;
    void *context = context_;
    int64_t count = count_;
    lock.unlock();
    takeItems(function, context, count);
    lock.lock();
    if (--inside_ == 0)
      workersLeft_.notify_one();
  }
}
