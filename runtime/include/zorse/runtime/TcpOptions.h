// What all of a job's TCP connections have in common.
#pragma once

#include <algorithm>
#include <chrono>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace zorse::runtime {

/// Small things are sent at once.
inline void sendWithoutDelay(int socket) {
  int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// How long a connection's bytes have been on their way, as its kernel sees it.
struct Delivery {
  bool retransmitting = false; ///< the other end's host has not acknowledged in time: what was sent is being sent again
  uint64_t acknowledged = 0;   ///< bytes since the connection was made
};

inline Delivery deliveryOf(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return {};
  return {info.tcpi_unacked > 0 && info.tcpi_retransmits > 0, info.tcpi_bytes_acked};
}

/// Makes a connection outlast every outage of the network that is shorter than a deadline. By itself TCP does not:
///
/// - It gives up after a number of tries, which is long before a long deadline where the pauses between tries are short. Here it never gives up:
///   whether a peer is lost is judged by its heartbeats, which tell a dead network from a peer that stands still.
/// - It doubles the pauses without an end, so that a connection stays silent for up to twice as long as the network was down. Here no pause is longer
///   than a third of the deadline, so that a connection speaks again within the deadline after an outage of two thirds of it. Pauses of a connection
///   that carries little stay at a fifth of a second for the first tries.
///
/// Linux 6.15 limits pauses itself. (It also gives up where the peer's window is closed and two such pauses pass in silence, so they may not be
/// shorter.) Older kernels send again at the latest when TCP_USER_TIMEOUT is about to run out: `keep` moves it on before that, as long as the caller
/// lives.
class OutageSurvival {
public:
  /// \param deadline  a peer is lost after this silence, in seconds
  void begin(int socket, double deadline) {
    constexpr int kRtoMaxMilliseconds = 44; // TCP_RTO_MAX_MS, younger than our headers
    pause_ = std::clamp(deadline / 3, 0.2, 100.0);
    int on = 1, most = int(1000 * std::max(1.0, pause_ + 0.3));
    ::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
    kernelLimits_ = ::setsockopt(socket, IPPROTO_TCP, kRtoMaxMilliseconds, &most, sizeof most) == 0;
    giveUpAfter(socket, kNever);
  }

  /// Call it with every heartbeat.
  void keep(int socket) {
    Time now = Clock::now();
    Delivery delivery = deliveryOf(socket);
    if (delivery.retransmitting)
      doubted_ = now;
    if (kernelLimits_)
      return;
    if (!delivery.retransmitting || delivery.acknowledged != acknowledged_) {
      if (waiting_ && !delivery.retransmitting)
        giveUpAfter(socket, kNever);
      waiting_ = delivery.retransmitting;
      acknowledged_ = delivery.acknowledged;
      since_ = kept_ == Time() ? now : kept_; // the first try to send again came later than that
    }
    kept_ = now;
    if (waiting_)
      giveUpAfter(socket, std::chrono::duration<double>(now - since_).count() + pause_);
  }

  /// Whether silence may be the network's: the other end's host does not acknowledge, or did not until a pause ago. Acknowledgements come again
  /// before the other end's next try to send what was lost.
  bool isDoubtful(int socket) const {
    return deliveryOf(socket).retransmitting ||
           (doubted_ != Time() && std::chrono::duration<double>(Clock::now() - doubted_).count() <= pause_ + 0.5);
  }

  /// Before a connection of a job that has failed is closed: what is still under way is not sent again for long.
  static void end(int socket) { giveUpAfter(socket, 10); }

private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr double kNever = 86400;

  static void giveUpAfter(int socket, double seconds) {
    unsigned milliseconds = unsigned(1000 * seconds);
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  }

  double pause_ = 1;
  bool kernelLimits_ = true, waiting_ = false;
  uint64_t acknowledged_ = 0;
  Time since_, kept_, doubted_;
};

} // namespace zorse::runtime
