// Who serves the queues of a device: one rule for the executor and for the simulator.
#pragma once

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// By queue of the program: 0 computes, and does what are mere copies where memory is the host's, since handing a few bytes to another thread and
/// back costs more than copying them; 1 does everything else. \param own  each of these other queues has a worker of its own instead, as those of
/// devices that serve their queues by themselves always have
inline std::vector<uint32_t> workersOf(const bundle::Program &program, const DeviceKind &kind, bool own) {
  std::vector<uint32_t> workers;
  uint32_t next = 1;
  for (const bundle::Queue &queue : program.queues()) {
    const bool computes = queue.kind() == bundle::COMPUTE ||
                          (kind.sharesHostMemory && (queue.kind() == bundle::HOST_TO_DEVICE || queue.kind() == bundle::DEVICE_TO_HOST));
    workers.push_back(computes ? 0 : own || kind.asynchronous ? next++ : 1);
  }
  return workers;
}

/// By queue, the threads that an executor asks of a device for such workers (QueuedDevice::openQueues). A device that serves its queues by itself
/// needs threads that put work there, and these wait for each other at every turn: where no queue is the host's work, which makes its thread wait,
/// one thread does it for all, in the order of the list, in which every wait goes back.
inline std::vector<uint32_t> threadsOf(const bundle::Program &program, const DeviceKind &kind, const std::vector<uint32_t> &workers, bool own) {
  bool byHost = own || !kind.asynchronous;
  for (const bundle::Entry &entry : program.entries()) {
    const bundle::QueueKind queue = program.queues(int(entry.queue())).kind();
    byHost = byHost || queue == bundle::SEND_QUEUE || queue == bundle::RECEIVE_QUEUE || queue == bundle::COLLECTIVE_QUEUE;
  }
  return byHost ? workers : std::vector<uint32_t>(workers.size(), 0);
}

} // namespace zorse::runtime
