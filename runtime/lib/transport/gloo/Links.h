// Open connections of one rank to its peers: Gloo pairs for data, and one control connection per
// peer, which reports why data stops.
//
//   control connection carries   means
//   goodbye, then its end        the peer has left: its last bytes are delivered, and only
//                                transfers that still wait for it fail.
//   abort with a reason          the peer has failed: all ranks fail, for that reason.
//   its end without a goodbye    the peer is gone: all ranks fail and report it.
//   beats                        the peer is alive and its bytes arrive here.
//
// No timeout here declares a peer dead. The time since each peer's last message is reported to the
// coordinator, which receives the reports of both ends.
#pragma once

#include "Connect.h"
#include "Pair.h"

#include "zorse/runtime/PauseTolerantClock.h"
#include "zorse/runtime/TcpOptions.h"
#include "zorse/runtime/Transport.h"

#include <condition_variable>
#include <optional>
#include <thread>

namespace zorse::runtime::gloo_transport {

class Links;
class Transfer;

struct PeerConnection {
  uint32_t peer = 0;
  std::string name;                                          ///< name of the peer in messages
  std::vector<std::shared_ptr<PairContext>> dataConnections; ///< data connections, at least one
  FileDescriptor control;
  OutageSurvival survival; ///< outage handling of `control`
  std::atomic<bool> left{false};

  // Used by the watcher thread:
  std::string inbox;
  bool controlOpen = true;
  std::atomic<bool> saidGoodbye{false};
  std::atomic<double> lastHeardSeconds{0}; ///< time of the last message, on the watcher thread's
                                           ///< clock
  std::atomic<double> undeliveredSince{0}; ///< on the same clock; 0: the peer's host acknowledges
                                           ///< sent data
  std::optional<std::chrono::steady_clock::time_point> brokenSince;
};

/// A Gloo message in progress. It exists until the message completes or is canceled. After
/// destruction its memory is not accessed any more.
class Transfer {
public:
  Transfer() = default;
  Transfer(const Transfer &) = delete;
  Transfer &operator=(const Transfer &) = delete;
  ~Transfer() { cancel(); }

  Status send(Links &links, PeerConnection &connection, uint32_t context, uint64_t slot,
              const void *data, size_t bytes) {
    return start(links, connection, context, slot, const_cast<void *>(data), bytes, true);
  }
  Status receive(Links &links, PeerConnection &connection, uint32_t context, uint64_t slot,
                 void *data, size_t bytes) {
    return start(links, connection, context, slot, data, bytes, false);
  }
  /// Waits for completion. Call it once per start.
  Status wait();
  /// Cancels the message if it is not complete.
  void cancel();

private:
  friend class Links;
  Status start(Links &links, PeerConnection &connection, uint32_t context, uint64_t slot,
               void *data, size_t bytes, bool isSend);

  Links *links_ = nullptr;
  PeerConnection *connection_ = nullptr;
  AdoptedPair *pair_ = nullptr;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  bool isSend_ = false;
  Transfer *previous_ = nullptr, *next_ = nullptr; ///< list of transfers in progress
};

class Links {
public:
  static Result<std::unique_ptr<Links>> create(const GlooOptions &options,
                                               std::map<uint32_t, Connections> connections);
  /// Sends a goodbye message unless an error occurred.
  ~Links();

  /// Returns null if there is no connection to that rank.
  PeerConnection *to(uint32_t peer);
  void fail(const Error &why);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status failure() const;
  /// Bytes received, plus bytes acknowledged by peers' hosts. Increases also within a message.
  uint64_t moved() const;
  /// Peers without a message for more than two heartbeat intervals, and peers whose hosts have not
  /// acknowledged data for the same time.
  std::vector<UnresponsivePeer> unresponsive() const;

private:
  friend class Transfer;
  explicit Links(double beatSeconds) : beatSeconds_(beatSeconds), clock_(2 * beatSeconds) {}
  Status start(const GlooOptions &options, std::map<uint32_t, Connections> connections);
  Status enlist(Transfer &transfer);
  void strike(Transfer &transfer);
  Status whyStopped(PeerConnection &connection, const std::string &problem);
  void wake(const PeerConnection *only);
  void poke();
  void watch();
  void beat(double now);
  void readControl(PeerConnection &connection);
  void judge(PeerConnection &connection);
  void closePairs();

  const double beatSeconds_;
  PauseTolerantClock clock_;   ///< clock of the watcher thread
  std::atomic<double> now_{0}; ///< its latest reading
  std::map<uint32_t, std::unique_ptr<PeerConnection>> connections_;
  std::shared_ptr<tcp::Device> loop_;
  std::thread watcher_;
  FileDescriptor event_; ///< wakes the watcher thread
  std::atomic<bool> stopping_{false}, failed_{false};
  mutable std::mutex mutex_;        ///< guards the following members
  std::condition_variable changed_; ///< signaled when `failed_` is set or a peer has left
  Error why_;
  Transfer *inProgress_ = nullptr;
};

} // namespace zorse::runtime::gloo_transport
