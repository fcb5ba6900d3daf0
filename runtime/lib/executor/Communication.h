// What the host does for entries that communicate, by a transport that blocks.
#pragma once

#include "DeviceProgram.h"

namespace zorse::runtime {

/// Does the part of this device in a transfer or collective.
Status communicate(Transport &transport, PreparedEntry &prepared, Operation operation);

/// Puts it on a stream, of an entry on a queue of kind DIRECT.
Status communicate(DirectTransport &transport, PreparedEntry &prepared, WorkStream &stream);

/// Announces receives that the worker of `here` comes to, from its entry `first` on, and whose memory is free. Whatever had to happen before a
/// receive is named by its waits or by those of the entries before it in its queue, or is one of those entries: so all of these waits must be over,
/// and those entries be receives into other bytes.
void expectAhead(Transport &transport, const PreparedEntry &here, size_t first, uint64_t step, bool evaluation);

} // namespace zorse::runtime
