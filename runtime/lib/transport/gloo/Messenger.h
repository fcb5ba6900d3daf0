// Data shared by the operations of one rank: its links, its pool of message memory, and the sites
// of the ranks.
#pragma once

#include "Message.h"

#include <list>

#define ZORSE_TRY(expression)                                                                      \
  do {                                                                                             \
    if (Status zorseStatus = (expression); zorseStatus.failed())                                   \
      return zorseStatus;                                                                          \
  } while (false)

namespace zorse::runtime::gloo_transport {

using Outbox = std::list<Outgoing>;
using Inbox = std::list<Incoming>;

struct Messenger {
  Links &links;
  Blocks &blocks;
  uint32_t rank;
  std::vector<uint32_t> nodes; ///< index: rank; may be empty

  uint32_t site(uint32_t of) const { return of < nodes.size() ? nodes[of] : 0; }

  Result<PeerConnection *> to(uint32_t peer) const {
    if (links.failed())
      return links.failure().error();
    if (PeerConnection *connection = links.to(peer))
      return connection;
    return internalError("rank " + std::to_string(rank) + " is not connected to rank " +
                         std::to_string(peer) + ", which its program needs");
  }

  Status compose(Outbox &out, Operation operation, uint32_t message, uint32_t peer,
                 const void *data, size_t bytes) const {
    Result<PeerConnection *> connection = to(peer);
    if (connection.failed())
      return connection.error();
    out.emplace_back(links, blocks, **connection, slotOf(operation, message), data, bytes);
    return Status::success();
  }

  /// Starts sending a message. `data` must stay readable until the message has completed.
  Status post(Outbox &out, Operation operation, uint32_t message, uint32_t peer, const void *data,
              size_t bytes) const {
    ZORSE_TRY(compose(out, operation, message, peer, data, bytes));
    return out.back().offerAll();
  }

  Status postReceive(Inbox &in, Operation operation, uint32_t message, uint32_t peer, void *data,
                     size_t bytes) const {
    Result<PeerConnection *> connection = to(peer);
    if (connection.failed())
      return connection.error();
    in.emplace_back(links, blocks, **connection, slotOf(operation, message), data, bytes);
    return Status::success();
  }

  /// Whether the messages of `shards` shards have numbers.
  static Status count(Operation operation, size_t shards);

  Status finish(Outbox &out) const {
    for (Outgoing &message : out)
      ZORSE_TRY(message.finish());
    return Status::success();
  }
};

// Message numbers of an operation between two ranks: shard i has message i of each kind.
constexpr uint32_t kPartialSums = 0x4000; ///< sums of the previous contributions
constexpr uint32_t kSecondPhase = 0x8000; ///< second phase of an operation with two phases

inline Status Messenger::count(Operation operation, size_t shards) {
  if (shards <= kPartialSums)
    return Status::success();
  return internalError("instruction " + std::to_string(operation.instruction) + " has " +
                       std::to_string(shards) + " shards, at most " + std::to_string(kPartialSums) +
                       " have messages");
}

} // namespace zorse::runtime::gloo_transport
