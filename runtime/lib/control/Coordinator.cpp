// The coordinator's thread: connects Job, which decides, to sockets, and admits ranks.
//
//   accepted --greeting--> --proof--> --join--> a rank's connection
//
// At most kUnauthenticated connections are in the handshake, each for at most
// kUnauthenticatedSeconds.
#include "Job.h"
#include "Proof.h"
#include "Sockets.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

constexpr size_t kUnauthenticated = 128;
constexpr double kUnauthenticatedSeconds = 5;
/// If kUnauthenticated connections are in the handshake, one that is older than this is closed for
/// a new one.
constexpr double kRoomSeconds = 0.25;
constexpr double kPauseSeconds = 0.005;
constexpr size_t kReadAtOnce = 1 << 20;
constexpr uint64_t kListenerId = 0, kWakerId = 1;

struct Peer {
  Connection connection;
  std::string address;
  HandshakeState state = HandshakeState::Greeting;
  bool refused = false; ///< its messages are ignored; it is closed when the peer closes or its time
                        ///< is over
  Nonces nonces;
  double since = 0;
  uint32_t rank = kNoRank;
  uint32_t late = kNoRank; ///< the rank of a peer that came after the job had failed
  bool writing = false;    ///< also polled for writing

  explicit Peer(FileDescriptor socket) : connection(std::move(socket)) {}
};

std::string addressOf(const sockaddr_storage &from) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (from.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6 &>(from).sin6_addr, text,
                sizeof text);
  else if (from.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in &>(from).sin_addr, text, sizeof text);
  return text;
}

ControlTimes sensible(ControlTimes times) {
  times.heartbeatTimeoutSeconds = std::max(times.heartbeatTimeoutSeconds, 0.05);
  times.heartbeatSeconds =
      std::clamp(times.heartbeatSeconds, 0.005, times.heartbeatTimeoutSeconds / 4);
  return times;
}

/// Counts rejected connections, for the message about ranks that did not join.
class Refusals {
public:
  void add(const std::string &why, const std::string &address) {
    Kind &kind = kinds_[why];
    ++kind.count;
    kind.last = address;
  }
  std::string text() const {
    std::string out;
    for (const auto &[why, kind] : kinds_)
      out += (out.empty() ? "" : "; ") + std::to_string(kind.count) + " × " + why + " (last from " +
             kind.last + ")";
    return out;
  }

private:
  struct Kind {
    uint64_t count = 0;
    std::string last;
  };
  std::map<std::string, Kind> kinds_; ///< few: the keys are texts of this program
};

} // namespace

class Coordinator::Implementation final : private Outbox {
public:
  Implementation(const CoordinatorOptions &options, Listener listener)
      : options_(options), times_(sensible(options.times)), port_(listener.port),
        listener_(std::move(listener.socket)), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        clock_(2 * times_.heartbeatSeconds),
        job_({options.worldSize, times_, options.rank, options.devices}, *this),
        peerOfRank_(options.worldSize, 0), cameLate_(options.worldSize) {}

  Status start() {
    if (!epoll_.valid() || !waker_.valid())
      return userError("the coordinator cannot be started: " + std::string(std::strerror(errno)));
    watch(listener_.get(), kListenerId, EPOLLIN, EPOLL_CTL_ADD);
    watch(waker_.get(), kWakerId, EPOLLIN, EPOLL_CTL_ADD);
    Result<std::thread> thread = startThread([this] { run(); });
    if (thread.failed())
      return thread.error();
    thread_ = std::move(*thread);
    return Status::success();
  }

  ~Implementation() {
    if (!thread_.joinable())
      return;
    command([this](double) { ending_ = true; });
    thread_.join();
  }

  uint16_t port() const { return port_; }

  /// Runs `what` in the coordinator's thread.
  void command(std::function<void(double)> what) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      commands_.push_back(std::move(what));
    }
    waker_.wake();
  }

  void processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode) {
    if (rank < options_.worldSize)
      command([=](double now) { job_.processEnded(rank, failed, how, exitCode, now); });
  }
  void requestStop() {
    command([this](double now) { job_.requestStop(now); });
  }

  std::optional<Failure> failure() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }

  bool waitUntilOver(double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    return over_.wait_for(lock, std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)),
                          [this] { return isOver_; });
  }
  void waitForLateRanks(double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    over_.wait_for(lock, std::chrono::duration<double>(seconds), [this] {
      return !failure_ || failure_->cause == Failure::NotJoined || (isOver_ && allCame_);
    });
  }

private:
  // ---- Outbox ----
  void send(uint32_t rank, const SharedFrame &frame, bool lasting) override {
    if (Peer *peer = find(peerOfRank_[rank]))
      peer->connection.queue(frame, lasting);
    dirty_.push_back(peerOfRank_[rank]);
  }
  void giveUp(uint32_t rank) override {
    if (Peer *peer = find(peerOfRank_[rank]))
      peer->connection.giveUp();
  }

  bool isSendingAgain(uint32_t rank) override {
    Peer *peer = find(peerOfRank_[rank]);
    return peer && peer->connection.isSendingAgain();
  }

  Peer *find(uint64_t id) {
    auto found = peers_.find(id);
    return found == peers_.end() ? nullptr : found->second.get();
  }

  void watch(int fd, uint64_t id, uint32_t events, int operation) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void run() {
    std::vector<epoll_event> events(1024);
    double heartbeatAt = 0;
    while (!ending_) {
      double wait = job_.isUrgent() || pausedUntil_ ? kPauseSeconds
                                                    : std::min(times_.heartbeatSeconds / 2, 0.1);
      int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()),
                               std::max(1, int(wait * 1000)));
      double now = clock_.advance();
      job_.paused(clock_.longestPause());
      for (int i = 0; i < count; ++i) // data that has arrived is processed before tick() checks
                                      // timeouts
        handle(events[size_t(i)].data.u64, events[size_t(i)].events, now);
      for (std::function<void(double)> &what : takeCommands())
        what(now);
      if (now >= heartbeatAt) {
        sendHeartbeats();
        heartbeatAt = now + times_.heartbeatSeconds;
      }
      expireUnauthenticated(now);
      job_.tick(now, [this] { return refusals_.text(); }, monotonicSeconds() - begun_);
      publishRootCause(); // before the ranks receive it: a rank that has may ask here immediately
      flushAll();
      publishEnd();
    }
  }

  std::vector<std::function<void(double)>> takeCommands() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(commands_, {});
  }

  void publishRootCause() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (job_.rootCause() && !failure_)
      failure_ = job_.rootCause();
  }

  void publishEnd() {
    std::lock_guard<std::mutex> lock(mutex_);
    bool allCame = job_.rootCause() && everyRankCame();
    if (job_.isOver() != isOver_ || allCame != allCame_) {
      isOver_ = job_.isOver();
      allCame_ = allCame;
      over_.notify_all();
    }
  }

  bool everyRankCame() const {
    for (uint32_t rank = 0; rank < options_.worldSize; ++rank)
      if (job_.isAbsent(rank) && !cameLate_[rank])
        return false;
    return true;
  }

  void handle(uint64_t id, uint32_t events, double now) {
    if (id == kWakerId)
      return waker_.drain();
    if (id == kListenerId)
      return acceptAll(now);
    Peer *peer = find(id);
    if (!peer)
      return;
    dirty_.push_back(id);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
      return;
    bool open = peer->connection.receive(peer->rank == kNoRank ? kGreetingBytes : kReadAtOnce);
    readMessages(id, *peer, now);
    if (peer->rank != kNoRank)
      job_.recordActivity(peer->rank, now);
    if (!open)
      close(id, peer->connection.why(), now);
  }

  // ---- admission ----
  void acceptAll(double now) {
    while (true) {
      if (strangers_ >= kUnauthenticated && !makeRoom(now))
        return pauseAccepting(now);
      sockaddr_storage from = {};
      socklen_t size = sizeof from;
      FileDescriptor socket(::accept4(listener_.get(), reinterpret_cast<sockaddr *>(&from), &size,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        if (errno == EINTR || errno == ECONNABORTED)
          continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
          pauseAccepting(now); // no descriptors or no memory: try later
        return;
      }
      uint64_t id = nextId_++;
      auto peer = std::make_unique<Peer>(std::move(socket));
      peer->since = now;
      peer->address = addressOf(from);
      peer->nonces.coordinator = randomBytes();
      Message greeting;
      greeting.mutable_hello()->set_magic(kMagic);
      greeting.mutable_hello()->set_version(kVersion);
      greeting.mutable_hello()->set_role(COORDINATOR);
      greeting.mutable_hello()->set_nonce(peer->nonces.coordinator);
      peer->connection.queue(encode(greeting));
      watch(peer->connection.fd(), id, EPOLLIN, EPOLL_CTL_ADD);
      peers_.emplace(id, std::move(peer));
      dirty_.push_back(id);
      ++strangers_;
    }
  }

  /// Stops polling the listener for kPauseSeconds, so that connections in the kernel's queue do not
  /// wake this thread.
  void pauseAccepting(double now) {
    watch(listener_.get(), kListenerId, 0, EPOLL_CTL_MOD);
    pausedUntil_ = now + kPauseSeconds;
  }

  /// Closes the connection that has come least far in the handshake; of several, the oldest.
  bool makeRoom(double now) {
    uint64_t worst = 0;
    const Peer *victim = nullptr;
    for (const auto &[id, peer] : peers_) {
      if (peer->rank != kNoRank || now - peer->since < kRoomSeconds)
        continue;
      auto place = [](const Peer &p) { return std::make_tuple(!p.refused, p.state, p.since); };
      if (!victim || place(*peer) < place(*victim)) {
        victim = peer.get();
        worst = id;
      }
    }
    if (!victim)
      return false;
    close(worst, "", now);
    return true;
  }

  void expireUnauthenticated(double now) {
    if (strangers_ > 0) {
      std::vector<uint64_t> expired;
      for (const auto &[id, peer] : peers_)
        if (peer->rank == kNoRank && now - peer->since > kUnauthenticatedSeconds)
          expired.push_back(id);
      for (uint64_t id : expired) {
        if (Peer *peer = find(id); peer && !peer->refused)
          refusals_.add("sent no valid message in time", peer->address);
        close(id, "", now);
      }
    }
    if (pausedUntil_ && now >= *pausedUntil_) {
      watch(listener_.get(), kListenerId, EPOLLIN, EPOLL_CTL_MOD);
      pausedUntil_.reset();
    }
  }

  void readMessages(uint64_t id, Peer &peer, double now) {
    FrameReader &reader = peer.connection.reader();
    while (std::optional<std::string_view> frame = reader.next()) {
      if (peer.refused)
        continue;
      Result<Message> message = parseMessage(*frame, MEMBER, peer.state, options_.worldSize);
      if (message.failed()) {
        if (peer.rank != kNoRank)
          job_.broken(peer.rank, message.message(), now);
        return reject(peer, "did not speak this protocol");
      }
      if (peer.rank != kNoRank)
        job_.received(peer.rank, *message, now);
      else
        admit(id, peer, *message, now);
    }
    if (reader.broken() && !peer.refused) {
      if (peer.rank != kNoRank)
        job_.broken(peer.rank, "a frame that is too large", now);
      reject(peer, "did not speak this protocol");
    }
  }

  void reject(Peer &peer, const std::string &why) {
    peer.refused = true;
    if (peer.rank != kNoRank)
      return; // it still receives the verdict
    refusals_.add(why, peer.address);
    peer.connection.flush();
    peer.connection.finish();
  }

  void refuse(Peer &peer, Reason reason, const std::string &why, const std::string &text = "") {
    Message message;
    JoinRejected &refusal = *message.mutable_join_rejected();
    refusal.set_reason(reason);
    if (reason != WRONG_SECRET) {
      refusal.set_job(options_.key.job);
      refusal.set_generation(options_.generation);
      refusal.set_world_size(options_.worldSize);
      refusal.set_message(text.substr(0, kTextBytes));
      if (reason == JOB_FAILED)
        refusal.set_exit_code(std::clamp(job_.rootCause()->exitCode, 0, 255));
    }
    peer.connection.queue(encode(message));
    reject(peer, why);
  }

  void admit(uint64_t id, Peer &peer, const Message &message, double now) {
    const std::string &secret = options_.key.secret;
    switch (peer.state) {
    case HandshakeState::Greeting:
      if (message.hello().version() != kVersion)
        return reject(peer, "spoke version " +
                                std::to_string(std::min<uint32_t>(message.hello().version(), 99)) +
                                " of the protocol, expected " + std::to_string(kVersion));
      peer.nonces.member = message.hello().nonce();
      peer.state = HandshakeState::Proof;
      return;
    case HandshakeState::Proof: {
      if (!equalMacs(message.authenticate().mac(), macOfSecret(secret, MEMBER, peer.nonces)))
        return refuse(peer, WRONG_SECRET, "did not know the secret");
      Message proof;
      proof.mutable_authenticate()->set_mac(macOfSecret(secret, COORDINATOR, peer.nonces));
      peer.connection.queue(encode(proof));
      peer.state = HandshakeState::Join;
      return;
    }
    case HandshakeState::Join:
      return admitRank(id, peer, message.join(), now);
    case HandshakeState::Work:
      return;
    }
  }

  void admitRank(uint64_t id, Peer &peer, const Join &join, double now) {
    if (!equalMacs(join.mac(), macOfJoin(options_.key.secret, peer.nonces, join)))
      return refuse(peer, WRONG_SECRET, "did not know the secret");
    if (join.job() != options_.key.job)
      return refuse(peer, OTHER_JOB, "belonged to another job");
    if (join.generation() != 0 && join.generation() != options_.generation)
      return refuse(peer, OTHER_GENERATION, "was of another generation");
    if (join.world_size() != options_.worldSize || join.rank() >= options_.worldSize)
      return refuse(peer, OTHER_WORLD_SIZE, "expected another number of ranks");
    if (job_.rootCause()) {
      peer.late = join.rank();
      return refuse(peer, JOB_FAILED, "came after the job had failed", job_.rootCause()->message);
    }
    if (!job_.isAbsent(join.rank()))
      return refuse(peer, DUPLICATE_RANK, "had the number of another rank",
                    job_.nameOf(join.rank()));
    peer.rank = join.rank();
    peer.state = HandshakeState::Work;
    peer.connection.setDeadline(times_.heartbeatTimeoutSeconds);
    peer.connection.reader().setLimit(kFrameBytes);
    --strangers_;
    peerOfRank_[peer.rank] = id;
    peer.connection.queue(welcome(peer));
    job_.joined(peer.rank, join.device(), now);
  }

  SharedFrame welcome(const Peer &peer) const {
    Message message;
    JoinAccepted &welcome = *message.mutable_join_accepted();
    welcome.set_job(options_.key.job);
    welcome.set_generation(options_.generation);
    welcome.set_rank(peer.rank);
    welcome.set_world_size(options_.worldSize);
    welcome.set_heartbeat_seconds(times_.heartbeatSeconds);
    welcome.set_heartbeat_timeout_seconds(times_.heartbeatTimeoutSeconds);
    welcome.set_has_coordinator_rank(options_.rank != kNoRank);
    if (options_.rank != kNoRank) {
      welcome.set_host(options_.rank);
      welcome.set_host_device(job_.deviceOf(options_.rank).substr(0, kDeviceBytes));
    }
    if (std::optional<uint64_t> last = job_.lastStep()) {
      welcome.set_stopping(true);
      welcome.set_last_step(*last);
    }
    welcome.set_mac(macOfWelcome(options_.key.secret, peer.nonces, welcome));
    return encode(message);
  }

  // ---- connections ----
  void sendHeartbeats() {
    Message message;
    message.mutable_heartbeat();
    SharedFrame frame = encode(message);
    for (uint32_t rank = 0; rank < options_.worldSize; ++rank)
      if (Peer *peer = find(peerOfRank_[rank])) {
        peer->connection.keepAlive();
        if (peer->connection.pending())
          continue;
        peer->connection.queue(frame);
        dirty_.push_back(peerOfRank_[rank]);
      }
  }

  void flushAll() {
    for (uint64_t id : std::exchange(dirty_, {})) {
      Peer *peer = find(id);
      if (!peer)
        continue;
      peer->connection.flush();
      if (bool pending = peer->connection.pending(); pending != peer->writing) {
        peer->writing = pending;
        watch(peer->connection.fd(), id, EPOLLIN | (pending ? uint32_t(EPOLLOUT) : 0),
              EPOLL_CTL_MOD);
      }
    }
  }

  void close(uint64_t id, const std::string &why, double now) {
    auto found = peers_.find(id);
    std::unique_ptr<Peer> peer = std::move(found->second);
    peers_.erase(found);
    if (peer->rank == kNoRank) {
      --strangers_;
      if (peer->late != kNoRank)
        cameLate_[peer->late] = true;
      return;
    }
    peerOfRank_[peer->rank] = 0;
    job_.closed(peer->rank, why, now);
  }

  const CoordinatorOptions options_;
  const ControlTimes times_;
  const uint16_t port_;
  const double begun_ = monotonicSeconds();
  FileDescriptor listener_, epoll_;
  Waker waker_;
  PauseTolerantClock clock_;
  Job job_;
  std::unordered_map<uint64_t, std::unique_ptr<Peer>> peers_;
  std::vector<uint64_t> peerOfRank_;
  std::vector<bool> cameLate_;  ///< by rank: received the failure instead of joining
  std::vector<uint64_t> dirty_; ///< connections with something to send
  uint64_t nextId_ = 2;
  size_t strangers_ = 0;
  std::optional<double> pausedUntil_; ///< new connections are not accepted until then
  bool ending_ = false;
  Refusals refusals_;
  std::thread thread_;

  mutable std::mutex mutex_; ///< guards what follows
  std::condition_variable over_;
  std::vector<std::function<void(double)>> commands_;
  std::optional<Failure> failure_;
  bool isOver_ = false, allCame_ = false;
};

Result<std::unique_ptr<Coordinator>> Coordinator::start(const CoordinatorOptions &options) {
  if (options.key.secret.size() < 16)
    return userError("the job's secret has " + std::to_string(options.key.secret.size()) +
                     " bytes, expected at least 16");
  if (options.key.job.size() > kJobBytes)
    return userError("the job's name has " + std::to_string(options.key.job.size()) +
                     " bytes, expected at most " + std::to_string(kJobBytes));
  if (options.worldSize == 0 || options.generation == 0 ||
      (options.rank != kNoRank && options.rank >= options.worldSize))
    return internalError(
        "a coordinator needs ranks, a generation from 1 and a host among its ranks");
  allowOpenFiles(uint64_t(options.worldSize) + kUnauthenticated + 256);
  Result<Listener> listener = listenOn(options.listenAddress, options.ports);
  if (listener.failed())
    return listener.error();
  auto implementation = std::make_unique<Implementation>(options, std::move(*listener));
  if (Status failed = implementation->start(); failed.failed())
    return failed;
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(implementation)));
}

Coordinator::Coordinator(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
Coordinator::~Coordinator() = default;
uint16_t Coordinator::port() const { return implementation_->port(); }
void Coordinator::processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode) {
  implementation_->processEnded(rank, failed, how, exitCode);
}
void Coordinator::requestStop() { implementation_->requestStop(); }
std::optional<Failure> Coordinator::failure() const { return implementation_->failure(); }
bool Coordinator::waitUntilOver(double seconds) { return implementation_->waitUntilOver(seconds); }
void Coordinator::waitForLateRanks(double seconds) { implementation_->waitForLateRanks(seconds); }
