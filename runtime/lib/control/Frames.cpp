#include "Frames.h"

#include <cmath>

using namespace zorse::control;
using zorse::runtime::Error;
using zorse::runtime::internalError;
using zorse::runtime::Result;
using zorse::runtime::Status;
using zorse::runtime::userError;

void FrameReader::append(const char *data, size_t bytes) {
  if (broken_)
    return;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
    if (buffer_.capacity() > 4 * kValuesBytes)
      buffer_.shrink_to_fit();                    // memory of a large frame
  } else if (begin_ >= buffer_.size() - begin_) { // amortized: every byte is moved at most once per
                                                  // byte consumed
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_.append(data, bytes);
}

std::optional<std::string_view> FrameReader::next() {
  if (broken_ || buffered() < kLengthBytes)
    return std::nullopt;
  const unsigned char *head = reinterpret_cast<const unsigned char *>(buffer_.data()) + begin_;
  size_t length = size_t(head[0]) << 24 | size_t(head[1]) << 16 | size_t(head[2]) << 8 | head[3];
  if (length == 0 || length > limit_) {
    broken_ = true;
    return std::nullopt;
  }
  if (buffered() < kLengthBytes + length)
    return std::nullopt;
  std::string_view frame(buffer_.data() + begin_ + kLengthBytes, length);
  begin_ += kLengthBytes + length;
  return frame;
}

SharedFrame zorse::control::encode(const Message &message) {
  std::string frame(kLengthBytes, '\0');
  message.AppendToString(&frame);
  size_t length = frame.size() - kLengthBytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    frame[i] = char(length >> (8 * (kLengthBytes - 1 - i)) & 0xff);
  return std::make_shared<const std::string>(std::move(frame));
}

namespace {

Status wrong(const std::string &what) { return userError("protocol violation: " + what); }

Status checkText(const std::string &text, size_t limit, const char *name) {
  if (text.size() > limit)
    return wrong(std::string(name) + " has " + std::to_string(text.size()) + " bytes, at most " +
                 std::to_string(limit) + " are allowed");
  return Status::success();
}

Status checkExact(const std::string &bytes, size_t expected, const char *name) {
  if (bytes.size() != expected)
    return wrong(std::string(name) + " has " + std::to_string(bytes.size()) + " bytes, expected " +
                 std::to_string(expected));
  return Status::success();
}

bool isPositive(double seconds) { return std::isfinite(seconds) && seconds > 0 && seconds < 1e9; }

Status checkFailure(const FailureReport &failure, uint32_t worldSize) {
  if (failure.cause() > 5)
    return wrong("cause " + std::to_string(failure.cause()));
  for (uint32_t rank : {failure.rank(), failure.peer()})
    if (rank != UINT32_MAX && rank >= worldSize)
      return wrong("rank " + std::to_string(rank) + " of " + std::to_string(worldSize));
  if (failure.exit_code() < 0 || failure.exit_code() > 255)
    return wrong("exit code " + std::to_string(failure.exit_code()));
  if (Status bad = checkText(failure.device(), kDeviceBytes, "device"); bad.failed())
    return bad;
  if (Status bad = checkText(failure.message(), kTextBytes, "message"); bad.failed())
    return bad;
  return checkText(failure.where(), kTextBytes, "where");
}

Status checkGreeting(const Hello &greeting, Role sender) {
  if (greeting.magic() != kMagic)
    return wrong("another protocol");
  if (greeting.version() != kVersion)
    return Status::success(); // the caller handles other versions
  if (greeting.role() != sender)
    return wrong("greeting of another role");
  return checkExact(greeting.nonce(), kNonceBytes, "nonce");
}

Status checkJoin(const Join &join) {
  if (Status bad = checkText(join.job(), kJobBytes, "job"); bad.failed())
    return bad;
  if (Status bad = checkText(join.device(), kDeviceBytes, "device"); bad.failed())
    return bad;
  return checkExact(join.mac(), kMacBytes, "mac");
}

Status checkWelcome(const JoinAccepted &welcome, uint32_t worldSize) {
  if (Status bad = checkText(welcome.job(), kJobBytes, "job"); bad.failed())
    return bad;
  if (Status bad = checkText(welcome.host_device(), kDeviceBytes, "device"); bad.failed())
    return bad;
  if (welcome.world_size() != worldSize || welcome.rank() >= worldSize ||
      (welcome.has_coordinator_rank() && welcome.host() >= worldSize))
    return wrong("rank outside of the world");
  if (welcome.generation() == 0 || !isPositive(welcome.heartbeat_seconds()) ||
      !isPositive(welcome.heartbeat_timeout_seconds()))
    return wrong("generation or times");
  return checkExact(welcome.mac(), kMacBytes, "mac");
}

Status checkRefusal(const JoinRejected &refusal) {
  if (!Reason_IsValid(refusal.reason()) || refusal.reason() == REASON_UNSPECIFIED)
    return wrong("reason " + std::to_string(int(refusal.reason())));
  if (Status bad = checkText(refusal.job(), kJobBytes, "job"); bad.failed())
    return bad;
  if (refusal.exit_code() < 0 || refusal.exit_code() > 255)
    return wrong("exit code " + std::to_string(refusal.exit_code()));
  return checkText(refusal.message(), kTextBytes, "message");
}

Status checkHeartbeat(const Heartbeat &heartbeat, uint32_t worldSize) {
  if (uint64_t(heartbeat.unresponsive_size()) > 2 * uint64_t(worldSize)) // a peer may be unheard,
                                                                         // undelivered or both
    return wrong(std::to_string(heartbeat.unresponsive_size()) + " silent peers of " +
                 std::to_string(worldSize) + " ranks");
  for (const UnresponsiveRank &unresponsive : heartbeat.unresponsive())
    if (unresponsive.rank() >= worldSize ||
        !(unresponsive.seconds() >= 0 && unresponsive.seconds() < 1e9))
      return wrong("rank " + std::to_string(unresponsive.rank()) + " of " +
                   std::to_string(worldSize) + ", or the seconds of its silence, are out of range");
  return checkText(heartbeat.progress().where(), kTextBytes, "where");
}

Status checkContributions(const Contributions &some, uint32_t worldSize) {
  if (some.values_size() == 0 || some.first() >= worldSize ||
      uint64_t(some.values_size()) > worldSize - some.first())
    return wrong("contributions of ranks outside of the world");
  for (const std::string &value : some.values())
    if (Status bad = checkText(value, kValueBytes, "contribution"); bad.failed())
      return bad;
  return checkText(some.name(), kNameBytes, "name");
}

Status checkFields(const Message &message, Role sender, uint32_t worldSize) {
  switch (message.what_case()) {
  case Message::kHello:
    return checkGreeting(message.hello(), sender);
  case Message::kAuthenticate:
    return checkExact(message.authenticate().mac(), kMacBytes, "mac");
  case Message::kJoin:
    return checkJoin(message.join());
  case Message::kJoinAccepted:
    return checkWelcome(message.join_accepted(), worldSize);
  case Message::kJoinRejected:
    return checkRefusal(message.join_rejected());
  case Message::kHeartbeat:
    return checkHeartbeat(message.heartbeat(), worldSize);
  case Message::kContribution:
    if (Status bad = checkText(message.contribution().name(), kNameBytes, "name"); bad.failed())
      return bad;
    return checkText(message.contribution().value(), kValueBytes, "contribution");
  case Message::kContributions:
    return checkContributions(message.contributions(), worldSize);
  case Message::kReport:
    return checkText(message.report().value(), kValueBytes, "report");
  case Message::kFailed:
    return checkFailure(message.failed(), worldSize);
  case Message::kRootCause:
    return checkFailure(message.root_cause().failure(), worldSize);
  case Message::kCoordinatorLost:
    return isPositive(message.coordinator_lost().seconds()) ? Status::success() : wrong("seconds");
  default:
    return Status::success();
  }
}

/// Whether `sender` may send the message in this state.
bool isExpected(Message::WhatCase what, Role sender, HandshakeState state) {
  bool member = sender == MEMBER;
  switch (what) {
  case Message::kHello:
    return state == HandshakeState::Greeting;
  case Message::kAuthenticate:
    return state == HandshakeState::Proof;
  case Message::kJoin:
    return member && state == HandshakeState::Join;
  case Message::kJoinAccepted:
    return !member && state == HandshakeState::Join;
  case Message::kJoinRejected:
    return !member && (state == HandshakeState::Proof || state == HandshakeState::Join);
  case Message::kHeartbeat:
  case Message::kReport:
    return state == HandshakeState::Work;
  case Message::kContribution:
  case Message::kFailed:
  case Message::kCoordinatorLost:
  case Message::kRootCauseAcknowledged:
  case Message::kStopRequest:
  case Message::kStopAnswer:
  case Message::kLeave:
    return member && state == HandshakeState::Work;
  case Message::kContributions:
  case Message::kRootCause:
  case Message::kStopQuery:
  case Message::kStopDecision:
  case Message::kGoodbye:
    return !member && state == HandshakeState::Work;
  case Message::WHAT_NOT_SET:
    return false;
  }
  return false;
}

} // namespace

Result<Message> zorse::control::parseMessage(std::string_view frame, Role sender,
                                             HandshakeState state, uint32_t worldSize) {
  if (frame.size() >
      (state == HandshakeState::Work || (state == HandshakeState::Join && sender == COORDINATOR)
           ? kFrameBytes
           : kGreetingBytes))
    return Status(wrong("a frame of " + std::to_string(frame.size()) + " bytes"));
  Message message;
  if (!message.ParseFromArray(frame.data(), int(frame.size())))
    return Status(wrong("no message"));
  if (!isExpected(message.what_case(), sender, state))
    return Status(wrong("message " + std::to_string(int(message.what_case())) + " at this point"));
  if (Status bad = checkFields(message, sender, worldSize); bad.failed())
    return bad;
  return message;
}
