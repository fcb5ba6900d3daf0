// Options that all TCP connections of a job share.
#pragma once

#include <algorithm>
#include <chrono>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace zorse::runtime {

/// Disables Nagle's algorithm: small messages are sent immediately.
inline void sendWithoutDelay(int socket) {
  int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Delivery state of a connection's bytes, from TCP_INFO.
struct Delivery {
  bool retransmitting = false; ///< the peer's host has not acknowledged in time; the kernel is
                               ///< retransmitting
  uint64_t acknowledged = 0;   ///< bytes acknowledged since the connection was opened
};

inline Delivery deliveryOf(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return {};
  return {info.tcpi_unacked > 0 && info.tcpi_retransmits > 0, info.tcpi_bytes_acked};
}

/// Makes a connection survive every network outage that is shorter than a timeout. TCP alone does
/// not, for two reasons:
///
/// - TCP gives up after a number of retransmissions. If the intervals between them are short, this
///   happens long before a long timeout. Here TCP never gives up: the heartbeats decide whether a
///   peer has failed, and they distinguish a broken network from a suspended peer.
/// - TCP doubles the interval between retransmissions without a limit, so a connection can stay
///   silent for up to twice the duration of the outage. Here no interval is longer than a third of
///   the timeout, so a connection resumes within the timeout after an outage of two thirds of it.
///   The first retransmissions of a connection with little data stay 0.2 s apart.
///
/// Linux 6.15 can limit the interval (TCP_RTO_MAX_MS). It also gives up if the peer's window is
/// closed and two such intervals pass without an answer, so the intervals must not be shorter.
/// Older kernels retransmit at the latest when TCP_USER_TIMEOUT is about to expire. `keep` extends
/// that timeout before it expires, as long as the caller is alive.
class OutageSurvival {
public:
  /// \param deadline  seconds without data after which a peer has failed
  void begin(int socket, double deadline) {
    constexpr int kRtoMaxMilliseconds = 44; // TCP_RTO_MAX_MS, newer than the system's headers
    pause_ = std::clamp(deadline / 3, 0.2, 100.0);
    int on = 1, max = int(1000 * std::max(1.0, pause_ + 0.3));
    ::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
    kernelLimits_ = ::setsockopt(socket, IPPROTO_TCP, kRtoMaxMilliseconds, &max, sizeof max) == 0;
    giveUpAfter(socket, kNever);
  }

  /// Must be called with every heartbeat.
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
      since_ = kept_ == Time() ? now : kept_; // the first retransmission was later than that
    }
    kept_ = now;
    if (waiting_)
      giveUpAfter(socket, std::chrono::duration<double>(now - since_).count() + pause_);
  }

  /// Returns whether the network may be the reason for missing data: the peer's host does not
  /// acknowledge, or did not until one interval ago. Acknowledgments resume before the peer's next
  /// retransmission.
  bool isDoubtful(int socket) const {
    return deliveryOf(socket).retransmitting ||
           (doubted_ != Time() &&
            std::chrono::duration<double>(Clock::now() - doubted_).count() <= pause_ + 0.5);
  }

  /// Call before a connection of a failed job is closed: limits the retransmission of data in
  /// flight to 10 s.
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
