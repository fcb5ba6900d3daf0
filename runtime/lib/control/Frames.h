// The wire format of the control plane, without sockets: a byte stream is split into frames, and a
// frame is parsed into a message. Parsing is strict: it checks every field, so that handlers can
// use a message without further checks. The input may be arbitrary: no memory is allocated because
// of a length that a peer announces.
#pragma once

#include "zorse/runtime/Status.h"

#include "control.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zorse::control {

inline constexpr uint32_t kVersion = 2;
inline constexpr char kMagic[] = "zorse control";

inline constexpr size_t kNonceBytes = 32, kMacBytes = 32;
inline constexpr size_t kLengthBytes = 4;
inline constexpr size_t kGreetingBytes = 1024; ///< largest frame before the sender has proved that
                                               ///< it knows the secret
inline constexpr size_t kFrameBytes = size_t(16) << 20;   ///< largest frame after that
inline constexpr size_t kValueBytes = kFrameBytes - 4096; ///< largest contribution or report
inline constexpr size_t kNameBytes = 1024;                ///< name of an exchange
inline constexpr size_t kJobBytes = 256, kDeviceBytes = 256;
inline constexpr size_t kTextBytes = 64 << 10;          ///< texts of messages and locations
inline constexpr size_t kValuesBytes = size_t(1) << 20; ///< contributions are batched into messages
                                                        ///< of about this size

/// State of a connection's handshake. It determines which messages are expected.
enum class HandshakeState : uint8_t { Greeting, Proof, Join, Work };

/// Splits received data into frames. The data may arrive in chunks of any size.
class FrameReader {
public:
  explicit FrameReader(size_t limit = kGreetingBytes) : limit_(limit) {}
  void setLimit(size_t bytes) { limit_ = bytes; }

  void append(const char *data, size_t bytes);

  /// Returns the next complete frame (without its length), valid until the next call of `append` or
  /// `next`. Returns nullopt if the frame is incomplete or if `broken()`.
  std::optional<std::string_view> next();

  /// A peer announced a length of 0 or beyond the limit. The rest of the stream cannot be parsed.
  bool broken() const { return broken_; }
  size_t buffered() const { return buffer_.size() - begin_; }

private:
  std::string buffer_;
  size_t begin_ = 0;
  size_t limit_;
  bool broken_ = false;
};

/// Parses and checks one message. The error names the invalid field.
/// \param sender  expected sender
/// \param world   upper bound of the ranks in the message; not checked in Join
runtime::Result<Message> parseMessage(std::string_view frame, Role sender, HandshakeState state,
                                      uint32_t worldSize);

/// An encoded message with its length prefix. All connections that send it share it.
using SharedFrame = std::shared_ptr<const std::string>;
SharedFrame encode(const Message &message);

} // namespace zorse::control
