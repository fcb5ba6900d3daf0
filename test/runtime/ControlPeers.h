// Misbehaving peers of the control plane: raw sockets with chosen content, and programs that are
// not coordinators.
#pragma once

#include "Must.h"

#include "control/Frames.h"
#include "control/Proof.h"
#include "control/Sockets.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

namespace zorse::runtime::test {

/// A socket that sends the bytes a test chooses.
class Raw {
public:
  explicit Raw(uint16_t port) {
    socket_ =
        must(zorse::control::connectTo(must(zorse::control::resolve({"127.0.0.1", port})).at(0),
                                       zorse::control::monotonicSeconds() + 20));
  }
  explicit Raw(zorse::runtime::FileDescriptor socket) : socket_(std::move(socket)) {}

  void say(const std::string &bytes) {
    ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void say(const zorse::control::Message &message) { say(*zorse::control::encode(message)); }

  /// Returns the bytes received until the other end closes or `seconds` have passed.
  std::string hear(double seconds, bool *closed = nullptr) {
    std::string out;
    double until = zorse::control::monotonicSeconds() + seconds;
    while (true) {
      pollfd wait = {socket_.get(), POLLIN, 0};
      double left = until - zorse::control::monotonicSeconds();
      if (left <= 0 || ::poll(&wait, 1, int(left * 1000) + 1) <= 0)
        return out;
      char piece[4096];
      ssize_t n = ::recv(socket_.get(), piece, sizeof piece, 0);
      if (n <= 0) {
        if (closed)
          *closed = true;
        return out;
      }
      out.append(piece, size_t(n));
    }
  }
  /// The next message.
  std::optional<zorse::control::Message> next(double seconds = 20) {
    double until = zorse::control::monotonicSeconds() + seconds;
    while (true) {
      if (std::optional<std::string_view> frame = reader_.next()) {
        zorse::control::Message message;
        return message.ParseFromArray(frame->data(), int(frame->size())) ? std::optional(message)
                                                                         : std::nullopt;
      }
      pollfd wait = {socket_.get(), POLLIN, 0};
      double left = until - zorse::control::monotonicSeconds();
      char piece[4096];
      ssize_t n = left <= 0 || ::poll(&wait, 1, int(left * 1000) + 1) <= 0
                      ? 0
                      : ::recv(socket_.get(), piece, sizeof piece, 0);
      if (n <= 0)
        return std::nullopt;
      reader_.append(piece, size_t(n));
    }
  }
  int fd() const { return socket_.get(); }

private:
  zorse::runtime::FileDescriptor socket_;
  zorse::control::FrameReader reader_{zorse::control::kFrameBytes};
};

inline zorse::control::Message greeting(zorse::control::Role role, const std::string &nonce,
                                        uint32_t version = zorse::control::kVersion) {
  zorse::control::Message message;
  message.mutable_hello()->set_magic(zorse::control::kMagic);
  message.mutable_hello()->set_version(version);
  message.mutable_hello()->set_role(role);
  message.mutable_hello()->set_nonce(nonce);
  return message;
}

/// A program that is not a coordinator. Calls `serve` for every connection.
class OtherProgram {
public:
  explicit OtherProgram(std::function<void(Raw)> serve) : serve_(std::move(serve)) {
    zorse::control::Listener listener = must(zorse::control::listenOn("127.0.0.1", {0}));
    port = listener.port;
    listener_ = std::move(listener.socket);
    thread_ = std::thread([this] {
      while (!ending_) {
        pollfd wait = {listener_.get(), POLLIN, 0};
        if (::poll(&wait, 1, 10) <= 0)
          continue;
        zorse::runtime::FileDescriptor socket(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (socket.valid()) {
          ++connections;
          serve_(Raw(std::move(socket)));
        }
      }
    });
  }
  ~OtherProgram() {
    ending_ = true;
    thread_.join();
  }
  /// Whether the test is over and long-running callbacks should return.
  bool ending() const { return ending_; }
  uint16_t port = 0;
  std::atomic<int> connections{0};

private:
  std::function<void(Raw)> serve_;
  zorse::runtime::FileDescriptor listener_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

} // namespace zorse::runtime::test
