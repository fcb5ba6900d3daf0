// The queues of a device while a plan is lowered. Internal to lib/Step.
#pragma once

#include "zorse/Step/StepGraph.h"

#include <cstddef>
#include <cstdint>

namespace zorse::step {

/// Queues that a device can have. Instruction.queue is an index of this table until
/// placeInstructions numbers the queues in use.
enum QueueIndex : uint8_t {
  kCompute,
  kSend,
  kReceive,
  kCollective,
  kLoad,
  kReport,
  kDirect,
  kUpdate,
  kHostUpdate,
  kFetch,
  kStore,
  kQueues
};
inline constexpr Queue kQueueTable[kQueues] = {
    {bundle::COMPUTE, 0},          {bundle::SEND_QUEUE, 0},     {bundle::RECEIVE_QUEUE, 0},
    {bundle::COLLECTIVE_QUEUE, 0}, {bundle::HOST_TO_DEVICE, 0}, {bundle::DEVICE_TO_HOST, 0},
    {bundle::DEVICE_TO_DEVICE, 0}, {bundle::COMPUTE, 1},        {bundle::COMPUTE, 2},
    {bundle::HOST_TO_DEVICE, 1},   {bundle::DEVICE_TO_HOST, 1}};

/// Returns the queue that shares hardware with `queue`, or kQueues. A device computes one task at a
/// time, and copies one item at a time in each direction between itself and its host, on any queue.
/// Updates have separate queues so that later instructions do not wait behind them.
inline constexpr QueueIndex sharedHardwareQueue(size_t queue) {
  return queue == kUpdate  ? kCompute
         : queue == kFetch ? kLoad
         : queue == kStore ? kReport
                           : kQueues;
}

} // namespace zorse::step
