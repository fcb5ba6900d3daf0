// A message of an operation to or from one peer. A header describes it and contains the payload if
// it is small. A larger payload is sent in parts directly from the sender's memory to the
// receiver's memory, over all contexts of the link.
//
//   head  slot (8 bytes), bytes (8), the bytes themselves if at most kInlineBytes
//   part  partBytes(bytes) each, the last one shorter; part i over context i mod number of contexts
//
// Both ends identify a message by the same slot: instruction, step, and index of the message within
// the instruction. At most one message per slot and direction is in flight between two ranks, and
// Gloo preserves the order within a slot.
#pragma once

#include "Links.h"

#include <deque>

namespace zorse::runtime::gloo_transport {

constexpr size_t kHeadBytes = 16, kInlineBytes = 16 << 10, kMaxPartBytes = 1 << 20;

inline uint64_t slotOf(Operation operation, uint32_t message) {
  return uint64_t(operation.instruction) << 32 | (operation.step & 0xffff) << 16 |
         (message & 0xffff);
}

/// Returns the size of a part, which is a multiple of every element size.
inline size_t partBytes(size_t bytes) {
  return bytes <= (8 << 20) ? kMaxPartBytes / 2 : kMaxPartBytes;
}

inline size_t partsOf(size_t bytes) {
  return bytes <= kInlineBytes ? 0 : (bytes + partBytes(bytes) - 1) / partBytes(bytes);
}

inline size_t bytesOfPart(size_t bytes, size_t part) {
  return std::min(partBytes(bytes), bytes - part * partBytes(bytes));
}

/// Pool of memory blocks of two sizes.
class Blocks {
public:
  using Block = std::unique_ptr<std::byte[]>;
  Block takeHead() { return take(headers_, kHeadBytes + kInlineBytes); }
  Block takePart() { return take(parts_, kMaxPartBytes); }
  void giveHead(Block block) { give(headers_, std::move(block)); }
  void givePart(Block block) { give(parts_, std::move(block)); }

private:
  Block take(std::vector<Block> &free, size_t bytes);
  void give(std::vector<Block> &free, Block block);
  std::mutex mutex_;
  std::vector<Block> headers_, parts_;
};

class Message {
protected:
  Message(Links &links, Blocks &blocks, PeerConnection &connection, uint64_t slot, size_t bytes);
  ~Message();
  Message(const Message &) = delete;

  Links &links_;
  Blocks &blocks_;
  PeerConnection &connection_;
  const uint64_t slot_;
  const size_t bytes_;
  Blocks::Block block_;
  Transfer header_; ///< declared after block_, so that it is destroyed before its memory
  std::deque<Transfer> parts_;

  uint32_t contextOf(size_t part) const {
    return uint32_t(part % connection_.dataConnections.size());
  }
  /// Waits for the parts, the last one first: over one connection they complete in order, so this
  /// sleeps once and not once per part.
  Status awaitParts(size_t from = 0);

public:
  size_t chunks() const { return parts_.size(); }
  PeerConnection &connection() const { return connection_; }
};

class Outgoing : public Message {
public:
  Outgoing(Links &links, Blocks &blocks, PeerConnection &connection, uint64_t slot,
           const void *data, size_t bytes)
      : Message(links, blocks, connection, slot, bytes),
        data_(static_cast<const std::byte *>(data)) {}
  /// Sends the header. A small message is complete then, and its memory may be reused.
  Status begin();
  /// Sends a part from `place`, or from its position in the data if `place` is null.
  Status offer(size_t part, const void *place = nullptr);
  Status offerAll();
  Status await(size_t part) { return parts_[part].wait(); }
  /// Waits until the receiver has the whole message.
  Status finish() { return finishFrom(0); }
  /// The same, if the parts before `part` have been awaited.
  Status finishFrom(size_t part);

private:
  const std::byte *data_;
};

class Incoming : public Message {
public:
  /// If `data` is null, the destination of each part is given when it is posted, and a small
  /// message stays in the header block (`inlined`).
  Incoming(Links &links, Blocks &blocks, PeerConnection &connection, uint64_t slot, void *data,
           size_t bytes)
      : Message(links, blocks, connection, slot, bytes), data_(static_cast<std::byte *>(data)) {}
  Status begin();
  Status post(size_t part, void *place = nullptr);
  Status postAll();
  /// Waits for the header. Returns an error if the peer sends another number of bytes.
  Status awaitHead() { return awaitHead(bytes_); }
  /// For a small message with a size that was unknown when it was posted.
  Status awaitHead(size_t bytes);
  Status await(size_t part) { return parts_[part].wait(); }
  /// Waits for the whole message.
  Status finish();
  const std::byte *inlined() const { return block_.get() + kHeadBytes; }

private:
  std::byte *data_;
};

} // namespace zorse::runtime::gloo_transport
