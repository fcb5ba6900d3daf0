// TCP sockets: listening, connecting, without blocking.
#pragma once

#include "zorse/runtime/FileDescriptor.h"

#include "zorse/runtime/Status.h"

#include <string>

namespace zorse::runtime::gloo_transport {

/// Listens on any free port of `host`, which must resolve to an address of this host. `port`: which one.
Result<FileDescriptor> listenOn(const std::string &host, uint16_t &port);

/// True if `host` means every address of a host.
bool isWildcard(const std::string &host);

/// Starts to connect; the descriptor becomes writable when that is decided. `attempt` chooses among several addresses of a name.
Result<FileDescriptor> startConnecting(const std::string &host, uint16_t port, unsigned attempt);

/// Of a socket that has become writable: empty if it is connected, else why not.
std::string connectProblem(int fd);

/// Writes all of it at once or fails; never raises SIGPIPE, never blocks.
bool writeWhole(int fd, const void *data, size_t bytes);

} // namespace zorse::runtime::gloo_transport
