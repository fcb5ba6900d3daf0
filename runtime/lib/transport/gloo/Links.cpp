#include "Links.h"

#include "Sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;
using Clock = std::chrono::steady_clock;

namespace {

enum LinkMessage : uint8_t { Close = 1, Abort = 2, Heartbeat = 3 };
constexpr size_t kMaxReason = 4096;
constexpr size_t kHeaderBytes = 4; ///< word, error kind, length of the reason (2 bytes)

/// Time to wait for a message on the control connection after a data connection broke. A dead
/// process closes both at the same time, so after this time the data connection alone is broken.
constexpr auto kWordTime = std::chrono::seconds(1);
/// Time that leaving waits until the peers' hosts have received the last bytes. Only a network
/// outage or a host in trouble takes longer.
constexpr auto kDeliveryTime = std::chrono::seconds(10);

/// Unsent bytes in the kernel above which no further beat is written: it would carry no new
/// information and might be truncated.
constexpr int kUnsentBytes = 1024;

/// Timeout for polling data that has already arrived.
constexpr auto kMoment = std::chrono::milliseconds(1);

std::string frame(LinkMessage message, const Error &error) {
  size_t length = std::min(error.message.size(), kMaxReason);
  std::string bytes{char(message), char(error.kind), char(length & 0xff), char(length >> 8)};
  return bytes + error.message.substr(0, length);
}

Error hasLeft(const PeerConnection &connection) {
  return {ErrorKind::User, connection.name + " has left the job", connection.peer};
}

} // namespace

Status Transfer::start(Links &links, PeerConnection &connection, uint32_t context, uint64_t slot,
                       void *data, size_t bytes, bool isSend) {
  links_ = &links;
  connection_ = &connection;
  isSend_ = isSend;
  pair_ = &connection.dataConnections[context]->pair();
  try {
    buffer_ = connection.dataConnections[context]->createUnboundBuffer(data, bytes);
    if (Status status = links.enlist(*this); status.failed()) {
      buffer_.reset();
      return status;
    }
    std::lock_guard<std::mutex> call(pair_->calls);
    if (isSend)
      buffer_->send(PairContext::kPeer, slot, 0, bytes);
    else
      buffer_->recv(PairContext::kPeer, slot, 0, bytes);
  } catch (const std::exception &exception) {
    cancel();
    return links.whyStopped(connection, exception.what());
  }
  return Status::success();
}

Status Transfer::wait() {
  bool done = false;
  std::string problem;
  try {
    done = isSend_ ? buffer_->waitSend(nullptr, kForever) : buffer_->waitRecv(nullptr, kForever);
    // Gloo reports the end of waiting before an arrival: if the peer has left, all its data may be
    // here.
    if (!done && connection_->left && !links_->failed())
      done = isSend_ ? buffer_->waitSend(nullptr, kMoment) : buffer_->waitRecv(nullptr, kMoment);
  } catch (const std::exception &exception) {
    problem = exception.what();
  }
  if (!done) {
    cancel();
    return links_->whyStopped(*connection_, problem);
  }
  links_->strike(*this);
  buffer_.reset();
  return Status::success();
}

void Transfer::cancel() {
  if (!buffer_)
    return;
  links_->strike(*this);
  std::lock_guard<std::mutex> call(pair_->calls); // the event loop does not use the buffer now or
                                                  // later
  buffer_.reset();
}

Result<std::unique_ptr<Links>> Links::create(const GlooOptions &options,
                                             std::map<uint32_t, Connections> connections) {
  std::unique_ptr<Links> links(new Links(std::clamp(options.heartbeatSeconds, 0.005, 60.0)));
  if (Status status = links->start(options, std::move(connections)); status.failed()) {
    links->fail(status.error()); // suppresses the goodbye
    return status;
  }
  return links;
}

Status Links::start(const GlooOptions &options, std::map<uint32_t, Connections> connections) {
  event_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_.valid())
    return userError(std::string("cannot create an event descriptor: ") + std::strerror(errno));
  try {
    if (!connections.empty())
      loop_ = makeEventLoop();
    for (auto &[peer, connection] : connections) {
      auto link = std::make_unique<PeerConnection>();
      link->peer = peer;
      link->name = rankName(options, peer);
      link->control = std::move(connection.control);
      link->survival.begin(link->control.get(), options.heartbeatTimeoutSeconds);
      for (FileDescriptor &fd : connection.data) {
        auto context = std::make_shared<PairContext>(loop_);
        link->dataConnections.push_back(context);
        context->connect(loop_.get(), fd.release(), options.heartbeatTimeoutSeconds,
                         [this] { poke(); });
      }
      connections_[peer] = std::move(link);
    }
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::exception &exception) {
    return userError(std::string("Gloo initialization failed: ") + exception.what() +
                     "; expected an active loopback device, and free descriptors and threads");
  }
  return Status::success();
}

Links::~Links() {
  if (!failed()) {
    Clock::time_point deadline = Clock::now() + kDeliveryTime;
    auto delivered = [&] {
      return std::all_of(connections_.begin(), connections_.end(), [](const auto &instruction) {
        return std::all_of(instruction.second->dataConnections.begin(),
                           instruction.second->dataConnections.end(),
                           [](const auto &context) { return context->pair().delivered(); });
      });
    };
    while (!delivered() && !failed() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string goodbye = frame(Close, {});
    for (auto &[peer, connection] : connections_)
      writeWhole(connection->control.get(), goodbye.data(), goodbye.size());
  }
  stopping_ = true;
  poke();
  if (watcher_.joinable())
    watcher_.join();
  closePairs();
  connections_.clear();
}

PeerConnection *Links::to(uint32_t peer) {
  auto found = connections_.find(peer);
  return found == connections_.end() ? nullptr : found->second.get();
}

Status Links::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Status(why_);
}

uint64_t Links::moved() const {
  uint64_t bytes = 0;
  for (const auto &[peer, connection] : connections_)
    for (const auto &context : connection->dataConnections)
      bytes += context->pair().movedBytes();
  return bytes;
}

std::vector<UnresponsivePeer> Links::unresponsive() const {
  std::vector<UnresponsivePeer> silent;
  for (const auto &[peer, connection] : connections_) {
    if (connection->saidGoodbye)
      continue;
    const double unresponsive = now_ - connection->lastHeardSeconds,
                 since = connection->undeliveredSince, undelivered = since > 0 ? now_ - since : 0;
    if (unresponsive > 2 * beatSeconds_)
      silent.push_back({peer, unresponsive});
    if (undelivered > 2 * beatSeconds_)
      silent.push_back({peer, undelivered, true});
  }
  return silent;
}

void Links::fail(const Error &why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed())
      return;
    why_ = why;
    failed_.store(true, std::memory_order_release);
    wake(nullptr);
  }
  changed_.notify_all();
  std::string word = frame(Abort, why);
  for (auto &[peer, connection] : connections_)
    writeWhole(connection->control.get(), word.data(),
               word.size()); // a peer that is gone does not need it
  poke();
}

/// Requires the mutex. Ends the waiting of transfers with one peer, or of all transfers.
void Links::wake(const PeerConnection *only) {
  for (Transfer *transfer = inProgress_; transfer; transfer = transfer->next_)
    if (!only || transfer->connection_ == only) {
      transfer->buffer_->abortWaitSend();
      transfer->buffer_->abortWaitRecv();
    }
}

Status Links::enlist(Transfer &transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed())
    return Status(why_);
  if (transfer.connection_->left)
    return Status(hasLeft(*transfer.connection_));
  transfer.previous_ = nullptr;
  transfer.next_ = inProgress_;
  if (inProgress_)
    inProgress_->previous_ = &transfer;
  inProgress_ = &transfer;
  return Status::success();
}

void Links::strike(Transfer &transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (transfer.next_)
    transfer.next_->previous_ = transfer.previous_;
  (transfer.previous_ ? transfer.previous_->next_ : inProgress_) = transfer.next_;
}

/// Returns the error of a transfer that ended early.
Status Links::whyStopped(PeerConnection &connection, const std::string &problem) {
  bool broken = std::any_of(connection.dataConnections.begin(), connection.dataConnections.end(),
                            [](const auto &context) { return context->pair().isClosed(); });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    auto known = [&] { return failed() || connection.left; };
    if (broken)
      changed_.wait_for(lock, 3 * kWordTime, known); // the watcher thread determines the reason
    if (failed())
      return Status(why_);
    if (connection.left)
      return Status(hasLeft(connection));
  }
  fail({ErrorKind::Internal, "transfers with " + connection.name + " stopped: " + problem,
        connection.peer});
  return failure();
}

void Links::poke() {
  uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

/// Sends heartbeats to all peers and checks the connections.
void Links::beat(double now) {
  static const std::string word = frame(Heartbeat, {});
  for (auto &[peer, connection] : connections_) {
    connection->survival.keep(connection->control.get());
    double since = 0;
    for (const auto &context : connection->dataConnections)
      if (double found = context->pair().look(now); found > 0 && (since == 0 || found < since))
        since = found;
    connection->undeliveredSince = since;
    int unsent = 0;
    if (connection->controlOpen && ioctl(connection->control.get(), SIOCOUTQ, &unsent) == 0 &&
        unsent <= kUnsentBytes)
      writeWhole(connection->control.get(), word.data(), word.size());
  }
}

void Links::watch() {
  bool pairsClosed = false;
  double beatAt = 0;
  while (!stopping_) {
    if (failed() && !pairsClosed) {
      closePairs();
      pairsClosed = true;
    }
    std::vector<pollfd> polled{{event_.get(), POLLIN, 0}};
    std::vector<PeerConnection *> order;
    bool doubtful = false;
    for (auto &[peer, connection] : connections_) {
      doubtful = doubtful || (connection->brokenSince && !connection->left);
      if (!connection->controlOpen || failed())
        continue;
      polled.push_back({connection->control.get(), POLLIN, 0});
      order.push_back(connection.get());
    }
    int wait = failed() || connections_.empty()
                   ? -1
                   : std::max(1, int(1000 * std::min(beatSeconds_, beatAt - clock_.now())));
    poll(polled.data(), polled.size(), doubtful && !failed() ? std::min(20, wait) : wait);
    uint64_t count;
    if (polled[0].revents != 0)
      (void)!::read(event_.get(), &count, sizeof count);
    for (size_t i = 0; i < order.size(); ++i)
      if (polled[i + 1].revents != 0)
        readControl(*order[i]);
    double now = clock_.advance(); // after all data that had arrived was read
    for (size_t i = 0; i < order.size(); ++i)
      if (polled[i + 1].revents != 0)
        order[i]->lastHeardSeconds = now;
    now_ = now;
    if (now >= beatAt && !failed()) {
      beat(now);
      beatAt = now + beatSeconds_;
    }
    for (auto &[peer, connection] : connections_)
      judge(*connection);
  }
}

void Links::readControl(PeerConnection &connection) {
  char buffer[1024];
  ssize_t got = recv(connection.control.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got <= 0) {
    connection.controlOpen = false;
    if (!connection.saidGoodbye)
      fail({ErrorKind::User,
            connection.name + " is gone: its connection closed without a goodbye message" +
                (got < 0 ? std::string(" (") + std::strerror(errno) + ")" : ""),
            connection.peer});
    return;
  }
  connection.inbox.append(buffer, got);
  while (connection.inbox.size() >= kHeaderBytes) {
    auto byte = [&](size_t i) { return uint8_t(connection.inbox[i]); };
    size_t length = byte(2) | size_t(byte(3)) << 8;
    if (byte(0) < Close || byte(0) > Heartbeat || byte(1) > uint8_t(ErrorKind::Internal) ||
        length > kMaxReason) {
      connection.controlOpen = false;
      return fail(internalError(connection.name + " sent an invalid transport message"));
    }
    if (connection.inbox.size() < kHeaderBytes + length)
      return;
    if (byte(0) == Close)
      connection.saidGoodbye = true;
    else if (byte(0) == Abort)
      fail({ErrorKind(byte(1)), connection.inbox.substr(kHeaderBytes, length), connection.peer});
    connection.inbox.erase(0, kHeaderBytes + length);
  }
}

/// Determines why a data connection was closed.
void Links::judge(PeerConnection &connection) {
  for (const auto &context : connection.dataConnections)
    if (context->pair().isClosed())
      context->pair().shut(); // otherwise the event loop is notified repeatedly
  if (failed() || connection.left)
    return;
  AdoptedPair *closed = nullptr;
  bool allClosed = true;
  for (const auto &context : connection.dataConnections) {
    if (!context->pair().isClosed())
      allClosed = false;
    else if (!closed || closed->problem().empty())
      closed = &context->pair();
  }
  if (!closed || (connection.saidGoodbye && !allClosed))
    return;
  if (connection.saidGoodbye) {
    // Gloo closes a pair only after it has read all data: transfers that still wait cannot
    // complete.
    {
      std::lock_guard<std::mutex> lock(mutex_);
      connection.left = true;
      wake(&connection);
    }
    changed_.notify_all();
  } else if (std::string problem = closed->problem(); !problem.empty()) {
    fail({ErrorKind::Internal, "transfers with " + connection.name + " stopped: " + problem,
          connection.peer});
  } else if (!connection.brokenSince) {
    connection.brokenSince = Clock::now();
  } else if (Clock::now() - *connection.brokenSince > kWordTime) {
    fail({ErrorKind::User, "the connection to " + connection.name + " was lost", connection.peer});
  }
}

void Links::closePairs() {
  if (!loop_)
    return;
  try {
    Ticker ticker(loop_);
    for (auto &[peer, connection] : connections_)
      for (const auto &context : connection->dataConnections)
        context->pair().shut();
  } catch (const std::exception &) { // no free descriptor: the loop turns more slowly
    for (auto &[peer, connection] : connections_)
      for (const auto &context : connection->dataConnections)
        context->pair().shut();
  }
}
