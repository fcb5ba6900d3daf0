// Who serves the queues of a device: one rule for the executor and for the simulator.
#pragma once

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// What is computed beside a device's first queue, in an order of its own.
inline bool isBeside(const bundle::Queue &queue) { return queue.kind() == bundle::COMPUTE && queue.id() > 0; }

/// By queue of the program: 0 computes, and does what are mere copies where memory is the host's, since handing a few bytes to another thread and
/// back costs more than copying them; 1 does everything else. What overlaps with computing has a worker of its own: queues that compute beside the
/// first, and copies between arenas. \param own  each of the other queues has one, too, as those of devices that serve their queues by themselves
inline std::vector<uint32_t> workersOf(const bundle::Program &program, const DeviceKind &kind, bool own) {
  std::vector<bool> copies(size_t(program.queues_size()));
  for (const bundle::Entry &entry : program.entries())
    copies[entry.queue()] = copies[entry.queue()] || entry.has_copy();
  std::vector<uint32_t> workers;
  const bool all = own || kind.asynchronous;
  uint32_t next = all ? 1 : 2;
  for (int q = 0; q < program.queues_size(); ++q) {
    const bundle::Queue &queue = program.queues(q);
    const bool toHost = queue.kind() == bundle::HOST_TO_DEVICE || queue.kind() == bundle::DEVICE_TO_HOST;
    if (isBeside(queue) || (toHost && copies[size_t(q)]))
      workers.push_back(next++);
    else if (queue.kind() == bundle::COMPUTE || (kind.sharesHostMemory && toHost))
      workers.push_back(0);
    else
      workers.push_back(all ? next++ : 1);
  }
  return workers;
}

/// By queue, the threads that an executor asks of a device for such workers (QueuedDevice::openQueues). A device that serves its queues by itself
/// needs threads that put work there, and these wait for each other at every turn: where no queue is the host's work, which makes its thread wait,
/// and no update waits for a snapshot beside what is computed, one thread does it for all, in the order of the list, in which every wait goes back,
/// and another for exchanges between GPUs, since NCCL takes a call only when peers have come to it.
inline std::vector<uint32_t> threadsOf(const bundle::Program &program, const DeviceKind &kind, const std::vector<uint32_t> &workers, bool own) {
  bool byHost = own || !kind.asynchronous;
  for (const bundle::Entry &entry : program.entries()) {
    const bundle::Queue &queue = program.queues(int(entry.queue()));
    byHost = byHost || queue.kind() == bundle::SEND_QUEUE || queue.kind() == bundle::RECEIVE_QUEUE || queue.kind() == bundle::COLLECTIVE_QUEUE ||
             isBeside(queue);
  }
  if (byHost)
    return workers;
  std::vector<uint32_t> threads;
  for (const bundle::Queue &queue : program.queues())
    threads.push_back(queue.kind() == bundle::DIRECT ? 1 : 0);
  return threads;
}

} // namespace zorse::runtime
