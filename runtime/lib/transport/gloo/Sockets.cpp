#include "Sockets.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

namespace {

Result<std::shared_ptr<addrinfo>> resolve(const std::string &host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo *found = nullptr;
  int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0 || !found)
    return userError("the host '" + host + "' is not known: " +
                     (error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  return std::shared_ptr<addrinfo>(found, &freeaddrinfo);
}

} // namespace

Result<FileDescriptor> zorse::runtime::gloo_transport::listenOn(const std::string &host,
                                                                uint16_t &port) {
  Result<std::shared_ptr<addrinfo>> addresses = resolve(host, 0);
  if (addresses.failed())
    return addresses.error();
  std::string problem;
  for (addrinfo *address = addresses->get(); address; address = address->ai_next) {
    FileDescriptor fd(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.valid() && bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        listen(fd.get(), 1024) == 0) {
      sockaddr_storage bound = {};
      socklen_t length = sizeof bound;
      if (getsockname(fd.get(), reinterpret_cast<sockaddr *>(&bound), &length) == 0) {
        port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(bound).sin6_port
                                                 : reinterpret_cast<sockaddr_in &>(bound).sin_port);
        return fd;
      }
    }
    problem = std::strerror(errno);
  }
  return userError("cannot listen on '" + host + "': " + problem +
                   "; expected an address of this host");
}

bool zorse::runtime::gloo_transport::isWildcard(const std::string &host) {
  return host == "0.0.0.0" || host == "::" || host == "*" || host.empty();
}

Result<FileDescriptor> zorse::runtime::gloo_transport::startConnecting(const std::string &host,
                                                                       uint16_t port,
                                                                       unsigned attempt) {
  Result<std::shared_ptr<addrinfo>> addresses = resolve(host, port);
  if (addresses.failed())
    return addresses.error();
  std::vector<addrinfo *> list;
  for (addrinfo *address = addresses->get(); address; address = address->ai_next)
    list.push_back(address);
  addrinfo *address = list[attempt % list.size()];
  FileDescriptor fd(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid() &&
      (connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS))
    return fd;
  return userError(std::strerror(errno));
}

std::string zorse::runtime::gloo_transport::connectProblem(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
    error = errno;
  return error == 0 ? "" : std::strerror(error);
}

bool zorse::runtime::gloo_transport::writeWhole(int fd, const void *data, size_t bytes) {
  ssize_t written;
  do
    written = ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (written < 0 && errno == EINTR);
  return written == ssize_t(bytes);
}
