// A transport between the processes of a job: Gloo over TCP (docs/internals/transports.md). Rank r
// of the group is device r.
//
// Every pair of ranks that communicates has separate connections. Both ends of a connection prove
// that they know the job's secret before Gloo uses it. The listening port is closed when all
// connections are open. The failure of a peer fails the transports of all ranks within
// milliseconds, and the error names the peer. A slow peer causes no failure.
#pragma once

#include "zorse/runtime/ProcessGroup.h"
#include "zorse/runtime/Transport.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Options of makeGlooTransport.
struct GlooOptions {
  std::string listenAddress = "127.0.0.1"; ///< name or address of this host; the only address that
                                           ///< is listened on
  std::string advertise; ///< address for peers; empty: listenAddress, which must then not be a
                         ///< wildcard
  std::string job;       ///< name of the job; connections of other jobs are rejected
  std::string secret;    ///< at least 16 bytes, known only to the ranks of the job
  std::vector<uint32_t> peers; ///< ranks to exchange data with; two ranks are connected if either
                               ///< names the other
  std::vector<std::string> deviceNames; ///< by rank, for messages; may be empty
  std::vector<uint32_t> nodes; ///< by rank, equal on all ranks: ranks with equal numbers have fast
                               ///< links; empty: all ranks
  std::map<uint32_t, uint32_t> dataConnections; ///< by peer: parallel connections, 1 to 16, for
                                                ///< long links; the maximum of both ends
  double heartbeatSeconds = 0.25;               ///< interval of the heartbeats between peers
                                                ///< (Transport::unresponsive)
  double heartbeatTimeoutSeconds = 10; ///< a peer fails after this time without data; shorter
                                       ///< outages are survived
  double connectSeconds = 60; ///< time limit for all connections after the addresses are known
};

/// Connects this rank to its peers. All ranks of the group call it together. If it fails on one
/// rank, that rank's process must fail the group; otherwise the other ranks wait in the call. It
/// ignores SIGPIPE for the process if no handler is installed, and raises the limit of open
/// descriptors to the number that the peers may need. The group must outlive the call; the
/// transport does not use it later.
///
/// After an error of any call, the transports of all ranks are unusable. Exception: a call for a
/// peer that left the job normally fails alone. The destructor closes the connections in order. It
/// waits at most 10 s until the peers' hosts have acknowledged the last bytes.
Result<std::unique_ptr<Transport>> makeGlooTransport(ProcessGroup &group,
                                                     const GlooOptions &options);

} // namespace zorse::runtime
