#include "Pair.h"

#include <arpa/inet.h>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

AdoptedPair::AdoptedPair(tcp::Context *context, tcp::Device *device, int rank,
                         std::function<void()> closed)
    : tcp::Pair(context, device, rank, kForever), closed_(std::move(closed)) {}

void AdoptedPair::adopt(int fd, double heartbeatTimeoutSeconds) {
  std::lock_guard<std::mutex> lock(m_);
  if (state_ != LISTENING) {
    ::close(fd);
    throw std::runtime_error("a new pair of Gloo is expected to listen, and does not");
  }
  // The constructor listens on a port of the loopback device; handleEvents ignores connections to
  // it. Our connection replaces that socket, which is closed and removed from the event loop.
  int flags = fcntl(fd, F_GETFD);
  if (dup3(fd, fd_, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0) {
    ::close(fd);
    throw std::runtime_error("dup3 failed");
  }
  ::close(fd);
  survival_.begin(fd_, heartbeatTimeoutSeconds);
  adopted_.store(true, std::memory_order_release);
  handleConnected();
}

void AdoptedPair::shut() noexcept {
  shutting_.store(true, std::memory_order_release);
  int fd;
  {
    std::lock_guard<std::mutex> call(calls);
    std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED)
      changeState(CLOSED);
    countMoved();
    fd = std::exchange(fd_, -1);
  }
  if (fd < 0)
    return;
  try {
    device_->unregisterDescriptor(fd, this);
  } catch (const std::exception &) { // it was never registered
  }
  (void)handled_.load(std::memory_order_acquire);
  OutageSurvival::end(fd);
  ::close(fd);
}

std::string AdoptedPair::problem() const {
  std::lock_guard<std::mutex> lock(problemMutex_);
  return problem_;
}

bool AdoptedPair::delivered() {
  std::lock_guard<std::mutex> call(calls);
  std::lock_guard<std::mutex> lock(m_);
  int left = 0;
  return state_ != CONNECTED || (tx_.empty() && (ioctl(fd_, SIOCOUTQ, &left) != 0 || left == 0));
}

double AdoptedPair::look(double now) {
  std::lock_guard<std::mutex> call(calls);
  std::lock_guard<std::mutex> lock(m_);
  if (fd_ < 0)
    return 0;
  survival_.keep(fd_);
  Delivery found = deliveryOf(fd_);
  if (!found.retransmitting)
    undeliveredSince_ = 0;
  else if (undeliveredSince_ == 0 || found.acknowledged != delivery_.acknowledged)
    undeliveredSince_ = now;
  delivery_ = found;
  return undeliveredSince_;
}

uint64_t AdoptedPair::movedBytes() {
  std::lock_guard<std::mutex> call(calls);
  std::lock_guard<std::mutex> lock(m_);
  countMoved();
  return moved_;
}

void AdoptedPair::countMoved() {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (fd_ >= 0 && getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
      length >= offsetof(tcp_info, tcpi_segs_out))
    moved_ = info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

void AdoptedPair::handleEvents(int events) {
  if (adopted_.load(std::memory_order_acquire) && !closedNow_.load(std::memory_order_acquire)) {
    try {
      std::lock_guard<std::mutex> call(calls);
      tcp::Pair::handleEvents(events);
    } catch (const std::exception &exception) {
      {
        std::lock_guard<std::mutex> lock(problemMutex_);
        problem_ = exception.what();
      }
      tellClosed();
    }
  }
  handled_.fetch_add(1, std::memory_order_release);
}

/// Requires the pair's lock.
void AdoptedPair::changeState(state next) noexcept {
  if (next != CLOSED)
    return tcp::Pair::changeState(next);
  state_ = CLOSED;
  cv_.notify_all();
  tellClosed();
}

void AdoptedPair::tellClosed() noexcept {
  if (!closedNow_.exchange(true) && !shutting_.load(std::memory_order_acquire))
    closed_();
}

PairContext::PairContext(std::shared_ptr<tcp::Device> device)
    : tcp::Context(std::move(device), 0, 2) {
  setTimeout(kForever);
}

void PairContext::connect(tcp::Device *device, int fd, double heartbeatTimeoutSeconds,
                          std::function<void()> closed) {
  std::unique_ptr<AdoptedPair> pair;
  try {
    pair = std::make_unique<AdoptedPair>(this, device, kPeer, std::move(closed));
  } catch (...) {
    ::close(fd);
    throw;
  }
  pair_ = pair.get();
  pairs_[kPeer] = std::move(pair);
  pair_->adopt(fd, heartbeatTimeoutSeconds);
}

std::shared_ptr<tcp::Device> zorse::runtime::gloo_transport::makeEventLoop() {
  tcp::attr attributes("127.0.0.1");
  attributes.ai_family = AF_INET;
  attributes.ai_socktype = SOCK_STREAM;
  attributes.ai_protocol = 0;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  attributes.ai_addr = {};
  std::memcpy(&attributes.ai_addr, &address, sizeof address);
  attributes.ai_addrlen = sizeof address;
  return std::make_shared<tcp::Device>(attributes);
}

Ticker::Ticker(std::shared_ptr<tcp::Device> device)
    : device_(std::move(device)), fd_(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ >= 0)
    device_->registerDescriptor(fd_, EPOLLIN, this);
}

Ticker::~Ticker() {
  if (fd_ < 0)
    return;
  device_->unregisterDescriptor(fd_, this);
  ::close(fd_);
}
