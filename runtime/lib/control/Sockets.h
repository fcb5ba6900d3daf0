// Sockets and clocks of the control plane: close-on-exec, non-blocking, no SIGPIPE, EINTR handled.
#pragma once

#include "Frames.h"

#include "zorse/runtime/Control.h"
#include "zorse/runtime/FairClock.h"
#include "zorse/runtime/FileDescriptor.h"
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

/// Wakes a thread that polls `get()`. `wake` may be called from any thread.
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

/// A thread that takes no signals: they are for the threads of the program that uses this library.
runtime::Result<std::thread> startThread(std::function<void()> body);

/// Seconds of CLOCK_MONOTONIC.
double monotonicSeconds();

using runtime::FairClock;

/// "127.0.0.1:4711", "[::1]:4711"
std::string describe(const runtime::Endpoint &endpoint);

struct Listener {
  FileDescriptor socket;
  uint16_t port = 0;
};
/// Listens on the first of `ports` that is free. Address: IPv4, IPv6 or a host name; empty, "0.0.0.0" or "::" for all interfaces.
runtime::Result<Listener> listenOn(const std::string &address, const std::vector<uint16_t> &ports);

/// Silence for which the network is to blame is longer than the outage by TCP's pause until it sends again (TcpOptions.h), the time on the way and
/// that between two heartbeats. So it counts a little later, as far as short deadlines can afford that.
inline double sendingAgainSeconds(double deadline) { return std::min(1.0, deadline / 3); }

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};
/// Every address of the endpoint's host, IPv4 and IPv6: different programs may listen at the same port of each.
runtime::Result<std::vector<Address>> resolve(const runtime::Endpoint &endpoint);

/// \param untilSeconds  of CLOCK_MONOTONIC
runtime::Result<FileDescriptor> connectTo(const Address &address, double untilSeconds);

/// Raises the soft limit of open files to at least `count` if the hard one allows it.
void allowOpenFiles(uint64_t count);

/// Frames over a non-blocking stream socket. Not synchronised.
class Connection {
public:
  explicit Connection(FileDescriptor socket);
  Connection(Connection &&) noexcept = default;
  ~Connection();

  /// From here on the connection outlasts outages that are shorter than the deadline. `keepAlive` is called with every heartbeat.
  void setDeadline(double seconds) { survival_.begin(socket_.get(), seconds); }
  void keepAlive() { survival_.keep(socket_.get()); }

  int fd() const { return socket_.get(); }
  FrameReader &reader() { return reader_; }

  /// Reads what is there, at most `limit` bytes. False: the other end has closed or the connection is broken (`why`); what came before may still be
  /// in the reader.
  bool receive(size_t limit);
  /// Bytes received so far.
  uint64_t received() const { return received_; }

  /// \param lasting  false: given up when the job fails.
  void queue(SharedFrame frame, bool lasting = true);
  /// Sends as much as the socket takes. When the connection is broken the queue is dropped and `receive` tells, after what the other end said last.
  void flush();
  bool pending() const { return !out_.empty(); }
  /// The other end's host has not acknowledged for so long that what was sent is being sent again, or was a moment ago: it is not the process there
  /// that is silent, or not alone, but the network.
  bool isSendingAgain() const;
  /// Removes queued frames that are not lasting, except one that has been sent in part.
  void giveUp();
  /// No more is sent; the other end sees the end of the stream after what was sent.
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
  size_t sent_ = 0; ///< of the first in out_
  uint64_t received_ = 0;
  std::string why_;
};

} // namespace zorse::control
