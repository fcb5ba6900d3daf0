// A port that is reserved for a test as long as the object lives, for tests that need the number
// before they listen.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace zorse::runtime::test {

/// The port is bound but not listening. Connections are refused, and the system does not assign the
/// port to other sockets. A socket that binds it by number with SO_REUSEADDR, as our coordinators
/// do, may listen.
class ReservedPort {
public:
  /// \param six  also on ::1
  explicit ReservedPort(bool six = false) {
    for (int i = 0; i < 100; ++i) { // a port that is free on 127.0.0.1 may be taken on ::1
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      if (!bindTo(four_, AF_INET, reinterpret_cast<sockaddr *>(&address), size) ||
          ::getsockname(four_, reinterpret_cast<sockaddr *>(&address), &size) != 0)
        throw std::runtime_error(std::string("no free port on 127.0.0.1: ") + std::strerror(errno));
      port_ = ntohs(address.sin_port);
      if (!six)
        return;
      sockaddr_in6 address6 = {};
      address6.sin6_family = AF_INET6;
      address6.sin6_addr = in6addr_loopback;
      address6.sin6_port = address.sin_port;
      if (bindTo(six_, AF_INET6, reinterpret_cast<sockaddr *>(&address6), sizeof address6))
        return;
      close();
    }
    throw std::runtime_error("no port is free on 127.0.0.1 and on ::1");
  }
  ~ReservedPort() { close(); }
  ReservedPort(const ReservedPort &) = delete;
  ReservedPort &operator=(const ReservedPort &) = delete;

  uint16_t number() const { return port_; }

private:
  static bool bindTo(int &fd, int family, const sockaddr *address, socklen_t size) {
    int on = 1;
    fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
           ::bind(fd, address, size) == 0;
  }
  void close() {
    for (int *fd : {&four_, &six_})
      if (*fd >= 0)
        ::close(*fd), *fd = -1;
  }

  int four_ = -1, six_ = -1;
  uint16_t port_ = 0;
};

} // namespace zorse::runtime::test
