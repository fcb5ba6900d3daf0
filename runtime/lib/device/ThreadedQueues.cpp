// Queues for devices whose calls block: a thread per worker.
#include "QueueCounters.h"
#include "zorse/runtime/Device.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <optional>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class ThreadedDevice final : public QueuedDevice {
public:
  explicit ThreadedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  ~ThreadedDevice() override { closeQueues(); }

  std::string description() const override { return device_->description(); }
  Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes, const AllocationOptions &options) override {
    return device_->allocate(kind, bytes, options);
  }
  Status read(void *to, DeviceAddress from, size_t bytes) override { return device_->read(to, from, bytes); }
  Status write(DeviceAddress to, const void *from, size_t bytes) override { return device_->write(to, from, bytes); }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override { return device_->copy(to, from, bytes); }
  Status fill(DeviceAddress to, std::byte value, size_t bytes) override { return device_->fill(to, value, bytes); }
  Result<void *> expose(DeviceAddress address, const std::string &transport) override { return device_->expose(address, transport); }
  Status loadBodies(const bundle::BodyLibrary &library, const std::string &directory) override { return device_->loadBodies(library, directory); }
  Status runBody(uint32_t index, const BodyArguments &arguments) override { return device_->runBody(index, arguments); }
  uint64_t launches() const override { return device_->launches(); }

  Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) override {
    if (counters_)
      return internalError("the queues of " + description() + " are opened twice");
    observer_ = &observer;
    counters_ = std::make_unique<QueueCounters>(workers.size());
    enqueued_.assign(workers.size(), 0);
    for (uint32_t number : workers) {
      auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker &worker) { return worker.number == number; });
      workerOf_.push_back(found != workers_.end() ? &*found : &workers_.emplace_back(number));
    }
    for (Worker &worker : workers_)
      worker.thread = std::thread([this, &worker] { serve(worker); });
    return Status::success();
  }

  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work, uint64_t tag, bool notify) override {
    Batch &batch = workerOf_[queue]->filling;
    batch.waits.insert(batch.waits.end(), waits, waits + waitCount);
    batch.items.push_back({work, tag, queue, uint32_t(waitCount), notify});
    return {queue, ++enqueued_[queue]};
  }

  void flush() override {
    for (Worker &worker : workers_) {
      if (worker.filling.items.empty())
        continue;
      {
        std::lock_guard<std::mutex> lock(worker.mutex);
        worker.ready.push_back(std::move(worker.filling));
        worker.filling = std::move(worker.spare);
        worker.spare = {};
      }
      worker.changed.notify_one();
    }
  }

  bool isDone(Event event) const override { return counters_->reached(event.queue, event.count); }
  uint64_t done(uint32_t queue) const override { return counters_->finished(queue); }

  Status wait(Event event) override {
    if (counters_->waitFor(event.queue, event.count))
      return Status::success();
    std::lock_guard<std::mutex> lock(failureMutex_);
    return *failure_;
  }

  void abort(const Error &why) override {
    {
      std::lock_guard<std::mutex> lock(failureMutex_);
      if (!failure_)
        failure_ = why;
    }
    if (!counters_)
      return;
    for (Worker &worker : workers_) {
      std::lock_guard<std::mutex> lock(worker.mutex);
      worker.stopped = true;
      worker.changed.notify_one();
    }
    counters_->stop();
  }

  void closeQueues() override {
    abort(internalError("the queues of " + description() + " are closed"));
    for (Worker &worker : workers_)
      if (worker.thread.joinable())
        worker.thread.join();
  }

private:
  struct Item {
    Work work;
    uint64_t tag;
    uint32_t queue, waits;
    bool notify;
  };
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

  void serve(Worker &worker) {
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
        if (!runItem(item, waits))
          return;
        waits += item.waits;
      }
      batch.items.clear();
      batch.waits.clear();
      std::lock_guard<std::mutex> lock(worker.mutex);
      worker.spare = std::move(batch);
    }
  }

  /// False: given up.
  bool runItem(const Item &item, const Event *waits) {
    for (uint32_t i = 0; i < item.waits; ++i)
      if (!counters_->waitFor(waits[i].queue, waits[i].count))
        return false;
    if (counters_->stopped())
      return false;
    double begin = item.notify ? now() : 0;
    if (Status status = std::visit([&](const auto &work) { return run(work); }, item.work); status.failed()) {
      bool first = false;
      {
        std::lock_guard<std::mutex> lock(failureMutex_);
        first = !failure_;
        if (first)
          failure_ = status.error();
      }
      abort(status.error());
      if (first)
        observer_->failed(item.tag, status.error());
      return false;
    }
    if (item.notify)
      observer_->finished(item.tag, begin, now());
    counters_->finish(item.queue);
    return true;
  }

  Status run(const NoWork &) { return Status::success(); }
  Status run(const CallWork &work) {
    for (size_t i = 0; i < work.count; ++i) {
      if (work.before)
        if (Status status = work.before->run(work.argument, i); status.failed())
          return status;
      if (Status status = device_->runBody(work.calls[i].body, work.calls[i].arguments); status.failed())
        return status;
    }
    return Status::success();
  }
  Status run(const CopyWork &work) { return device_->copy(work.to, work.from, work.bytes); }
  Status run(const ReadWork &work) { return device_->read(work.to, work.from, work.bytes); }
  Status run(const WriteWork &work) { return device_->write(work.to, work.from, work.bytes); }
  Status run(const HostWork &work) { return work.task->run(work.argument, 0); }

  std::unique_ptr<Device> device_; ///< outlives the threads: closeQueues().
  QueueObserver *observer_ = nullptr;
  std::unique_ptr<QueueCounters> counters_;
  std::vector<uint64_t> enqueued_; ///< per queue
  std::list<Worker> workers_;
  std::vector<Worker *> workerOf_; ///< per queue
  std::mutex failureMutex_;
  std::optional<Error> failure_;
};

} // namespace

std::unique_ptr<QueuedDevice> zorse::runtime::withThreads(std::unique_ptr<Device> device) {
  return std::make_unique<ThreadedDevice>(std::move(device));
}
