// Sockets and clocks of the control plane: close-on-exec, non-blocking, no SIGPIPE, EINTR handled.
#pragma once

#include "Frames.h"

#include "zorse/runtime/Control.h"
#include "zorse/runtime/FileDescriptor.h"
#include "zorse/runtime/PauseTolerantClock.h"
#include "zorse/runtime/TcpOptions.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace zorse::control {

using runtime::FileDescriptor;

/// Wakes a thread that polls `get()`. Any thread may call `wake`.
class Waker {
public:
  Waker();
  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void wake() const;
  void drain() const;

private:
  FileDescriptor fd_;
};

/// Starts a thread that blocks all signals, so that they are delivered to the threads of the
/// application.
runtime::Result<std::thread> startThread(std::function<void()> body);

/// Seconds of CLOCK_MONOTONIC.
double monotonicSeconds();

using runtime::PauseTolerantClock;

/// "127.0.0.1:4711", "[::1]:4711"
std::string describe(const runtime::Endpoint &endpoint);

struct Listener {
  FileDescriptor socket;
  uint16_t port = 0;
};
/// Listens on the first free port of `ports`. The address is IPv4, IPv6 or a host name; empty,
/// "0.0.0.0" or "::" means all interfaces.
runtime::Result<Listener> listenOn(const std::string &address, const std::vector<uint16_t> &ports);

/// Additional seconds before silence counts if data is being retransmitted. A silence that the
/// network causes lasts longer than the outage: by TCP's retransmission pause (TcpOptions.h), the
/// network latency and the time between two heartbeats. Short deadlines allow only a part of this
/// time.
inline double sendingAgainSeconds(double deadline) { return std::min(1.0, deadline / 3); }

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};
/// Resolves every address of the endpoint's host, IPv4 and IPv6. Different programs may listen at
/// the same port of each.
runtime::Result<std::vector<Address>> resolve(const runtime::Endpoint &endpoint);

/// \param untilSeconds  deadline, in seconds of CLOCK_MONOTONIC
runtime::Result<FileDescriptor> connectTo(const Address &address, double untilSeconds);

/// Raises the soft limit of open files to at least `count` if the hard limit allows it.
void allowOpenFiles(uint64_t count);

/// Sends and receives frames over a non-blocking stream socket. Not synchronized.
class Connection {
public:
  explicit Connection(FileDescriptor socket);
  Connection(Connection &&) noexcept = default;
  ~Connection();

  /// The connection survives outages that are shorter than the deadline from now on. Call
  /// `keepAlive` with every heartbeat.
  void setDeadline(double seconds) { survival_.begin(socket_.get(), seconds); }
  void keepAlive() { survival_.keep(socket_.get()); }

  int fd() const { return socket_.get(); }
  FrameReader &reader() { return reader_; }

  /// Reads the available data, at most `limit` bytes. Returns false if the other end has closed or
  /// the connection is broken (`why`); the reader may still contain earlier frames.
  bool receive(size_t limit);
  /// Total number of bytes received.
  uint64_t received() const { return received_; }

  /// \param lasting  false: dropped when the job fails
  void queue(SharedFrame frame, bool lasting = true);
  /// Sends as much as the socket accepts. If the connection is broken, the queue is dropped, and
  /// `receive` reports the error after the last data of the other end.
  void flush();
  bool pending() const { return !out_.empty(); }
  /// Sent data is being retransmitted, or was until recently, because the other end's host does not
  /// acknowledge it. The network then causes the silence, alone or in addition to the process
  /// there.
  bool isSendingAgain() const;
  /// Removes queued frames that are not lasting, except one that has been sent in part.
  void giveUp();
  /// Shuts down sending. The other end sees the end of the stream after the sent data.
  void finish();

  const std::string &why() const { return why_; }

private:
  struct Out {
    SharedFrame frame;
    bool lasting;
  };
  FileDescriptor socket_;
  runtime::OutageSurvival survival_;
  FrameReader reader_;
  std::deque<Out> out_;
  size_t sent_ = 0; ///< bytes sent of the first frame in out_
  uint64_t received_ = 0;
  std::string why_;
};

} // namespace zorse::control
