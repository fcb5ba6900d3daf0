#include "StreamQueues.h"

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

StreamQueues::~StreamQueues() {
  close();
  (void)target_.enter();
  for (auto &queue : queues_) {
    for (const auto *ring : {&queue->after, &queue->begin, &queue->end})
      for (CUevent event : *ring)
        if (event)
          cuda_.cuEventDestroy_v2(event);
    if (queue->stream)
      cuda_.cuStreamDestroy_v2(queue->stream);
  }
}

Status StreamQueues::open(const std::vector<uint32_t> &workers) {
  if (Status status = clock_.open(); status.failed())
    return status;
  recorded_ = std::make_unique<QueueCounters>(workers.size());
  done_ = std::make_unique<QueueCounters>(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    Queue &queue = *queues_.emplace_back(std::make_unique<Queue>());
    for (std::vector<CUevent> *ring : {&queue.after, &queue.begin, &queue.end})
      ring->resize(kEvents);
    queue.worker = &workers_[workers[i]];
    if (Status status =
            call("cuStreamCreate", cuda_.cuStreamCreate(&queue.stream, kStreamNonBlocking));
        status.failed())
      return status;
  }
  for (auto &[number, worker] : workers_)
    worker.watcher = std::thread([this, &worker = worker] { watch(worker); });
  threads_.open(workers, [this](const WorkerThreads::Item &item, const Event *waits) {
    return serve(item, waits);
  });
  return Status::success();
}

Status StreamQueues::wait(Event event) {
  return done_->waitFor(event.queue, event.count) ? Status::success() : Status(failure_.get());
}

void StreamQueues::abort(const Error &why) {
  failure_.keep(why);
  threads_.stop();
  recorded_->stop();
  done_->stop();
  for (auto &[number, worker] : workers_) {
    std::lock_guard<std::mutex> lock(worker.mutex);
    worker.stopped = true;
    worker.changed.notify_all();
  }
}

void StreamQueues::close() {
  if (closed_ || !done_)
    return;
  closed_ = true;
  abort(internalError("the queues of device '" + device_ + "' are closed"));
  threads_.join();
  for (auto &[number, worker] : workers_)
    if (worker.watcher.joinable())
      worker.watcher.join();
  (void)target_.enter();
  for (auto &queue : queues_) // work on the streams is completed
    if (queue->stream)
      cuda_.cuStreamSynchronize(queue->stream);
}

Status StreamQueues::call(const char *what, CUresult result) const {
  return result == kSuccess
             ? Status::success()
             : Status(userError("device '" + device_ + "': " + cuda_.describe(what, result)));
}

void StreamQueues::fail(uint64_t tag, const Error &error) {
  const bool first = failure_.keep(error);
  abort(error);
  if (first)
    observer_.failed(tag, error);
}

bool StreamQueues::serve(const WorkerThreads::Item &item, const Event *waits) {
  Queue &queue = *queues_[item.queue];
  Worker &worker = *queue.worker;
  auto waitFor = [&](QueueCounters &counters, uint32_t other, uint64_t count) {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (counters.reached(other, count))
        return true;
      std::this_thread::yield();
    }
    handOver(worker);
    return counters.waitFor(other, count);
  };
  for (uint32_t i = 0; i < item.waits; ++i)
    if (!waitFor(*recorded_, waits[i].queue, waits[i].count))
      return false;
  // The item's ring entry is free once the work that used it is done.
  if (item.number >= kEvents && !waitFor(*done_, item.queue, item.number - kEvents + 1))
    return false;
  if (recorded_->stopped())
    return false;
  const auto *calls = std::get_if<CallWork>(&item.work);
  RecordedWork out{
      item.tag, item.number, item.queue, item.notify, std::holds_alternative<HostWork>(item.work),
      0,        0,           {}};
  if (out.byHost || (calls && calls->before)) // these may block
    handOver(worker);
  for (uint32_t i = 0; i < item.waits; ++i)
    if (queues_[waits[i].queue]->worker != &worker)
      out.waits.push_back(waits[i]);
  Status status = target_.enter();
  if (status.succeeded())
    status = out.byHost ? runOnHost(item, waits, out) : submit(item, waits, out);
  if (status.succeeded() && item.notify && !out.byHost)
    status = record(queue, queue.end, item.number);
  if (status.succeeded())
    status = record(queue, queue.after, item.number);
  if (status.failed()) {
    fail(item.tag, status.error());
    return false;
  }
  worker.here.push_back(std::move(out));
  if (item.last || worker.here.size() >= kTogether)
    handOver(worker);
  recorded_->finish(item.queue);
  return true;
}

/// Passes the recorded work from the recording thread to the watching thread.
void StreamQueues::handOver(Worker &worker) {
  if (worker.here.empty())
    return;
  {
    std::lock_guard<std::mutex> lock(worker.mutex);
    for (RecordedWork &work : worker.here)
      worker.under.push_back(std::move(work));
  }
  worker.here.clear();
  worker.changed.notify_one();
}

/// Records an event after all work on the queue's stream.
Status StreamQueues::record(Queue &queue, std::vector<CUevent> &ring, uint64_t number) {
  std::lock_guard<std::mutex> lock(queue.mutex);
  CUevent &event = ring[number % kEvents];
  const bool timed = &ring != &queue.after;
  if (!event)
    if (Status status = call(
            "cuEventCreate",
            cuda_.cuEventCreate(&event, kEventBlockingSync | (timed ? 0 : kEventDisableTiming)));
        status.failed())
      return status;
  if (!timed)
    queue.recorded = number + 1;
  return call("cuEventRecord", cuda_.cuEventRecord(event, queue.stream));
}

Status StreamQueues::waitOnStream(CUstream stream, const Event *waits, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    Queue &other = *queues_[waits[i].queue];
    const uint64_t number = waits[i].count - 1;
    std::lock_guard<std::mutex> lock(other.mutex); // its event must not be recorded again in the
                                                   // meantime
    if (waits[i].count == 0 || number + kEvents < other.recorded)
      continue; // finished
    if (Status status = call("cuStreamWaitEvent",
                             cuda_.cuStreamWaitEvent(stream, other.after[number % kEvents], 0));
        status.failed())
      return status;
  }
  return Status::success();
}

Status StreamQueues::submit(const WorkerThreads::Item &item, const Event *waits,
                            RecordedWork &out) {
  Queue &queue = *queues_[item.queue];
  if (Status status = waitOnStream(queue.stream, waits, item.waits); status.failed())
    return status;
  if (item.notify)
    if (Status status = record(queue, queue.begin, item.number); status.failed())
      return status;
  if (const auto *task = std::get_if<StreamWork>(&item.work)) {
    TargetStream stream(cuda_, target_, queue.stream);
    return task->task->put(task->argument, stream);
  }
  const auto *calls = std::get_if<CallWork>(&item.work);
  if (!calls)
    return put(item.work, queue.stream);
  for (size_t i = 0; i < calls->count; ++i) {
    if (calls->before) {
      if (Status status = call("cuStreamSynchronize", cuda_.cuStreamSynchronize(queue.stream));
          status.failed())
        return status;
      if (Status status = calls->before->run(calls->argument, i); status.failed())
        return status;
    }
    if (Status status = target_.launchFunction(calls->calls[i], queue.stream); status.failed())
      return status;
  }
  return Status::success();
}

Status StreamQueues::put(const Work &work, CUstream stream) {
  if (const auto *copy = std::get_if<CopyWork>(&work); copy && copy->bytes > 0)
    return call("cuMemcpyAsync",
                cuda_.cuMemcpyAsync(copy->to.value, copy->from.value, copy->bytes, stream));
  if (const auto *read = std::get_if<ReadWork>(&work); read && read->bytes > 0)
    return call("cuMemcpyDtoHAsync",
                cuda_.cuMemcpyDtoHAsync_v2(read->to, read->from.value, read->bytes, stream));
  if (const auto *write = std::get_if<WriteWork>(&work); write && write->bytes > 0)
    return call("cuMemcpyHtoDAsync",
                cuda_.cuMemcpyHtoDAsync_v2(write->to.value, write->from, write->bytes, stream));
  return Status::success();
}

/// Blocks until the events that host work waits for, and the work before it on its queue, have
/// completed.
Status StreamQueues::waitOnHost(const WorkerThreads::Item &item, const Event *waits) {
  auto wait = [&](uint32_t queue, uint64_t number) {
    CUevent event = nullptr;
    {
      std::lock_guard<std::mutex> lock(queues_[queue]->mutex);
      if (number + kEvents >= queues_[queue]->recorded)
        event = queues_[queue]->after[number % kEvents];
    }
    // If the event is recorded again in the meantime, its earlier work is done and its later work
    // is on its stream. The event therefore completes.
    return event ? call("cuEventSynchronize", cuda_.cuEventSynchronize(event)) : Status::success();
  };
  for (uint32_t i = 0; i < item.waits; ++i)
    if (waits[i].count > 0)
      if (Status status = wait(waits[i].queue, waits[i].count - 1); status.failed())
        return status;
  return item.number > 0 ? wait(item.queue, item.number - 1) : Status::success();
}

Status StreamQueues::runOnHost(const WorkerThreads::Item &item, const Event *waits,
                               RecordedWork &out) {
  if (Status status = waitOnHost(item, waits); status.failed())
    return status;
  if (recorded_->stopped())
    return failure_.get();
  const auto &work = std::get<HostWork>(item.work);
  out.begin = EventClock::now();
  Status status = work.task->run(work.argument, 0);
  out.end = EventClock::now();
  return status;
}

void StreamQueues::watch(Worker &worker) {
  if (Status status = target_.enter(); status.failed())
    return fail(0, status.error());
  for (std::vector<RecordedWork> works;; works.clear()) {
    {
      std::unique_lock<std::mutex> lock(worker.mutex);
      worker.changed.wait(lock, [&] { return worker.stopped || !worker.under.empty(); });
      if (worker.stopped)
        return;
      std::swap(works, worker.under);
    }
    for (const RecordedWork &work : works)
      if (!watch(work))
        return;
  }
}

/// Blocks until a work item is done. Returns false if aborted.
bool StreamQueues::watch(const RecordedWork &work) {
  Queue &queue = *queues_[work.queue];
  const CUevent event = queue.after[work.number % kEvents]; // not recorded again before this work
                                                            // is done
  if (done_->stopped())
    return false;
  if (!work.byHost)
    if (Status status = call("cuEventSynchronize", cuda_.cuEventSynchronize(event));
        status.failed()) {
      fail(work.tag, status.error());
      return false;
    }
  for (const Event &earlier : work.waits) // other threads watch these; they may finish later
    if (!done_->waitFor(earlier.queue, earlier.count))
      return false;
  if (work.notify && work.byHost) {
    observer_.finished(work.tag, work.begin, work.end);
  } else if (work.notify) {
    const double end = clock_.secondsOf(queue.end[work.number % kEvents]);
    observer_.finished(work.tag,
                       std::min(clock_.secondsOf(queue.begin[work.number % kEvents]), end), end);
  }
  done_->finish(work.queue);
  return true;
}
