// Sums over shards, each formed in the order of its contributors, whose parts are summed while the next ones arrive.
//
// A shard's sum has one stage, at its owner, unless contributors are at other sites:
//
//   sites   contributors A0 A1 B0 B1 B2    stages of a shard owned by B1             of one owned by A0
//   A, B    in this order                  A0: A0+A1 --> B1: (...)+B0+B1+B2          A1: A0+A1 --> B1: (...)+B0+B1+B2 --> A0
//
// A run of contributors at one site is summed there when that lets fewer shards cross between sites. The order of summation never changes, and so do
// no bits.
#pragma once

#include "Messenger.h"

namespace zorse::runtime::gloo_transport {

/// Does this rank's part.
Status reduceScatter(Messenger &messenger, Operation operation, const ReduceScatterArguments &arguments);

/// Where the sum over a shard is formed: stage by stage, each adding contributions to what the one before sends. The last one is the owner's.
struct Stage {
  uint32_t rank;
  std::vector<uint32_t> contributors; ///< in the order of summation
};
std::vector<Stage> stagesOf(const Messenger &messenger, const ReduceScatterArguments &arguments, size_t shard);

} // namespace zorse::runtime::gloo_transport
