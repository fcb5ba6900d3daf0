#include "WorkerThreads.h"

#include <algorithm>

using namespace zorse::runtime;

void WorkerThreads::open(const std::vector<uint32_t> &workers, Serve serve) {
  serve_ = std::move(serve);
  enqueued_.assign(workers.size(), 0);
  for (uint32_t number : workers) {
    auto found = std::find_if(workers_.begin(), workers_.end(),
                              [&](const Worker &worker) { return worker.number == number; });
    workerOf_.push_back(found != workers_.end() ? &*found : &workers_.emplace_back(number));
  }
  for (Worker &worker : workers_)
    worker.thread = std::thread([this, &worker] { run(worker); });
}

Event WorkerThreads::enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                             uint64_t tag, bool notify) {
  Batch &batch = workerOf_[queue]->filling;
  batch.waits.insert(batch.waits.end(), waits, waits + waitCount);
  batch.items.push_back({work, tag, enqueued_[queue], queue, uint32_t(waitCount), notify});
  return {queue, ++enqueued_[queue]};
}

void WorkerThreads::flush() {
  for (Worker &worker : workers_) {
    if (worker.filling.items.empty())
      continue;
    worker.filling.items.back().last = true;
    {
      std::lock_guard<std::mutex> lock(worker.mutex);
      worker.ready.push_back(std::move(worker.filling));
      worker.filling = std::move(worker.spare);
      worker.spare = {};
    }
    worker.changed.notify_one();
  }
}

void WorkerThreads::stop() {
  for (Worker &worker : workers_) {
    std::lock_guard<std::mutex> lock(worker.mutex);
    worker.stopped = true;
    worker.changed.notify_one();
  }
}

void WorkerThreads::join() {
  for (Worker &worker : workers_)
    if (worker.thread.joinable())
      worker.thread.join();
}

void WorkerThreads::run(Worker &worker) {
  for (;;) {
    Batch batch;
    {
      std::unique_lock<std::mutex> lock(worker.mutex);
      worker.changed.wait(lock, [&] { return worker.stopped || !worker.ready.empty(); });
      if (worker.stopped)
        return;
      batch = std::move(worker.ready.front());
      worker.ready.pop_front();
    }
    const Event *waits = batch.waits.data();
    for (const Item &item : batch.items) {
      if (!serve_(item, waits))
        return;
      waits += item.waits;
    }
    batch.items.clear();
    batch.waits.clear();
    std::lock_guard<std::mutex> lock(worker.mutex);
    worker.spare = std::move(batch);
  }
}
