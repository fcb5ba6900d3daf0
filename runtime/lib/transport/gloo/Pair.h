// A Gloo pair over a connection that this runtime established and authenticated. Gloo's own way to
// connect is not used: its listener accepts the first stranger as the peer and parses its data, and
// an exception in its event loop ends the process. This pair never accepts a connection, and an
// exception in its event handler closes the pair.
#pragma once

#include "zorse/runtime/TcpOptions.h"

#include <atomic>
#include <functional>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <memory>
#include <mutex>
#include <string>

namespace zorse::runtime::gloo_transport {

namespace tcp = ::gloo::transport::tcp;

/// Gloo's event loop skips a pair whose lock is taken and retries immediately; on a busy machine it
/// uses the CPU time that the holder of the lock needs. All calls of a pair therefore lock `calls`
/// first, and the loop sleeps on it. A holder of `calls` must not wait for the loop, as Gloo does
/// when it closes a pair: a pair that ends is only marked, and `shut` removes it from the loop
/// later.
class AdoptedPair final : public tcp::Pair {
public:
  /// `closed` is called once when the connection ends, by the thread that noticed it and with locks
  /// held. It must not call Gloo.
  AdoptedPair(tcp::Context *context, tcp::Device *device, int rank, std::function<void()> closed);

  /// Takes over a connected socket. The connection survives outages shorter than the deadline. May
  /// throw Gloo's exceptions.
  void adopt(int fd, double heartbeatTimeoutSeconds);

  /// Call it with every heartbeat. Returns the time since which the peer's host has not
  /// acknowledged data in flight, as observed by these calls, or 0 if it does.
  double look(double now);

  /// Ends the connection after all data handed to the kernel. Afterwards the pair is removed from
  /// Gloo's event loop. Does not call `closed`.
  void shut() noexcept;

  /// Whether the connection has ended; `shut` may not have been called yet.
  bool isClosed() const { return closedNow_.load(std::memory_order_acquire); }
  /// Message of the exception in the event handler that closed the pair, if any.
  std::string problem() const;
  /// Whether the peer's kernel has received all bytes written so far. Also true if the connection
  /// has ended.
  bool delivered();

  /// Bytes received, plus bytes sent and acknowledged, since the connection was established.
  uint64_t movedBytes();

  void handleEvents(int events) override;

  std::mutex calls; ///< held during every Gloo call that concerns this pair

protected:
  void changeState(state next) noexcept override;

private:
  void tellClosed() noexcept;
  void countMoved();

  std::function<void()> closed_;
  std::atomic<bool> adopted_{false}, closedNow_{false}, shutting_{false};
  std::atomic<uint32_t> handled_{0}; ///< orders the work of the event loop before the end of
                                     ///< `shut`; Gloo guarantees the order, this makes it visible
                                     ///< to race detectors
  mutable std::mutex problemMutex_;
  std::string problem_;
  uint64_t moved_ = 0; ///< value at the last look
  OutageSurvival survival_;
  Delivery delivery_; ///< value at the last call of `look`
  double undeliveredSince_ = 0;
};

/// A Gloo context with one pair. Every pair has its own context, so that no thread of Gloo waits
/// for the locks of another pair.
class PairContext final : public tcp::Context {
public:
  static constexpr int kPeer = 1; ///< the other end's rank in the context

  /// \param device  the event loop (makeEventLoop)
  explicit PairContext(std::shared_ptr<tcp::Device> device);
  /// May throw Gloo's exceptions.
  void connect(tcp::Device *device, int fd, double heartbeatTimeoutSeconds,
               std::function<void()> closed);
  AdoptedPair &pair() const { return *pair_; }

private:
  AdoptedPair *pair_ = nullptr; ///< owned by the base class
};

/// Creates the event loop: one thread that moves all bytes. Throws Gloo's exceptions.
std::shared_ptr<tcp::Device> makeEventLoop();

/// Keeps the event loop turning: closing a pair waits for its next turn, which is otherwise up to
/// 10 ms away.
class Ticker final : public tcp::Handler {
public:
  explicit Ticker(std::shared_ptr<tcp::Device> device);
  ~Ticker() override;
  void handleEvents(int) override {}

private:
  std::shared_ptr<tcp::Device> device_;
  int fd_;
};

/// Effectively infinite: the transport itself has no timeouts.
constexpr auto kForever = std::chrono::milliseconds(std::chrono::hours(24 * 365));

} // namespace zorse::runtime::gloo_transport
