#include "Connect.h"

#include "Handshake.h"
#include "Sockets.h"

#include "zorse/runtime/TcpOptions.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <list>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr size_t kUnauthenticated = 64; ///< maximum unproved connections in addition to those
                                        ///< expected; the oldest is closed first
constexpr auto kHandshakeTime = std::chrono::seconds(10); ///< lifetime of an unproved connection; a
                                                          ///< slow rank connects again
constexpr uint32_t kMaxContexts = 16;

/// The addresses that a rank publishes: "host port peer:contexts peer:contexts ...".
struct PeerAddress {
  std::string host;
  uint16_t port = 0;
  std::map<uint32_t, uint32_t> dataConnections; ///< key: peer
};

std::string encodeIntroduction(const PeerAddress &address) {
  std::ostringstream text;
  text << address.host << ' ' << address.port;
  for (auto [peer, contexts] : address.dataConnections)
    text << ' ' << peer << ':' << contexts;
  return text.str();
}

std::optional<PeerAddress> decodeAddress(const std::string &text) {
  std::istringstream in(text);
  PeerAddress address;
  if (!(in >> address.host >> address.port))
    return std::nullopt;
  uint32_t peer, contexts;
  char colon;
  while (in >> peer) {
    if (!(in >> colon >> contexts) || colon != ':' || contexts == 0 || contexts > kMaxContexts)
      return std::nullopt;
    address.dataConnections[peer] = contexts;
  }
  return in.eof() ? std::optional<PeerAddress>(address) : std::nullopt;
}

/// Connections wanted with one peer.
struct PendingPeer {
  std::string host;
  uint16_t port = 0;
  std::vector<FileDescriptor> made; ///< by index; invalid until proved
  std::string problem;              ///< most recent problem

  size_t missing() const {
    return std::count_if(made.begin(), made.end(),
                         [](const FileDescriptor &fd) { return !fd.valid(); });
  }
};

/// A connection that is being established.
struct Attempt {
  enum State { Waiting, Connecting, AwaitReply, AwaitAdmission, AwaitHello, AwaitProof };
  State state;
  FileDescriptor fd;
  Purpose purpose;
  Nonce client, server;
  std::array<uint8_t, std::max(kHelloBytes, kReplyBytes)> received;
  size_t have = 0, need = 0;
  Time when; ///< Waiting: time of the next attempt; otherwise: time to give up
  unsigned tries = 0;

  bool ours() const { return state <= AwaitAdmission; }
  void await(State next, size_t bytes) {
    state = next;
    have = 0;
    need = bytes;
  }
};

class ConnectionSetup {
public:
  ConnectionSetup(ProcessGroup &group, const GlooOptions &options)
      : group_(group), options_(options), me_(group.rank()) {}

  Result<std::map<uint32_t, Connections>> meet() {
    if (Status status = introduce(); status.failed())
      return status;
    for (auto &[peer, pending] : pending_)
      if (peer < me_)
        for (uint32_t index = 0; index < pending.made.size(); ++index)
          tryLater(peer, index, pending.made.size(), 0);
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options_.connectSeconds));
    while (!complete())
      if (Status status = turn(); status.failed())
        return status;
    listener_.reset();
    // No rank uses a connection before all ranks have all of theirs.
    if (Result<std::vector<std::string>> all = group_.allGatherBytes("transport is connected", "");
        all.failed())
      return all.error();
    std::map<uint32_t, Connections> connections;
    for (auto &[peer, pending] : pending_) {
      Connections &made = connections[peer];
      made.control = std::move(pending.made[0]);
      for (size_t i = 1; i < pending.made.size(); ++i)
        made.data.push_back(std::move(pending.made[i]));
    }
    return connections;
  }

private:
  Status introduce() {
    if (Status status = check(); status.failed())
      return status;
    PeerAddress mine;
    Result<FileDescriptor> listener = listenOn(options_.listenAddress, mine.port);
    if (listener.failed())
      return listener.error();
    listener_ = std::move(*listener);
    mine.host = options_.advertise.empty() ? options_.listenAddress : options_.advertise;
    for (uint32_t peer : options_.peers) {
      auto found = options_.dataConnections.find(peer);
      mine.dataConnections[peer] = found == options_.dataConnections.end() ? 1 : found->second;
    }

    Result<std::vector<std::string>> all =
        group_.allGatherBytes("transport addresses", encodeIntroduction(mine));
    if (all.failed())
      return all.error();
    for (uint32_t rank = 0; rank < all->size(); ++rank) {
      std::optional<PeerAddress> theirs = decodeAddress((*all)[rank]);
      if (!theirs)
        return internalError(rankName(options_, rank) + " sent an invalid introduction: '" +
                             (*all)[rank].substr(0, 100) + "'");
      auto here = mine.dataConnections.find(rank), there = theirs->dataConnections.find(me_);
      if (rank == me_ ||
          (here == mine.dataConnections.end() && there == theirs->dataConnections.end()))
        continue;
      PendingPeer &pending = pending_[rank];
      pending.host = theirs->host;
      pending.port = theirs->port;
      uint32_t contexts = std::max(here == mine.dataConnections.end() ? 1 : here->second,
                                   there == theirs->dataConnections.end() ? 1 : there->second);
      pending.made.resize(1 + contexts);
    }
    return Status::success();
  }

  Status check() const {
    if (options_.secret.size() < 16)
      return userError("the job's secret has " + std::to_string(options_.secret.size()) +
                       " bytes; expected at least 16");
    const std::string &reached = options_.advertise.empty() ? options_.listenAddress
                                                            : options_.advertise;
    if (isWildcard(reached))
      return userError("peers cannot reach '" + reached +
                       "': set an address of this host that they can reach");
    if (reached.find_first_of(" \t\n") != std::string::npos)
      return userError("expected a host name or address, found '" + reached + "'");
    for (uint32_t peer : options_.peers)
      if (peer >= group_.size() || peer == me_)
        return internalError("rank " + std::to_string(me_) + " of " +
                             std::to_string(group_.size()) + " has no peer of rank " +
                             std::to_string(peer));
    for (auto [peer, contexts] : options_.dataConnections)
      if (contexts < 1 || contexts > kMaxContexts)
        return userError("expected 1 to 16 connections to " + rankName(options_, peer) +
                         ", found " + std::to_string(contexts));
    return Status::success();
  }

  bool complete() const {
    return std::all_of(pending_.begin(), pending_.end(),
                       [](const auto &instruction) { return instruction.second.missing() == 0; });
  }

  void tryLater(uint32_t peer, uint32_t index, size_t count, unsigned tries) {
    Attempt &attempt = attempts_.emplace_back();
    attempt.state = Attempt::Waiting;
    attempt.purpose = {group_.generation(), me_, peer, index, uint32_t(count)};
    attempt.tries = tries;
    // Delays: 0, 20, 40, ... ms, at most 1 s.
    attempt.when = Clock::now() +
                   (tries == 0
                        ? std::chrono::milliseconds(0)
                        : std::chrono::milliseconds(std::min(1000, 10 << std::min(tries, 7u))));
  }

  /// Waits for an event and handles it.
  Status turn() {
    Time now = Clock::now();
    if (now >= deadline_)
      return tooLate();
    Time next = deadline_;
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    std::vector<std::list<Attempt>::iterator> order;
    for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
      auto current = attempt++;
      if (current->when <= now) {
        if (current->state == Attempt::Waiting)
          connect(*current);
        else
          giveUp(current, "no answer within 10 s");
        return Status::success(); // the list has changed
      }
      next = std::min(next, current->when);
      if (current->state == Attempt::Waiting)
        continue;
      polled.push_back(
          {current->fd.get(), short(current->state == Attempt::Connecting ? POLLOUT : POLLIN), 0});
      order.push_back(current);
    }
    int milliseconds =
        int(std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count()) + 1;
    if (poll(polled.data(), polled.size(), milliseconds) < 0 && errno != EINTR)
      return internalError(std::string("poll: ") + std::strerror(errno));
    for (size_t i = 0; i < order.size(); ++i)
      if (polled[i + 1].revents != 0)
        if (Status status = advance(order[i]); status.failed())
          return status;
    if (polled[0].revents != 0)
      admitUnauthenticated();
    return Status::success();
  }

  void connect(Attempt &attempt) {
    PendingPeer &pending = pending_[attempt.purpose.to];
    Result<FileDescriptor> fd = startConnecting(pending.host, pending.port, attempt.tries);
    if (fd.failed()) {
      pending.problem = fd.message();
      attempt.when = Clock::now() +
                     std::chrono::milliseconds(std::min(1000, 10 << std::min(++attempt.tries, 7u)));
      return;
    }
    attempt.fd = std::move(*fd);
    attempt.state = Attempt::Connecting;
    attempt.when = Clock::now() + kHandshakeTime;
  }

  void admitUnauthenticated() {
    for (;;) {
      FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      bool full = !fd.valid() &&
                  (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
      if (!fd.valid() && !full)
        return;
      size_t expected = 0, strangers = 0;
      for (auto &[peer, pending] : pending_)
        expected += peer > me_ ? pending.missing() : 0;
      auto oldest = attempts_.end();
      for (auto attempt = attempts_.begin(); attempt != attempts_.end(); ++attempt)
        if (!attempt->ours()) {
          ++strangers;
          if (oldest == attempts_.end())
            oldest = attempt;
        }
      if (oldest != attempts_.end() && (full || strangers >= expected + kUnauthenticated))
        giveUp(oldest, "");
      else if (full)
        return;
      if (!fd.valid())
        continue;
      Attempt &attempt = attempts_.emplace_back();
      attempt.fd = std::move(fd);
      attempt.await(Attempt::AwaitHello, kHelloBytes);
      attempt.when = Clock::now() + kHandshakeTime;
    }
  }

  /// Ends an attempt. Attempts of this rank to connect are repeated later.
  void giveUp(std::list<Attempt>::iterator attempt, const std::string &problem) {
    if (attempt->ours()) {
      pending_[attempt->purpose.to].problem = problem;
      tryLater(attempt->purpose.to, attempt->purpose.index, attempt->purpose.count,
               attempt->tries + 1);
    } else {
      ++turnedAway_;
    }
    attempts_.erase(attempt);
  }

  /// Handles a socket that is ready for the operation that the attempt waits for.
  Status advance(std::list<Attempt>::iterator attempt) {
    if (attempt->state == Attempt::Connecting) {
      std::string problem = connectProblem(attempt->fd.get());
      if (problem.empty() && (!randomNonce(attempt->client) ||
                              !send(*attempt, encode({attempt->purpose, attempt->client}))))
        problem = "connection lost";
      if (!problem.empty())
        giveUp(attempt, problem);
      else
        attempt->await(Attempt::AwaitReply, kReplyBytes);
      return Status::success();
    }
    ssize_t got = recv(attempt->fd.get(), attempt->received.data() + attempt->have,
                       attempt->need - attempt->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return Status::success();
    if (got <= 0) {
      giveUp(attempt, got == 0 ? "it closed the connection: it may belong to another job or to "
                                 "another start of this one"
                               : std::strerror(errno));
      return Status::success();
    }
    attempt->have += got;
    return attempt->have < attempt->need ? Status::success() : understand(attempt);
  }

  template <size_t n> bool send(const Attempt &attempt, const std::array<uint8_t, n> &bytes) {
    return writeWhole(attempt.fd.get(), bytes.data(), n);
  }

  std::optional<Proof> proof(Role role, const Attempt &a) {
    return prove(role, options_.secret, options_.job, a.purpose, a.client, a.server);
  }

  /// Handles a complete frame.
  Status understand(std::list<Attempt>::iterator attempt) {
    Attempt &a = *attempt;
    switch (a.state) {
    case Attempt::AwaitReply: {
      std::memcpy(a.server.data(), a.received.data(), kNonceBytes);
      std::optional<Proof> theirs = proof(Role::Server, a), mine = proof(Role::Client, a);
      if (!theirs || !mine)
        return internalError("libcrypto does not provide HMAC-SHA256");
      const PendingPeer &pending = pending_[a.purpose.to];
      if (!sameProof(*theirs, a.received.data() + kNonceBytes))
        return userError("the process listening at " + pending.host + ":" +
                         std::to_string(pending.port) + " as " + rankName(options_, a.purpose.to) +
                         " does not know the secret of job '" + options_.job +
                         "': expected the same secret on all ranks");
      if (send(a, *mine))
        a.await(Attempt::AwaitAdmission, 1);
      else
        giveUp(attempt, "connection lost");
      return Status::success();
    }
    case Attempt::AwaitAdmission:
      if (a.received[0] == kAdmitted)
        admit(attempt, a.purpose.to);
      else
        giveUp(attempt, "not admitted by the peer");
      return Status::success();
    case Attempt::AwaitHello: {
      std::optional<Hello> hello = decodeHello(a.received.data());
      auto pending = hello ? pending_.find(hello->purpose.from) : pending_.end();
      if (pending == pending_.end() || pending->first <= me_ || hello->purpose.to != me_ ||
          hello->purpose.generation != group_.generation() ||
          hello->purpose.count != pending->second.made.size() ||
          hello->purpose.index >= hello->purpose.count) {
        giveUp(attempt, "");
        return Status::success();
      }
      a.purpose = hello->purpose;
      a.client = hello->nonce;
      std::optional<Proof> mine;
      if (!randomNonce(a.server) || !(mine = proof(Role::Server, a)))
        return internalError("libcrypto provides no random numbers or no HMAC-SHA256");
      if (send(a, a.server) && send(a, *mine))
        a.await(Attempt::AwaitProof, kProofBytes);
      else
        giveUp(attempt, "");
      return Status::success();
    }
    case Attempt::AwaitProof: {
      std::optional<Proof> theirs = proof(Role::Client, a);
      if (theirs && sameProof(*theirs, a.received.data()) &&
          send(a, std::array<uint8_t, 1>{kAdmitted}))
        admit(attempt, a.purpose.from);
      else
        giveUp(attempt, "");
      return Status::success();
    }
    case Attempt::Waiting:
    case Attempt::Connecting:
      break;
    }
    return internalError("a connection received unexpected bytes");
  }

  void admit(std::list<Attempt>::iterator attempt, uint32_t peer) {
    sendWithoutDelay(attempt->fd.get());
    // A peer that did not receive the admission connects again. It uses the later connection.
    pending_[peer].made[attempt->purpose.index] = std::move(attempt->fd);
    attempts_.erase(attempt);
  }

  Status tooLate() const {
    std::ostringstream seconds;
    seconds << options_.connectSeconds;
    for (const auto &[peer, pending] : pending_) {
      if (pending.missing() == 0)
        continue;
      if (peer < me_)
        return Error{ErrorKind::User,
                     rankName(options_, peer) + " could not be reached at " + pending.host + ":" +
                         std::to_string(pending.port) + " within " + seconds.str() +
                         " s: " + (pending.problem.empty() ? "no answer" : pending.problem),
                     peer};
      return Error{ErrorKind::User,
                   rankName(options_, peer) + " has not connected to " + options_.listenAddress +
                       " within " + seconds.str() + " s" +
                       (turnedAway_ ? "; " + std::to_string(turnedAway_) +
                                          " connections of others, or of ranks with another "
                                          "secret, job or generation, were turned away"
                                    : ""),
                   peer};
    }
    return internalError("connections are missing");
  }

  ProcessGroup &group_;
  const GlooOptions &options_;
  const uint32_t me_;
  FileDescriptor listener_;
  std::map<uint32_t, PendingPeer> pending_; ///< key: peer
  std::list<Attempt> attempts_;
  Time deadline_;
  size_t turnedAway_ = 0;
};

} // namespace

std::string zorse::runtime::gloo_transport::rankName(const GlooOptions &options, uint32_t rank) {
  std::string name = "rank " + std::to_string(rank);
  return rank < options.deviceNames.size() ? name + " (" + options.deviceNames[rank] + ")" : name;
}

Result<std::map<uint32_t, Connections>>
zorse::runtime::gloo_transport::connectRanks(ProcessGroup &group, const GlooOptions &options) {
  return ConnectionSetup(group, options).meet();
}
