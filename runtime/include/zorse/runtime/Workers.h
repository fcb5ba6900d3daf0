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

} // namespace zorse::runtime
