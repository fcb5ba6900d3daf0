// Host work of communication instructions with a blocking transport.
#pragma once

#include "DeviceProgram.h"

namespace zorse::runtime {

/// Executes this device's part of a transfer or collective.
Status communicate(Transport &transport, PreparedInstruction &prepared, Operation operation);

/// Puts this device's part on a stream. For instructions on a queue of kind DEVICE_TO_DEVICE.
Status communicate(DeviceTransport &transport, PreparedInstruction &prepared, WorkStream &stream);

/// Pre-posts receives with free memory that the worker of `here` executes next, from its
/// instruction `first` on. Everything that must precede a receive is one of three: a wait of the
/// receive, a wait of an earlier instruction of its queue, or such an earlier instruction. A
/// receive is therefore posted only if all these waits are satisfied and the earlier instructions
/// are receives into other bytes.
void expectAhead(Transport &transport, const PreparedInstruction &here, size_t first, uint64_t step,
                 bool evaluation);

} // namespace zorse::runtime
