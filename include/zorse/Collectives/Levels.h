// A reduction as a sequence of small exchanges, one for each group of its tree and set of devices
// that share elements. Each is an ordinary uneven reduce-scatter, so that nothing below the
// compiler knows about trees:
//
//     ((a0 + a1) + (b0 + b1)), a0 and b1 own a half each
//
//     a0, a1 -> a0: first half, a1: second half       sums of node a, inside their accumulators
//     b0, b1 -> b0: first half, b1: second half       sums of node b
//     a0, b0 -> a0: first half                        the sum of all
//     a1, b1 -> b1: second half
#pragma once

#include "zorse/Collectives/Schedule.h"

#include <optional>

namespace zorse::collectives {

/// One exchange. Every device has one run of terms and one run of results.
struct LevelReduction {
  uint32_t group = 0;    ///< of the tree
  bool toOwner = false;  ///< the results are sums of all contributors on their owners; otherwise
                         ///< they take the place of the device's term
  bool forwards = false; ///< the members hold sums of `group` and pass them on to their owners
  std::vector<uint32_t> members; ///< with a term, in the order of the group's children
  Cover terms;                   ///< of the members, in their order
  Cover results;                 ///< ascending
};

/// Divides a reduction into exchanges. Exchanges follow those whose results they read. Devices hold
/// balanced lanes, or what owners own if that needs fewer exchanges, or equal parts, which they
/// pass on to the owners.
/// \returns nothing if the tree has one group, or if each of these needs more than eight exchanges
/// per contributor: a pairwise exchange is then better
std::optional<std::vector<LevelReduction>> levelReductions(const Placement &placement,
                                                           const Tree &tree, const Cover &owners);

/// Sorts devices such that everything a device holds at any level of their tree is one run, if they
/// own elements in this order: by position in the node, then in the pod, then by pod and site.
/// Devices of one node keep their order.
std::vector<uint32_t> ownerOrder(const Placement &placement, const std::vector<uint32_t> &devices);

} // namespace zorse::collectives
