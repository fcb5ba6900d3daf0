// Connections between the ranks of a job that need them, each proved in both directions (Handshake.h). Strangers are turned away: what they send does
// not stop the ranks from meeting, and the listening socket is closed once they have.
#pragma once

#include "zorse/runtime/FileDescriptor.h"

#include "zorse/runtime/GlooTransport.h"

#include <map>
#include <vector>

namespace zorse::runtime::gloo_transport {

/// With one peer. All sockets are connected and do not block.
struct Connections {
  FileDescriptor control;
  std::vector<FileDescriptor> data; ///< as many at both ends, in the same order
};

/// By peer. All ranks of the group call it together.
Result<std::map<uint32_t, Connections>> connectRanks(Group &group, const GlooOptions &options);

/// "rank 3 (t4:0)"
std::string rankName(const GlooOptions &options, uint32_t rank);

} // namespace zorse::runtime::gloo_transport
