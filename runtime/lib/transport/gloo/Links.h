// The connections of one rank to its peers while they work: Gloo pairs for data, and beside them one control connection per peer that says why data
// stops.
//
//   control connection carries   means
//   goodbye, then its end        the peer has left: its last bytes are delivered. Only what still waits for it fails.
//   abort with a reason          the peer has given up: so does everybody, for that reason.
//   its end without a word       the peer is gone: everybody gives up and says so.
//   beats                        the peer lives and its bytes arrive here.
//
// Nothing here decides that a peer is dead because of time: how long each has been silent is said to the coordinator, who hears both ends.
#pragma once

#include "Connect.h"
#include "Pair.h"

#include "zorse/runtime/FairClock.h"
#include "zorse/runtime/TcpOptions.h"
#include "zorse/runtime/Transport.h"

#include <condition_variable>
#include <optional>
#include <thread>

namespace zorse::runtime::gloo_transport {

class Links;
class Transfer;

struct Link {
  uint32_t peer = 0;
  std::string name;                                   ///< for messages
  std::vector<std::shared_ptr<PairContext>> contexts; ///< one or several connections for data
  FileDescriptor control;
  OutageSurvival survival; ///< of `control`
  std::atomic<bool> left{false};

  // Of the watching thread:
  std::string inbox;
  bool controlOpen = true;
  std::atomic<bool> saidGoodbye{false};
  std::atomic<double> heardAt{0};          ///< on the watching thread's clock
  std::atomic<double> undeliveredSince{0}; ///< on the same; 0: the peer's host acknowledges what is sent
  std::optional<std::chrono::steady_clock::time_point> brokenSince;
};

/// One message of Gloo under way. Lives until it is over or has been given up; its memory is not touched any more once it is destroyed.
class Transfer {
public:
  Transfer() = default;
  Transfer(const Transfer &) = delete;
  Transfer &operator=(const Transfer &) = delete;
  ~Transfer() { cancel(); }

  Status send(Links &links, Link &link, uint32_t context, uint64_t slot, const void *data, size_t bytes) {
    return start(links, link, context, slot, const_cast<void *>(data), bytes, true);
  }
  Status receive(Links &links, Link &link, uint32_t context, uint64_t slot, void *data, size_t bytes) {
    return start(links, link, context, slot, data, bytes, false);
  }
  /// Until it is over. Once per start.
  Status wait();
  /// Gives it up if it is not over.
  void cancel();

private:
  friend class Links;
  Status start(Links &links, Link &link, uint32_t context, uint64_t slot, void *data, size_t bytes, bool isSend);

  Links *links_ = nullptr;
  Link *link_ = nullptr;
  AdoptedPair *pair_ = nullptr;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  bool isSend_ = false;
  Transfer *previous_ = nullptr, *next_ = nullptr; ///< in the list of those under way
};

class Links {
public:
  static Result<std::unique_ptr<Links>> create(const GlooOptions &options, std::map<uint32_t, Connections> connections);
  /// Says goodbye unless something failed.
  ~Links();

  /// Null: no connection to that rank.
  Link *to(uint32_t peer);
  void fail(const Error &why);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status failure() const;
  /// Bytes that arrived here or that peers' hosts have acknowledged: grows also within a message.
  uint64_t moved() const;
  /// Peers without a sign of life for more than two beats, and those whose hosts have not acknowledged data for as long.
  std::vector<Unheard> unheard() const;

private:
  friend class Transfer;
  explicit Links(double beatSeconds) : beatSeconds_(beatSeconds), clock_(2 * beatSeconds) {}
  Status start(const GlooOptions &options, std::map<uint32_t, Connections> connections);
  Status enlist(Transfer &transfer);
  void strike(Transfer &transfer);
  Status whyStopped(Link &link, const std::string &problem);
  void wake(const Link *only);
  void poke();
  void watch();
  void beat(double now);
  void readControl(Link &link);
  void judge(Link &link);
  void closePairs();

  const double beatSeconds_;
  FairClock clock_;            ///< of the watching thread
  std::atomic<double> now_{0}; ///< as it read it last
  std::map<uint32_t, std::unique_ptr<Link>> links_;
  std::shared_ptr<tcp::Device> loop_;
  std::thread watcher_;
  FileDescriptor event_; ///< wakes the watching thread
  std::atomic<bool> stopping_{false}, failed_{false};
  mutable std::mutex mutex_;        ///< guards what follows
  std::condition_variable changed_; ///< failed, or somebody has left
  Error why_;
  Transfer *underWay_ = nullptr;
};

} // namespace zorse::runtime::gloo_transport
