// Assignment of a device's queues to threads. The executor and the simulator share it.
#pragma once

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// Returns whether the queue computes concurrently with the device's first queue, in its own order.
inline bool isBeside(const bundle::Queue &queue) {
  return queue.kind() == bundle::COMPUTE && queue.id() > 0;
}

/// Returns the worker of each queue of the program. Worker 0 computes. It also does copies that
/// stay in host memory, because passing a few bytes to another thread costs more than copying them.
/// Worker 1 does everything else. Queues that overlap with computation have a separate worker:
/// compute queues other than the first, and copies between arenas. \param own  each of the other
/// queues also has a separate worker, as on devices that execute their queues asynchronously
inline std::vector<uint32_t> workersOf(const bundle::Program &program, const DeviceKind &kind,
                                       bool own) {
  std::vector<bool> copies(size_t(program.queues_size()));
  for (const bundle::Instruction &instruction : program.instructions())
    copies[instruction.queue()] = copies[instruction.queue()] || instruction.has_copy();
  std::vector<uint32_t> workers;
  const bool all = own || kind.asynchronous;
  uint32_t next = all ? 1 : 2;
  for (int q = 0; q < program.queues_size(); ++q) {
    const bundle::Queue &queue = program.queues(q);
    const bool toHost = queue.kind() == bundle::HOST_TO_DEVICE ||
                        queue.kind() == bundle::DEVICE_TO_HOST;
    if (isBeside(queue) || (toHost && copies[size_t(q)]))
      workers.push_back(next++);
    else if (queue.kind() == bundle::COMPUTE || (kind.sharesHostMemory && toHost))
      workers.push_back(0);
    else
      workers.push_back(all ? next++ : 1);
  }
  return workers;
}

/// Returns, by queue, the threads that an executor requests from a device for such workers
/// (QueuedDevice::openQueues). A device that executes its queues asynchronously needs a thread only
/// to enqueue work, and several threads would wait for each other. One thread therefore enqueues
/// the work of all queues in list order, in which every wait refers to earlier work. Exchanges
/// between GPUs are no exception: NCCL is connected before the first step, and its calls then
/// return without waiting for peers. Exceptions, which need the workers' threads: a queue is host
/// work that blocks its thread, or updates that run concurrently with computation wait for a
/// snapshot.
inline std::vector<uint32_t> threadsOf(const bundle::Program &program, const DeviceKind &kind,
                                       const std::vector<uint32_t> &workers, bool own) {
  bool byHost = own || !kind.asynchronous;
  for (const bundle::Instruction &instruction : program.instructions()) {
    const bundle::Queue &queue = program.queues(int(instruction.queue()));
    byHost = byHost || queue.kind() == bundle::SEND_QUEUE ||
             queue.kind() == bundle::RECEIVE_QUEUE || queue.kind() == bundle::COLLECTIVE_QUEUE ||
             isBeside(queue);
  }
  return byHost ? workers : std::vector<uint32_t>(workers.size(), 0);
}

} // namespace zorse::runtime
