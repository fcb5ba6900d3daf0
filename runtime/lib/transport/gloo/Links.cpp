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

Error hasLeft(const Link &link) { return {ErrorKind::User, link.name + " has left the job", link.peer}; }

} // namespace

Status Transfer::start(Links &links, Link &link, uint32_t context, uint64_t slot, void *data, size_t bytes, bool isSend) {
  links_ = &links;
  link_ = &link;
  isSend_ = isSend;
  pair_ = &link.contexts[context]->pair();
  try {
    buffer_ = link.contexts[context]->createUnboundBuffer(data, bytes);
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
    return links.whyStopped(link, exception.what());
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
    if (!done && link_->left && !links_->failed())
      done = isSend_ ? buffer_->waitSend(nullptr, kMoment) : buffer_->waitRecv(nullptr, kMoment);
  } catch (const std::exception &exception) {
    problem = exception.what();
  }
  if (!done) {
    cancel();
    return links_->whyStopped(*link_, problem);
  }
  links_->strike(*this);
  buffer_.reset();
  return Status::success();
}

void Transfer::cancel() {
  if (!buffer_)
    return;
  links_->strike(*this);
  std::lock_guard<std::mutex> call(pair_->calls); // the event loop does not use the buffer now or later
  buffer_.reset();
}

Result<std::unique_ptr<Links>> Links::create(const GlooOptions &options, std::map<uint32_t, Connections> connections) {
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
      auto link = std::make_unique<Link>();
      link->peer = peer;
      link->name = rankName(options, peer);
      link->control = std::move(connection.control);
      link->survival.begin(link->control.get(), options.heartbeatTimeoutSeconds);
      for (FileDescriptor &fd : connection.data) {
        auto context = std::make_shared<PairContext>(loop_);
        link->contexts.push_back(context);
        context->connect(loop_.get(), fd.release(), options.heartbeatTimeoutSeconds, [this] { poke(); });
      }
      links_[peer] = std::move(link);
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
      return std::all_of(links_.begin(), links_.end(), [](const auto &entry) {
        return std::all_of(entry.second->contexts.begin(), entry.second->contexts.end(),
                           [](const auto &context) { return context->pair().delivered(); });
      });
    };
    while (!delivered() && !failed() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string goodbye = frame(Close, {});
    for (auto &[peer, link] : links_)
      writeWhole(link->control.get(), goodbye.data(), goodbye.size());
  }
  stopping_ = true;
  poke();
  if (watcher_.joinable())
    watcher_.join();
  closePairs();
  links_.clear();
}

Link *Links::to(uint32_t peer) {
  auto found = links_.find(peer);
  return found == links_.end() ? nullptr : found->second.get();
}

Status Links::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Status(why_);
}

uint64_t Links::moved() const {
  uint64_t bytes = 0;
  for (const auto &[peer, link] : links_)
    for (const auto &context : link->contexts)
      bytes += context->pair().movedBytes();
  return bytes;
}

std::vector<UnresponsivePeer> Links::unresponsive() const {
  std::vector<UnresponsivePeer> silent;
  for (const auto &[peer, link] : links_) {
    if (link->saidGoodbye)
      continue;
    const double unresponsive = now_ - link->lastHeardSeconds, since = link->undeliveredSince, undelivered = since > 0 ? now_ - since : 0;
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
  for (auto &[peer, link] : links_)
    writeWhole(link->control.get(), word.data(), word.size()); // a peer that is gone does not need it
  poke();
}

/// Requires the mutex. Ends the waiting of transfers with one peer, or of all transfers.
void Links::wake(const Link *only) {
  for (Transfer *transfer = inProgress_; transfer; transfer = transfer->next_)
    if (!only || transfer->link_ == only) {
      transfer->buffer_->abortWaitSend();
      transfer->buffer_->abortWaitRecv();
    }
}

Status Links::enlist(Transfer &transfer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed())
    return Status(why_);
  if (transfer.link_->left)
    return Status(hasLeft(*transfer.link_));
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
Status Links::whyStopped(Link &link, const std::string &problem) {
  bool broken = std::any_of(link.contexts.begin(), link.contexts.end(), [](const auto &context) { return context->pair().isClosed(); });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    auto known = [&] { return failed() || link.left; };
    if (broken)
      changed_.wait_for(lock, 3 * kWordTime, known); // the watcher thread determines the reason
    if (failed())
      return Status(why_);
    if (link.left)
      return Status(hasLeft(link));
  }
  fail({ErrorKind::Internal, "transfers with " + link.name + " stopped: " + problem, link.peer});
  return failure();
}

void Links::poke() {
  uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

/// Sends heartbeats to all peers and checks the connections.
void Links::beat(double now) {
  static const std::string word = frame(Heartbeat, {});
  for (auto &[peer, link] : links_) {
    link->survival.keep(link->control.get());
    double since = 0;
    for (const auto &context : link->contexts)
      if (double found = context->pair().look(now); found > 0 && (since == 0 || found < since))
        since = found;
    link->undeliveredSince = since;
    int unsent = 0;
    if (link->controlOpen && ioctl(link->control.get(), SIOCOUTQ, &unsent) == 0 && unsent <= kUnsentBytes)
      writeWhole(link->control.get(), word.data(), word.size());
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
    std::vector<Link *> order;
    bool doubtful = false;
    for (auto &[peer, link] : links_) {
      doubtful = doubtful || (link->brokenSince && !link->left);
      if (!link->controlOpen || failed())
        continue;
      polled.push_back({link->control.get(), POLLIN, 0});
      order.push_back(link.get());
    }
    int wait = failed() || links_.empty() ? -1 : std::max(1, int(1000 * std::min(beatSeconds_, beatAt - clock_.now())));
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
    for (auto &[peer, link] : links_)
      judge(*link);
  }
}

void Links::readControl(Link &link) {
  char buffer[1024];
  ssize_t got = recv(link.control.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got <= 0) {
    link.controlOpen = false;
    if (!link.saidGoodbye)
      fail({ErrorKind::User,
            link.name + " is gone: its connection closed without a goodbye message" + (got < 0 ? std::string(" (") + std::strerror(errno) + ")" : ""),
            link.peer});
    return;
  }
  link.inbox.append(buffer, got);
  while (link.inbox.size() >= kHeaderBytes) {
    auto byte = [&](size_t i) { return uint8_t(link.inbox[i]); };
    size_t length = byte(2) | size_t(byte(3)) << 8;
    if (byte(0) < Close || byte(0) > Heartbeat || byte(1) > uint8_t(ErrorKind::Internal) || length > kMaxReason) {
      link.controlOpen = false;
      return fail(internalError(link.name + " sent an invalid transport message"));
    }
    if (link.inbox.size() < kHeaderBytes + length)
      return;
    if (byte(0) == Close)
      link.saidGoodbye = true;
    else if (byte(0) == Abort)
      fail({ErrorKind(byte(1)), link.inbox.substr(kHeaderBytes, length), link.peer});
    link.inbox.erase(0, kHeaderBytes + length);
  }
}

/// Determines why a data connection was closed.
void Links::judge(Link &link) {
  for (const auto &context : link.contexts)
    if (context->pair().isClosed())
      context->pair().shut(); // otherwise the event loop is notified repeatedly
  if (failed() || link.left)
    return;
  AdoptedPair *closed = nullptr;
  bool allClosed = true;
  for (const auto &context : link.contexts) {
    if (!context->pair().isClosed())
      allClosed = false;
    else if (!closed || closed->problem().empty())
      closed = &context->pair();
  }
  if (!closed || (link.saidGoodbye && !allClosed))
    return;
  if (link.saidGoodbye) {
    // Gloo closes a pair only after it has read all data: transfers that still wait cannot
    // complete.
    {
      std::lock_guard<std::mutex> lock(mutex_);
      link.left = true;
      wake(&link);
    }
    changed_.notify_all();
  } else if (std::string problem = closed->problem(); !problem.empty()) {
    fail({ErrorKind::Internal, "transfers with " + link.name + " stopped: " + problem, link.peer});
  } else if (!link.brokenSince) {
    link.brokenSince = Clock::now();
  } else if (Clock::now() - *link.brokenSince > kWordTime) {
    fail({ErrorKind::User, "the connection to " + link.name + " was lost", link.peer});
  }
}

void Links::closePairs() {
  if (!loop_)
    return;
  try {
    Ticker ticker(loop_);
    for (auto &[peer, link] : links_)
      for (const auto &context : link->contexts)
        context->pair().shut();
  } catch (const std::exception &) { // no free descriptor: the loop turns more slowly
    for (auto &[peer, link] : links_)
      for (const auto &context : link->contexts)
        context->pair().shut();
  }
}
