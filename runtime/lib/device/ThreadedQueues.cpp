// Queues for devices with blocking calls: one thread per worker.
#include "QueueCounters.h"
#include "WorkerThreads.h"

#include "zorse/runtime/DeviceWrapper.h"

#include <chrono>

using namespace zorse;
using namespace zorse::runtime;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class ThreadedDevice final : public DeviceWrapper<QueuedDevice> { // closeQueues(): threads end
                                                                  // before the device is destroyed
public:
  using DeviceWrapper::DeviceWrapper;
  ~ThreadedDevice() override { closeQueues(); }

  Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) override {
    if (counters_)
      return internalError("the queues of " + description() + " are opened twice");
    observer_ = &observer;
    counters_ = std::make_unique<QueueCounters>(workers.size());
    threads_.open(workers, [this](const WorkerThreads::Item &item, const Event *waits) {
      return serve(item, waits);
    });
    return Status::success();
  }

  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                uint64_t tag, bool notify) override {
    return threads_.enqueue(queue, waits, waitCount, work, tag, notify);
  }
  void flush() override { threads_.flush(); }

  bool isDone(Event event) const override { return counters_->reached(event.queue, event.count); }
  uint64_t done(uint32_t queue) const override { return counters_->finished(queue); }

  Status wait(Event event) override {
    return counters_->waitFor(event.queue, event.count) ? Status::success()
                                                        : Status(failure_.get());
  }

  void abort(const Error &why) override {
    failure_.keep(why);
    if (!counters_)
      return;
    threads_.stop();
    counters_->stop();
  }

  void closeQueues() override {
    abort(internalError("the queues of " + description() + " are closed"));
    threads_.join();
  }

private:
  /// Returns false if aborted.
  bool serve(const WorkerThreads::Item &item, const Event *waits) {
    for (uint32_t i = 0; i < item.waits; ++i)
      if (!counters_->waitFor(waits[i].queue, waits[i].count))
        return false;
    if (counters_->stopped())
      return false;
    double begin = item.notify ? now() : 0;
    if (Status status = std::visit([&](const auto &work) { return run(work); }, item.work);
        status.failed()) {
      const bool first = failure_.keep(status.error());
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
      if (Status status = device_->runFunction(work.calls[i].function, work.calls[i].arguments);
          status.failed())
        return status;
    }
    return Status::success();
  }
  Status run(const CopyWork &work) { return device_->copy(work.to, work.from, work.bytes); }
  Status run(const ReadWork &work) { return device_->read(work.to, work.from, work.bytes); }
  Status run(const WriteWork &work) { return device_->write(work.to, work.from, work.bytes); }
  Status run(const HostWork &work) { return work.task->run(work.argument, 0); }
  Status run(const StreamWork &) { return internalError(description() + " has no streams"); }

  QueueObserver *observer_ = nullptr;
  std::unique_ptr<QueueCounters> counters_;
  FirstFailure failure_;
  WorkerThreads threads_;
};

} // namespace

std::unique_ptr<QueuedDevice> zorse::runtime::withThreads(std::unique_ptr<Device> device) {
  return std::make_unique<ThreadedDevice>(std::move(device));
}
