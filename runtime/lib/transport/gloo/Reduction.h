// Reduce-scatter. Each shard's sum is computed in the order of its contributors; parts are summed
// while the next ones arrive.
//
// The sum of a shard has one stage, at its owner, unless contributors are at other sites. For the
// contributors A0 A1 B0 B1 B2, in this order, at the sites A and B, the stages are
//
//   owner B1   A0: A0 + A1 --> B1: (...) + B0 + B1 + B2
//   owner A0   A1: A0 + A1 --> B1: (...) + B0 + B1 + B2 --> A0
//
// Rounded terms are rounded part by part while they are sent, and the owner adds them in f32. Their
// sums have one stage: sums of a part of them would have to be sent as f32.
//
// Consecutive contributors at one site are summed there if fewer shards then cross between sites.
// The order of summation never changes, so results are bitwise identical.
#pragma once

#include "Messenger.h"

namespace zorse::runtime::gloo_transport {

/// Executes this rank's part of the reduce-scatter.
Status reduceScatter(Messenger &messenger, Operation operation,
                     const ReduceScatterArguments &arguments);

/// A rank that computes a part of a shard's sum. Each stage adds contributions to the sum that the
/// previous stage sends. The last stage is at the owner.
struct ReductionHop {
  uint32_t rank;
  std::vector<uint32_t> contributors; ///< in the order of summation
};
std::vector<ReductionHop> hopsOf(const Messenger &messenger,
                                 const ReduceScatterArguments &arguments, size_t shard);

} // namespace zorse::runtime::gloo_transport
