// Nonblocking TCP sockets.
#pragma once

#include "zorse/runtime/FileDescriptor.h"

#include "zorse/runtime/Status.h"

#include <string>

namespace zorse::runtime::gloo_transport {

/// Listens on a free port of `host`, which must resolve to an address of this host. `port` receives
/// the port.
Result<FileDescriptor> listenOn(const std::string &host, uint16_t &port);

/// Returns whether `host` denotes all addresses of a host.
bool isWildcard(const std::string &host);

/// Starts to connect. The descriptor becomes writable when the attempt has succeeded or failed.
/// `attempt` selects one of several addresses of a name.
Result<FileDescriptor> startConnecting(const std::string &host, uint16_t port, unsigned attempt);

/// Returns the error of a socket that has become writable; empty if it is connected.
std::string connectProblem(int fd);

/// Writes all bytes or fails. Never raises SIGPIPE and never blocks.
bool writeWhole(int fd, const void *data, size_t bytes);

} // namespace zorse::runtime::gloo_transport
