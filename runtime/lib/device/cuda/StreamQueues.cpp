#include "StreamQueues.h"

using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

StreamQueues::~StreamQueues() {
  close();
  (void)target_.enter();
  for (auto &queue : queues_) {
    for (const auto *ring : {&queue->after, &queue->before})
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
    queue.after.resize(kEvents);
    queue.before.resize(kEvents);
    if (Status status = call("cuStreamCreate", cuda_.cuStreamCreate(&queue.stream, kStreamNonBlocking)); status.failed())
      return status;
  }
  for (uint32_t i = 0; i < queues_.size(); ++i)
    queues_[i]->watcher = std::thread([this, i] { watch(i); });
  threads_.open(workers, [this](const WorkerThreads::Item &item, const Event *waits) { return serve(item, waits); });
  return Status::success();
}

Status StreamQueues::wait(Event event) { return done_->waitFor(event.queue, event.count) ? Status::success() : Status(failure_.get()); }

void StreamQueues::abort(const Error &why) {
  failure_.keep(why);
  threads_.stop();
  recorded_->stop();
  done_->stop();
  for (auto &queue : queues_) {
    std::lock_guard<std::mutex> lock(queue->mutex);
    queue->stopped = true;
    queue->changed.notify_all();
  }
}

void StreamQueues::close() {
  if (closed_ || !done_)
    return;
  closed_ = true;
  abort(internalError("the queues of device '" + device_ + "' are closed"));
  threads_.join();
  for (auto &queue : queues_)
    if (queue->watcher.joinable())
      queue->watcher.join();
  (void)target_.enter();
  for (auto &queue : queues_) // what stands on streams runs to its end
    if (queue->stream)
      cuda_.cuStreamSynchronize(queue->stream);
}

Status StreamQueues::call(const char *what, CUresult result) const {
  return result == kSuccess ? Status::success() : Status(userError("device '" + device_ + "': " + cuda_.describe(what, result)));
}

void StreamQueues::fail(uint64_t tag, const Error &error) {
  const bool first = failure_.keep(error);
  abort(error);
  if (first)
    observer_.failed(tag, error);
}

bool StreamQueues::serve(const WorkerThreads::Item &item, const Event *waits) {
  Queue &queue = *queues_[item.queue];
  for (uint32_t i = 0; i < item.waits; ++i)
    if (!recorded_->waitFor(waits[i].queue, waits[i].count))
      return false;
  // Its place in the rings is free once the work that had it is done.
  if (item.number >= kEvents && !done_->waitFor(item.queue, item.number - kEvents + 1))
    return false;
  if (recorded_->stopped())
    return false;
  Recorded out{item.tag, item.notify, std::holds_alternative<HostWork>(item.work), 0, 0, {waits, waits + item.waits}};
  Status status = target_.enter();
  if (status.succeeded())
    status = out.byHost ? runOnHost(item, waits, out) : submit(item, waits, out);
  if (status.succeeded())
    status = record(queue, queue.after, item.number);
  if (status.failed()) {
    fail(item.tag, status.error());
    return false;
  }
  {
    std::lock_guard<std::mutex> lock(queue.mutex);
    queue.under.push_back(std::move(out));
    queue.changed.notify_all();
  }
  recorded_->finish(item.queue);
  return true;
}

/// Behind everything on the queue's stream.
Status StreamQueues::record(Queue &queue, std::vector<CUevent> &ring, uint64_t number) {
  std::lock_guard<std::mutex> lock(queue.mutex);
  CUevent &event = ring[number % kEvents];
  if (!event)
    if (Status status = call("cuEventCreate", cuda_.cuEventCreate(&event, kEventBlockingSync)); status.failed())
      return status;
  if (&ring == &queue.after)
    queue.recorded = number + 1;
  return call("cuEventRecord", cuda_.cuEventRecord(event, queue.stream));
}

Status StreamQueues::waitOnStream(CUstream stream, const Event *waits, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    Queue &other = *queues_[waits[i].queue];
    const uint64_t number = waits[i].count - 1;
    std::lock_guard<std::mutex> lock(other.mutex); // its event is not recorded again meanwhile
    if (waits[i].count == 0 || number + kEvents < other.recorded)
      continue; // done long ago
    if (Status status = call("cuStreamWaitEvent", cuda_.cuStreamWaitEvent(stream, other.after[number % kEvents], 0)); status.failed())
      return status;
  }
  return Status::success();
}

Status StreamQueues::submit(const WorkerThreads::Item &item, const Event *waits, Recorded &out) {
  Queue &queue = *queues_[item.queue];
  if (Status status = waitOnStream(queue.stream, waits, item.waits); status.failed())
    return status;
  if (item.notify)
    if (Status status = record(queue, queue.before, item.number); status.failed())
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
      if (Status status = call("cuStreamSynchronize", cuda_.cuStreamSynchronize(queue.stream)); status.failed())
        return status;
      if (Status status = calls->before->run(calls->argument, i); status.failed())
        return status;
    }
    if (Status status = target_.launchBody(calls->calls[i], queue.stream); status.failed())
      return status;
  }
  return Status::success();
}

Status StreamQueues::put(const Work &work, CUstream stream) {
  if (const auto *copy = std::get_if<CopyWork>(&work); copy && copy->bytes > 0)
    return call("cuMemcpyAsync", cuda_.cuMemcpyAsync(copy->to.value, copy->from.value, copy->bytes, stream));
  if (const auto *read = std::get_if<ReadWork>(&work); read && read->bytes > 0)
    return call("cuMemcpyDtoHAsync", cuda_.cuMemcpyDtoHAsync_v2(read->to, read->from.value, read->bytes, stream));
  if (const auto *write = std::get_if<WriteWork>(&work); write && write->bytes > 0)
    return call("cuMemcpyHtoDAsync", cuda_.cuMemcpyHtoDAsync_v2(write->to.value, write->from, write->bytes, stream));
  return Status::success();
}

/// Until the events that work of the host waits for have come, and what is before it on its queue.
Status StreamQueues::waitOnHost(const WorkerThreads::Item &item, const Event *waits) {
  auto wait = [&](uint32_t queue, uint64_t number) {
    CUevent event = nullptr;
    {
      std::lock_guard<std::mutex> lock(queues_[queue]->mutex);
      if (number + kEvents >= queues_[queue]->recorded)
        event = queues_[queue]->after[number % kEvents];
    }
    // Where the event is recorded again meanwhile, its earlier work is done, and that of the later is put on its stream: it comes.
    return event ? call("cuEventSynchronize", cuda_.cuEventSynchronize(event)) : Status::success();
  };
  for (uint32_t i = 0; i < item.waits; ++i)
    if (waits[i].count > 0)
      if (Status status = wait(waits[i].queue, waits[i].count - 1); status.failed())
        return status;
  return item.number > 0 ? wait(item.queue, item.number - 1) : Status::success();
}

Status StreamQueues::runOnHost(const WorkerThreads::Item &item, const Event *waits, Recorded &out) {
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

void StreamQueues::watch(uint32_t index) {
  Queue &queue = *queues_[index];
  if (Status status = target_.enter(); status.failed())
    return fail(0, status.error());
  for (uint64_t number = 0;; ++number) {
    Recorded work;
    {
      std::unique_lock<std::mutex> lock(queue.mutex);
      queue.changed.wait(lock, [&] { return queue.stopped || !queue.under.empty(); });
      if (queue.stopped)
        return;
      work = std::move(queue.under.front());
      queue.under.pop_front();
    }
    const CUevent event = queue.after[number % kEvents]; // nobody records it again before this work is done
    if (!work.byHost)
      if (Status status = call("cuEventSynchronize", cuda_.cuEventSynchronize(event)); status.failed())
        return fail(work.tag, status.error());
    for (const Event &earlier : work.waits) // their queues have watchers of their own, which may come later
      if (!done_->waitFor(earlier.queue, earlier.count))
        return;
    if (work.notify && work.byHost) {
      observer_.finished(work.tag, work.begin, work.end);
    } else if (work.notify) {
      const double end = clock_.secondsOf(event);
      observer_.finished(work.tag, std::min(clock_.secondsOf(queue.before[number % kEvents]), end), end);
    }
    done_->finish(index);
  }
}
