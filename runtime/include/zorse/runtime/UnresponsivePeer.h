// Peers with missed heartbeats, or that do not acknowledge data.
#pragma once

#include <cstdint>

namespace zorse::runtime {

/// No data arrived from `peer` on the transport's connection for `seconds`, although the peer has
/// not closed it.
struct UnresponsivePeer {
  uint32_t peer = 0;
  double seconds = 0;
  bool undelivered = false; ///< instead: its host has not acknowledged sent data for `seconds`,
                            ///< although data from it may arrive
};

} // namespace zorse::runtime
