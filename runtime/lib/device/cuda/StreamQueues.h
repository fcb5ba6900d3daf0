// Queues that are CUDA streams. The host enqueues work on streams ahead of time, and devices wait
// for each other's queues without the host.
//
// The queues of one worker (openQueues) have two threads:
// - The recording thread processes the work in order. It waits until every event that a work item
//   waits for *is recorded* (not until it has completed), makes the stream wait for these events,
//   enqueues the work on the stream and records an event after it. Host work runs in this thread
//   once its events have completed; its own event is recorded when it is done. Work on a stream can
//   therefore always run without the host.
// - The watching thread waits for the recorded events in the order of recording and notifies the
//   observer.
//
// Transfers between GPUs are stream work like kernels: no thread waits for them.
//
// Waking a thread costs more than enqueueing a kernel. The recording thread therefore hands over
// many work items together, before it may block. If no queue has host work, the executor assigns
// all queues of a device to one worker: the events of its waits are then already recorded when it
// reaches them.
#pragma once

#include "../QueueCounters.h"
#include "../WorkerThreads.h"
#include "CudaApi.h"
#include "EventClock.h"

#include <map>
#include <memory>
#include <vector>

namespace zorse::runtime::cuda {

/// Operations that the queues need from their device.
class StreamTarget {
public:
  /// Makes the device's context current in the calling thread.
  virtual Status enter() const = 0;
  virtual Status launchFunction(const FunctionCall &call, CUstream stream) = 0;

protected:
  ~StreamTarget() = default;
};

/// A stream of the target on which other components enqueue work.
class TargetStream final : public WorkStream {
public:
  TargetStream(const CudaApi &cuda, StreamTarget &target, CUstream stream)
      : cuda_(cuda), target_(target), stream_(stream) {}
  void *handle() const override { return stream_; }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    return bytes == 0 ? Status::success()
                      : cuda_.check("cuMemcpyAsync",
                                    cuda_.cuMemcpyAsync(to.value, from.value, bytes, stream_));
  }
  Status call(const FunctionCall &call) override { return target_.launchFunction(call, stream_); }

private:
  const CudaApi &cuda_;
  StreamTarget &target_;
  CUstream stream_;
};

/// The queue functions of QueuedDevice, which documents them.
class StreamQueues {
public:
  /// All arguments must outlive this object.
  StreamQueues(const CudaApi &cuda, StreamTarget &target, std::string device,
               QueueObserver &observer)
      : cuda_(cuda), target_(target), device_(std::move(device)), observer_(observer),
        clock_(cuda) {}
  ~StreamQueues();

  Status open(const std::vector<uint32_t> &workers);
  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                uint64_t tag, bool notify) {
    return threads_.enqueue(queue, waits, waitCount, work, tag, notify);
  }
  CUstream stream(uint32_t queue) const { return queues_[queue]->stream; }
  void flush() { threads_.flush(); }
  bool isDone(Event event) const { return done_->reached(event.queue, event.count); }
  uint64_t done(uint32_t queue) const { return done_->finished(queue); }
  Status wait(Event event);
  void abort(const Error &why);
  void close();

private:
  /// A work item with a recorded event.
  struct RecordedWork {
    uint64_t tag = 0, number = 0;
    uint32_t queue = 0;
    bool notify = false, byHost = false;
    double begin = 0, end = 0; ///< of host work
    std::vector<Event> waits;  ///< on queues of other workers; these count as done before this item
                               ///< does
  };
  /// The queues of one worker.
  struct Worker {
    std::vector<RecordedWork> here; ///< used only by the recording thread: not handed over yet
    std::mutex mutex;               ///< guards the members below
    std::condition_variable changed;
    std::vector<RecordedWork> under; ///< handed over, not known to be done
    bool stopped = false;
    std::thread watcher;
  };
  struct Queue {
    CUstream stream = nullptr;
    Worker *worker = nullptr;
    std::mutex mutex; ///< guards the members below
    /// Rings of events, indexed by number modulo kEvents. `after` follows the work; other queues
    /// wait for it. `begin` and `end` surround work that the observer is notified of. Only these
    /// measure time, because streams can wait for events without timing sooner.
    std::vector<CUevent> after, begin, end;
    uint64_t recorded = 0; ///< number of work items with an event in `after`, now or earlier
  };
  static constexpr uint64_t kEvents = 1024;
  /// Number of yields before a thread sleeps. Work of the other thread mostly arrives within a few
  /// yields, and sleeping and waking takes longer (gpu_executor_overhead on two Zen 4 cores,
  /// through the host: 16 us per instruction with 0 yields, 11.5 us with 6).
  static constexpr int kTurns = 6;
  static constexpr size_t kTogether = 32; ///< maximum number of items that are handed over together

  bool serve(const WorkerThreads::Item &item, const Event *waits);
  Status submit(const WorkerThreads::Item &item, const Event *waits, RecordedWork &out);
  Status runOnHost(const WorkerThreads::Item &item, const Event *waits, RecordedWork &out);
  Status waitOnStream(CUstream stream, const Event *waits, uint32_t count);
  Status waitOnHost(const WorkerThreads::Item &item, const Event *waits);
  Status put(const Work &work, CUstream stream);
  Status record(Queue &queue, std::vector<CUevent> &ring, uint64_t number);
  void handOver(Worker &worker);
  void watch(Worker &worker);
  bool watch(const RecordedWork &work);
  void fail(uint64_t tag, const Error &error);
  Status call(const char *what, CUresult result) const;

  const CudaApi &cuda_;
  StreamTarget &target_;
  const std::string device_;
  QueueObserver &observer_;
  EventClock clock_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::map<uint32_t, Worker> workers_; ///< by worker number
  std::unique_ptr<QueueCounters> recorded_, done_;
  FirstFailure failure_;
  WorkerThreads threads_;
  bool closed_ = false;
};

} // namespace zorse::runtime::cuda
