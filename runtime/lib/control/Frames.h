// The wire of the control plane, without sockets: frames out of a stream of bytes, messages out of frames. Strict: every field is checked here, so
// that whoever handles a message may use it. Nothing in this file trusts its input; nothing is allocated because of a length somebody claims.
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
inline constexpr size_t kGreetingBytes = 1024;            ///< largest frame before the sender has proved that it knows the secret
inline constexpr size_t kFrameBytes = size_t(16) << 20;   ///< largest frame afterwards
inline constexpr size_t kValueBytes = kFrameBytes - 4096; ///< largest contribution or report
inline constexpr size_t kNameBytes = 1024;                ///< of an exchange
inline constexpr size_t kJobBytes = 256, kDeviceBytes = 256;
inline constexpr size_t kTextBytes = 64 << 10;          ///< messages and places
inline constexpr size_t kValuesBytes = size_t(1) << 20; ///< contributions are sent together up to about so much

/// How far a connection is; decides which messages may come next.
enum class Stage : uint8_t { Greeting, Proof, Join, Work };

/// Frames out of what was received, in pieces of any size.
class FrameReader {
public:
  explicit FrameReader(size_t limit = kGreetingBytes) : limit_(limit) {}
  void setLimit(size_t bytes) { limit_ = bytes; }

  void append(const char *data, size_t bytes);

  /// The next whole frame (without its length), valid until the next call of `append` or `next`. nullopt: not yet there, or `broken()`.
  std::optional<std::string_view> next();

  /// A length of 0 or beyond the limit has been announced: nothing after it can be understood.
  bool broken() const { return broken_; }
  size_t buffered() const { return buffer_.size() - begin_; }

private:
  std::string buffer_;
  size_t begin_ = 0;
  size_t limit_;
  bool broken_ = false;
};

/// One message. An error says what is wrong with it.
/// \param sender  who must have sent it
/// \param world   ranks named in it are less; unchecked in Join.
runtime::Result<Message> parseMessage(std::string_view frame, Role sender, Stage stage, uint32_t world);

/// A frame with its length, shared by all connections it is sent on.
using SharedFrame = std::shared_ptr<const std::string>;
SharedFrame encode(const Message &message);

} // namespace zorse::control
