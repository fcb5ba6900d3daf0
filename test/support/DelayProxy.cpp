#include "DelayProxy.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <deque>
#include <list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

using namespace zorse::test;
using Clock = std::chrono::steady_clock;

namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Chunk {
  Clock::time_point due;
  std::string bytes;
};

struct Direction {
  std::deque<Chunk> underWay;
  size_t bytes = 0;
  bool ended = false, shut = false;
};

struct Connection {
  int ends[2];
  Direction to[2]; ///< to[i]: bytes in flight to ends[i]
};

} // namespace

DelayProxy::DelayProxy(uint16_t target, double delayMilliseconds, size_t windowBytes)
    : target_(target), delay_(delayMilliseconds), window_(windowBytes) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0 &&
      listen(listener_, 64) == 0 &&
      getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &length) == 0)
    port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

DelayProxy::~DelayProxy() {
  stopping_ = true;
  thread_.join();
  close(listener_);
}

void DelayProxy::run() {
  std::list<Connection> connections;
  std::string buffer(256 << 10, 0);
  while (!stopping_) {
    std::vector<pollfd> polled{{listener_, POLLIN, 0}};
    Clock::time_point now = Clock::now(), next = now + std::chrono::milliseconds(20);
    for (Connection &connection : connections)
      for (int end : {0, 1}) {
        Direction &to = connection.to[end], &from = connection.to[1 - end];
        short events = !from.ended && from.bytes < window_ ? POLLIN : 0;
        if (!to.underWay.empty() && to.underWay.front().due <= now)
          events |= POLLOUT;
        else if (!to.underWay.empty())
          next = std::min(next, to.underWay.front().due);
        polled.push_back({connection.ends[end], events, 0});
      }
    timespec wait = {
        0, std::max<long>(
               0, std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count())};
    ppoll(polled.data(), polled.size(), &wait, nullptr);
    now = Clock::now();
    size_t at = 1;
    for (Connection &connection : connections)
      for (int end : {0, 1}) {
        short events = polled[at++].revents;
        Direction &to = connection.to[end], &from = connection.to[1 - end];
        if (events & (POLLIN | POLLHUP | POLLERR) && !from.ended) {
          ssize_t got = recv(connection.ends[end], buffer.data(), buffer.size(), MSG_DONTWAIT);
          if (got > 0) {
            from.underWay.push_back({now + std::chrono::microseconds(long(delay_ * 1000)),
                                     buffer.substr(0, size_t(got))});
            from.bytes += size_t(got);
          } else if (got == 0 || errno != EAGAIN) {
            from.ended = true;
          }
        }
        while (!to.underWay.empty() && to.underWay.front().due <= now) {
          std::string &bytes = to.underWay.front().bytes;
          ssize_t sent =
              send(connection.ends[end], bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          if (sent < 0 && errno == EAGAIN)
            break;
          to.bytes -= sent < 0 ? bytes.size() : size_t(sent);
          if (sent < 0 || size_t(sent) == bytes.size())
            to.underWay.pop_front();
          else
            bytes.erase(0, size_t(sent));
        }
        if (to.ended && to.underWay.empty() && !to.shut) {
          shutdown(connection.ends[end], SHUT_WR);
          to.shut = true;
        }
      }
    if (polled[0].revents & POLLIN) {
      int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
          far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
      sockaddr_in address = loopback(target_);
      if (connect(far, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
        close(near);
        close(far);
        continue;
      }
      for (int fd : {near, far})
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      connections.push_back({{near, far}, {}});
    }
    connections.remove_if([](const Connection &c) {
      bool over = c.to[0].shut && c.to[1].shut;
      if (over)
        for (int fd : c.ends)
          close(fd);
      return over;
    });
  }
  for (Connection &connection : connections)
    for (int fd : connection.ends)
      close(fd);
}

zorse::runtime::Result<std::vector<std::string>>
ProxiedGroup::allGatherBytes(const std::string &name, const std::string &mine) {
  if (name != "transport addresses")
    return inner_.allGatherBytes(name, mine);
  std::istringstream in(mine);
  std::string host, rest;
  uint16_t port = 0;
  in >> host >> port;
  std::getline(in, rest);
  proxy_ = std::make_unique<DelayProxy>(port, delay_, window_);
  return inner_.allGatherBytes(name, host + " " + std::to_string(proxy_->port()) + rest);
}
