// What all of a job's TCP connections have in common.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace zorse::runtime {

/// What was lost is sent again often. By default the pauses between tries double without an end, so that a connection may stay silent for twice as
/// long as the network was down: an outage that is shorter than a deadline would end the job. With this the pauses of a connection that carries
/// little stay at a fifth of a second for the first tries, and no pause exceeds a second where the kernel can do that (Linux 6.15).
inline void sendLostOftenAgain(int socket) {
  constexpr int kRtoMaxMilliseconds = 44; // TCP_RTO_MAX_MS, younger than our headers
  int on = 1, most = 1000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, kRtoMaxMilliseconds, &most, sizeof most);
}

/// Small things are sent at once.
inline void sendWithoutDelay(int socket) {
  int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

} // namespace zorse::runtime
