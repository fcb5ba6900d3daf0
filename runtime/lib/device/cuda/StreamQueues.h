// Queues that are streams, and events that are events: the host puts work on streams ahead of time, and devices wait for each other's queues by
// themselves.
//
// Queues of one worker (openQueues) have two threads. One takes their work in order: it waits until everything that a piece of work waits for has *an
// event recorded* (not until it has come), makes the stream wait for these events, puts the work on the stream and records an event behind it. Work
// of the host is done in this thread once its events have come; the event that stands for it is recorded when it is done. So whatever stands on a
// stream can run without the host. The other thread waits for the recorded events in the order of recording, and tells the observer. Transfers from
// GPU to GPU are work on streams like kernels: no thread waits for them.
//
// To wake a thread costs more than to put a kernel on a stream. So the first thread hands over many pieces at once, before it may wait for anything;
// and where nothing is the host's work, the executor gives all queues of a device one worker, whose waits are recorded when it comes to them.
#pragma once

#include "../QueueCounters.h"
#include "../WorkerThreads.h"
#include "CudaApi.h"
#include "EventClock.h"

#include <map>
#include <memory>
#include <vector>

namespace zorse::runtime::cuda {

/// What queues ask of their device.
class StreamTarget {
public:
  /// Makes its context the calling thread's.
  virtual Status enter() const = 0;
  virtual Status launchBody(const BodyCall &call, CUstream stream) = 0;

protected:
  ~StreamTarget() = default;
};

/// A stream of the target for work of others.
class TargetStream final : public WorkStream {
public:
  TargetStream(const CudaApi &cuda, StreamTarget &target, CUstream stream) : cuda_(cuda), target_(target), stream_(stream) {}
  void *handle() const override { return stream_; }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    return bytes == 0 ? Status::success() : cuda_.check("cuMemcpyAsync", cuda_.cuMemcpyAsync(to.value, from.value, bytes, stream_));
  }
  Status call(const BodyCall &call) override { return target_.launchBody(call, stream_); }

private:
  const CudaApi &cuda_;
  StreamTarget &target_;
  CUstream stream_;
};

/// The half of QueuedDevice that is about queues; see there.
class StreamQueues {
public:
  /// All outlive this object.
  StreamQueues(const CudaApi &cuda, StreamTarget &target, std::string device, QueueObserver &observer)
      : cuda_(cuda), target_(target), device_(std::move(device)), observer_(observer), clock_(cuda) {}
  ~StreamQueues();

  Status open(const std::vector<uint32_t> &workers);
  Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work, uint64_t tag, bool notify) {
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
  /// A piece of work whose event has been recorded.
  struct Recorded {
    uint64_t tag = 0, number = 0;
    uint32_t queue = 0;
    bool notify = false, byHost = false;
    double begin = 0, end = 0; ///< of work of the host
    std::vector<Event> waits;  ///< of queues of other workers; counted as done before it is
  };
  /// The queues of one worker.
  struct Worker {
    std::vector<Recorded> here; ///< of the thread that records: not handed over yet
    std::mutex mutex;           ///< guards what follows
    std::condition_variable changed;
    std::vector<Recorded> under; ///< recorded, and not known to be done
    bool stopped = false;
    std::thread watcher;
  };
  struct Queue {
    CUstream stream = nullptr;
    Worker *worker = nullptr;
    std::mutex mutex; ///< guards what follows
    /// Rings, by number modulo kEvents: behind a piece of work, which others wait for; and where the observer hears of it, its begin and its end.
    /// Those alone know the time: streams wait for others sooner.
    std::vector<CUevent> after, begin, end;
    uint64_t recorded = 0; ///< pieces of work with an event in `after`, now or earlier
  };
  static constexpr uint64_t kEvents = 1024;
  /// Turns that a thread gives away before it sleeps: work of the other thread mostly comes within a few, and to sleep and be woken takes longer
  /// (gpu_executor_overhead on two cores of Zen 4: 6.8 us an entry without, 4.4 with 6, 6.4 with 20).
  static constexpr int kTurns = 6;
  static constexpr size_t kTogether = 32; ///< pieces that are handed over at once, at most

  bool serve(const WorkerThreads::Item &item, const Event *waits);
  Status submit(const WorkerThreads::Item &item, const Event *waits, Recorded &out);
  Status runOnHost(const WorkerThreads::Item &item, const Event *waits, Recorded &out);
  Status waitOnStream(CUstream stream, const Event *waits, uint32_t count);
  Status waitOnHost(const WorkerThreads::Item &item, const Event *waits);
  Status put(const Work &work, CUstream stream);
  Status record(Queue &queue, std::vector<CUevent> &ring, uint64_t number);
  void handOver(Worker &worker);
  void watch(Worker &worker);
  bool watch(const Recorded &work);
  void fail(uint64_t tag, const Error &error);
  Status call(const char *what, CUresult result) const;

  const CudaApi &cuda_;
  StreamTarget &target_;
  const std::string device_;
  QueueObserver &observer_;
  EventClock clock_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::map<uint32_t, Worker> workers_; ///< by number
  std::unique_ptr<QueueCounters> recorded_, done_;
  FirstFailure failure_;
  WorkerThreads threads_;
  bool closed_ = false;
};

} // namespace zorse::runtime::cuda
