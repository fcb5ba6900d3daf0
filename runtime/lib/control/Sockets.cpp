#include "Sockets.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

using namespace zorse::control;
using namespace zorse::runtime;

Waker::Waker() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Waker::wake() const {
  uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Waker::drain() const {
  uint64_t count;
  while (::read(fd_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

Result<std::thread> zorse::control::startThread(std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::string why;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error &error) {
    why = error.what();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread.joinable())
    return userError("a thread cannot be started: " + why +
                     "; is there a limit on processes or memory (ulimit -u, cgroup)?");
  return thread;
}

double zorse::control::monotonicSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

std::string zorse::control::describe(const Endpoint &endpoint) {
  bool six = endpoint.host.find(':') != std::string::npos;
  return (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

namespace {

/// Addresses of a host name; freed by the destructor.
struct Addresses {
  addrinfo *list = nullptr;
  ~Addresses() {
    if (list)
      ::freeaddrinfo(list);
  }
};

Status lookUp(const std::string &host, uint16_t port, bool listening, Addresses *out) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listening ? AI_PASSIVE : 0);
  int failed = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                             &hints, &out->list);
  if (failed != 0)
    return userError("host '" + host + "' is not known: " +
                     (failed == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failed)));
  return Status::success();
}

FileDescriptor newSocket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

uint16_t portOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &size) != 0)
    return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in *>(&bound)->sin_port);
}

/// Returns 0 or errno.
int listenAt(const addrinfo &address, Listener *out) {
  FileDescriptor socket = newSocket(address.ai_family);
  if (!socket.valid())
    return errno;
  int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on); // not refused because of the closed connections of an earlier job
  if (address.ai_family == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(socket.get(), 1024) != 0)
    return errno;
  out->port = portOf(socket.get());
  out->socket = std::move(socket);
  return 0;
}

} // namespace

Result<Listener> zorse::control::listenOn(const std::string &address,
                                          const std::vector<uint16_t> &ports) {
  std::string tried;
  for (uint16_t port : ports) {
    Addresses addresses;
    if (Status unknown = lookUp(address, port, true, &addresses); unknown.failed())
      return userError("the coordinator cannot listen: " + unknown.message() +
                       "; give an address of this machine");
    int cause = 0;
    for (addrinfo *a = addresses.list; a; a = a->ai_next) {
      Listener listener;
      if ((cause = listenAt(*a, &listener)) == 0)
        return listener;
    }
    tried += (tried.empty() ? "" : "; ") + describe({address, port}) + ": " + std::strerror(cause);
  }
  return userError("the coordinator cannot listen (" +
                   (tried.empty() ? "no port was given" : tried) +
                   "); give an address of this machine and a free port");
}

Result<std::vector<Address>> zorse::control::resolve(const Endpoint &endpoint) {
  Addresses found;
  if (Status unknown = lookUp(endpoint.host, endpoint.port, false, &found); unknown.failed())
    return unknown;
  std::vector<Address> out;
  for (addrinfo *a = found.list; a; a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage))
      continue;
    Address address;
    std::memcpy(&address.bytes, a->ai_addr, a->ai_addrlen);
    address.size = a->ai_addrlen;
    out.push_back(address);
  }
  return out;
}

Result<FileDescriptor> zorse::control::connectTo(const Address &address, double untilSeconds) {
  FileDescriptor socket = newSocket(address.bytes.ss_family);
  if (!socket.valid())
    return userError(std::strerror(errno));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr *>(&address.bytes), address.size) ==
      0)
    return socket;
  if (errno != EINPROGRESS && errno != EINTR) // an interrupted connect continues
    return userError(std::strerror(errno));
  pollfd wait = {socket.get(), POLLOUT, 0};
  int ready;
  do {
    double left = untilSeconds - monotonicSeconds();
    ready = left <= 0 ? 0 : ::poll(&wait, 1, int(left * 1000) + 1);
  } while (ready < 0 && errno == EINTR);
  int cause = ETIMEDOUT;
  socklen_t size = sizeof cause;
  if (ready > 0)
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &cause, &size);
  if (cause != 0)
    return userError(std::strerror(cause));
  return socket;
}

void zorse::control::allowOpenFiles(uint64_t count) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count)
    return;
  limit.rlim_cur = std::min<rlim_t>(count, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Connection::Connection(FileDescriptor socket) : socket_(std::move(socket)) {
  sendWithoutDelay(socket_.get());
}

Connection::~Connection() {
  if (socket_.valid())
    OutageSurvival::end(socket_.get());
}

bool Connection::receive(size_t limit) {
  char piece[64 << 10];
  for (size_t got = 0; got < limit;) {
    ssize_t n = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (n > 0) {
      reader_.append(piece, size_t(n));
      received_ += uint64_t(n);
      got += size_t(n);
      if (size_t(n) < sizeof piece)
        return true; // probably all data was read; otherwise poll reports it
    } else if (n == 0) {
      why_ = "closed by the other end";
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      why_ = std::strerror(errno);
      return false;
    }
  }
  return true;
}

void Connection::queue(SharedFrame frame, bool lasting) {
  out_.push_back({std::move(frame), lasting});
}

void Connection::flush() {
  while (!out_.empty()) {
    iovec pieces[64];
    size_t count = 0;
    for (const Out &out : out_) {
      if (count == std::size(pieces))
        break;
      size_t skip = count == 0 ? sent_ : 0;
      pieces[count++] = {const_cast<char *>(out.frame->data()) + skip, out.frame->size() - skip};
    }
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    if (n < 0) {
      out_.clear();
      sent_ = 0;
      return;
    }
    for (sent_ += size_t(n); !out_.empty() && sent_ >= out_.front().frame->size(); out_.pop_front())
      sent_ -= out_.front().frame->size();
  }
}

bool Connection::isSendingAgain() const { return survival_.isDoubtful(socket_.get()); }

void Connection::giveUp() {
  auto first = out_.begin() + (sent_ > 0 ? 1 : 0);
  out_.erase(std::remove_if(first, out_.end(), [](const Out &out) { return !out.lasting; }),
             out_.end());
}

void Connection::finish() { ::shutdown(socket_.get(), SHUT_WR); }
