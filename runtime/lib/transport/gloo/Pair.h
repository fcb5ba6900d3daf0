// A Gloo pair over a connection that we made and proved. Gloo's own way to connect is not used: its listener takes the first stranger for the peer
// and parses what it sends, and an exception in its event loop ends the process. Here a pair never accepts anybody, and what its event handler throws
// is reported as its end.
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

/// Gloo's event loop skips a pair whose lock is taken and tries again at once: on a busy machine it burns the time in which the holder could go on.
/// So all calls of a pair take `calls` first, and the loop sleeps on it. For that, nobody who holds it may wait for the loop, as Gloo does when it
/// closes a pair: here a pair that ends is marked, and `shut` takes it out of the loop later.
class AdoptedPair final : public tcp::Pair {
public:
  /// `closed` is called once when the connection ends, by whichever thread noticed, with locks held: it may not call Gloo.
  AdoptedPair(tcp::Context *context, tcp::Device *device, int rank, std::function<void()> closed);

  /// Takes over a connected socket, which outlasts outages that are shorter than the deadline. May throw what Gloo throws.
  void adopt(int fd, double deadlineSeconds);

  /// With every heartbeat. Since when the peer's host has acknowledged nothing of what is on its way there, as far as calls of this noticed; 0: it
  /// does.
  double look(double now);

  /// Ends the connection after what has been handed to the kernel; afterwards Gloo's event loop does not know the pair any more. `closed` is not
  /// called.
  void shut() noexcept;

  /// Over, though perhaps not shut.
  bool isClosed() const { return closedNow_.load(std::memory_order_acquire); }
  /// What the event handler threw, if that closed the pair.
  std::string problem() const;
  /// The peer's kernel has all bytes written so far. True as well when the connection is over.
  bool delivered();

  /// Received, and sent and acknowledged, since the connection was made.
  uint64_t movedBytes();

  void handleEvents(int events) override;

  std::mutex calls; ///< held around every call of Gloo that concerns this pair

protected:
  void changeState(state next) noexcept override;

private:
  void tellClosed() noexcept;
  void countMoved();

  std::function<void()> closed_;
  std::atomic<bool> adopted_{false}, closedNow_{false}, shutting_{false};
  std::atomic<uint32_t> handled_{0}; ///< what the event loop did happened before the end of `shut`; Gloo ensures it, this shows it to race detectors.
  mutable std::mutex problemMutex_;
  std::string problem_;
  uint64_t moved_ = 0; ///< when last looked at
  OutageSurvival survival_;
  Delivery delivery_; ///< when `look` was last called
  double undeliveredSince_ = 0;
};

/// A Gloo context of one pair. Every pair has its own, so that no thread of Gloo ever waits for another pair's locks.
class PairContext final : public tcp::Context {
public:
  static constexpr int kPeer = 1; ///< the other end's rank in the context

  explicit PairContext(std::shared_ptr<tcp::Device> device);
  /// May throw.
  void connect(tcp::Device *device, int fd, double deadlineSeconds, std::function<void()> closed);
  AdoptedPair &pair() const { return *pair_; }

private:
  AdoptedPair *pair_ = nullptr; ///< owned by the base
};

/// The event loop: one thread that moves all bytes. Throws.
std::shared_ptr<tcp::Device> makeEventLoop();

/// Keeps the event loop turning: closing a pair waits for its next turn, which otherwise comes every 10 ms.
class Ticker final : public tcp::Handler {
public:
  explicit Ticker(std::shared_ptr<tcp::Device> device);
  ~Ticker() override;
  void handleEvents(int) override {}

private:
  std::shared_ptr<tcp::Device> device_;
  int fd_;
};

/// Longer than any wait: deadlines are not a transport's business.
constexpr auto kForever = std::chrono::milliseconds(std::chrono::hours(24 * 365));

} // namespace zorse::runtime::gloo_transport
