#include "Message.h"

#include <cstring>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

Blocks::Block Blocks::take(std::vector<Block> &free, size_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free.empty()) {
      Block block = std::move(free.back());
      free.pop_back();
      return block;
    }
  }
  return Block(new std::byte[bytes]);
}

void Blocks::give(std::vector<Block> &free, Block block) {
  std::lock_guard<std::mutex> lock(mutex_);
  free.push_back(std::move(block));
}

Message::Message(Links &links, Blocks &blocks, PeerConnection &connection, uint64_t slot,
                 size_t bytes)
    : links_(links), blocks_(blocks), connection_(connection), slot_(slot), bytes_(bytes),
      block_(blocks.takeHead()), parts_(partsOf(bytes)) {}

Message::~Message() {
  header_.cancel();
  blocks_.giveHead(std::move(block_));
}

Status Message::awaitParts(size_t from) {
  for (size_t part = parts_.size(); part-- > from;)
    if (Status status = parts_[part].wait(); status.failed())
      return status;
  return Status::success();
}

Status Outgoing::begin() {
  uint64_t words[2] = {slot_, bytes_};
  std::memcpy(block_.get(), words, kHeadBytes);
  size_t inlined = parts_.empty() ? bytes_ : 0;
  if (inlined > 0)
    std::memcpy(block_.get() + kHeadBytes, data_, inlined);
  return header_.send(links_, connection_, 0, slot_, block_.get(), kHeadBytes + inlined);
}

Status Outgoing::offer(size_t part, const void *place) {
  return parts_[part].send(links_, connection_, contextOf(part), slot_,
                           place ? place : data_ + part * partBytes(bytes_),
                           bytesOfPart(bytes_, part));
}

Status Outgoing::offerAll() {
  if (Status status = begin(); status.failed())
    return status;
  for (size_t part = 0; part < parts_.size(); ++part)
    if (Status status = offer(part); status.failed())
      return status;
  return Status::success();
}

Status Outgoing::finishFrom(size_t part) {
  if (Status status = header_.wait(); status.failed())
    return status;
  return awaitParts(part);
}

Status Incoming::begin() {
  return header_.receive(links_, connection_, 0, slot_, block_.get(), kHeadBytes + kInlineBytes);
}

Status Incoming::post(size_t part, void *place) {
  return parts_[part].receive(links_, connection_, contextOf(part), slot_,
                              place ? place : data_ + part * partBytes(bytes_),
                              bytesOfPart(bytes_, part));
}

Status Incoming::postAll() {
  if (Status status = begin(); status.failed())
    return status;
  for (size_t part = 0; part < parts_.size(); ++part)
    if (Status status = post(part); status.failed())
      return status;
  return Status::success();
}

Status Incoming::awaitHead(size_t bytes) {
  if (Status status = header_.wait(); status.failed())
    return status;
  uint64_t words[2];
  std::memcpy(words, block_.get(), kHeadBytes);
  if (words[0] != slot_ || words[1] != bytes) {
    links_.fail(internalError("instruction " + std::to_string(slot_ >> 32) + ": expected " +
                              std::to_string(bytes) + " bytes from " + connection_.name +
                              ", which sent " + std::to_string(words[1])));
    return links_.failure();
  }
  if (data_ && parts_.empty() && bytes > 0)
    std::memcpy(data_, inlined(), bytes);
  return Status::success();
}

Status Incoming::finish() {
  if (Status status = awaitHead(); status.failed())
    return status;
  return awaitParts();
}
