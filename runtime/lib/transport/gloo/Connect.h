// Establishes the connections that the ranks of a job need. Each is authenticated in both
// directions (Handshake.h). Connections of strangers are rejected: their data cannot stop the ranks
// from connecting, and the listening socket is closed afterwards.
#pragma once

#include "zorse/runtime/FileDescriptor.h"

#include "zorse/runtime/GlooTransport.h"

#include <map>
#include <vector>

namespace zorse::runtime::gloo_transport {

/// Connections with one peer. All sockets are connected and nonblocking.
struct Connections {
  FileDescriptor control;
  std::vector<FileDescriptor> data; ///< equal number and order at both ends
};

/// Connects to all peers and returns the connections by peer. All ranks of the group must call it.
Result<std::map<uint32_t, Connections>> connectRanks(ProcessGroup &group,
                                                     const GlooOptions &options);

/// "rank 3 (t4:0)"
std::string rankName(const GlooOptions &options, uint32_t rank);

} // namespace zorse::runtime::gloo_transport
