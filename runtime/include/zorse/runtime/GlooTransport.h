// A transport between the processes of a job: Gloo over TCP (docs/transports.md). Rank r of the group is device r.
//
// Every pair of ranks that ever talk has connections of its own. Before Gloo sees one, both ends have proved over it that they know the job's secret;
// the port that takes connections is closed once all are there. A peer's death fails the transports of all ranks, naming the peer, within
// milliseconds; a peer that is merely slow fails nobody.
#pragma once

#include "zorse/runtime/Group.h"
#include "zorse/runtime/Transport.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::runtime {

struct GlooOptions {
  std::string listenAddress = "127.0.0.1"; ///< a name or address of this host; nothing is listened on elsewhere.
  std::string advertise;                   ///< where peers reach this rank; empty: listenAddress, which then must not be a wildcard.
  std::string job;                         ///< the job's name: connections of jobs of other names are not admitted.
  std::string secret;                      ///< at least 16 bytes, known to the job's ranks alone
  std::vector<uint32_t> peers;          ///< ranks this one exchanges bytes with; for two ranks to be connected it is enough that one names the other.
  std::vector<std::string> deviceNames; ///< by rank, for messages; may be empty
  std::vector<uint32_t> sites;          ///< by rank: ranks of one number reach each other fast; empty: all do. The same on all ranks.
  std::map<uint32_t, uint32_t> contexts; ///< by peer: parallel connections for long links, 1 to 16; the greater number of both ends counts.
  double heartbeatSeconds = 0.25;        ///< how often peers show each other that they live: see Transport::unheard
  double deadlineSeconds = 10;           ///< after so long a silence the job gives a peer up: connections outlast shorter outages.
  double connectSeconds = 60;            ///< all connections must be there so long after the addresses are known.
};

/// Connects this rank to its peers; all ranks of the group call it together. When it fails on one rank, that rank's process must fail the group, or
/// the others wait in it. Ignores SIGPIPE for the process if nobody handles it, and lets it open as many descriptors as its peers may need. The group
/// must live until this returns; the transport does not use it later.
///
/// After an error of any call the transports of all ranks are of no further use, except that a call for a peer that has left the job in good order
/// fails alone. Destruction says goodbye and waits, at most 10 s, until the peers' hosts have the last bytes.
Result<std::unique_ptr<Transport>> makeGlooTransport(Group &group, const GlooOptions &options);

} // namespace zorse::runtime
