// Ready collectives by the queues that they need. Internal to lib/Step.
//
// At the end of a step hundreds of gradients are complete, and a device has one queue for
// collectives. Of the collectives that need the same queues only the first by priority is a
// candidate, so a queue that becomes free is offered to a few ops instead of to all that wait.
#pragma once

#include "MinHeap.h"
#include "PlanLowering.h"

#include "zorse/Base/Hash.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace zorse::step {

/// In a queue: the smallest priority first, then the smallest op.
struct ReadyOp {
  HeapKey key = ~HeapKey(0);
  size_t waitedFor = SIZE_MAX; ///< queue that it last waited for
  uint32_t op() const { return static_cast<uint32_t>(secondOf(key)); }
  bool operator<(const ReadyOp &other) const { return key < other.key; }
};

class ReadyCollectives {
public:
  explicit ReadyCollectives(const PlanLowering &x) : x(x), setOf(x.ops.size(), kNone) {
    std::unordered_multimap<size_t, uint32_t> sets;
    for (uint32_t op = 0; op < x.ops.size(); ++op)
      if (x.ops[op].work == Work::Gather || x.ops[op].work == Work::Scatter)
        setOf[op] = findSet(op, sets);
    ready.resize(representatives.size());
  }

  bool has(uint32_t op) const { return op < setOf.size() && setOf[op] != kNone; }

  /// \returns whether the op precedes all others that need its queues, and is a candidate
  bool add(const ReadyOp &op) {
    MinHeap<ReadyOp> &set = ready[setOf[op.op()]];
    set.push(op);
    return set.top().key == op.key;
  }
  bool isFirst(const ReadyOp &op) const { return ready[setOf[op.op()]].top().key == op.key; }
  /// Removes the first op of its set. \returns the next, which becomes a candidate, or ReadyOp()
  ReadyOp remove(uint32_t op) {
    MinHeap<ReadyOp> &set = ready[setOf[op]];
    set.pop();
    return set.top();
  }

private:
  bool equalQueues(uint32_t a, uint32_t b) const {
    const Span one = x.ops[a].instructions, other = x.ops[b].instructions;
    return one.size() == other.size() && std::equal(x.instructionQueues.begin() + one.begin,
                                                    x.instructionQueues.begin() + one.end,
                                                    x.instructionQueues.begin() + other.begin);
  }

  uint32_t findSet(uint32_t op, std::unordered_multimap<size_t, uint32_t> &sets) {
    SequenceHash hash;
    for (uint32_t h = x.ops[op].instructions.begin; h < x.ops[op].instructions.end; ++h)
      hash.add(x.instructionQueues[h]);
    const auto [begin, end] = sets.equal_range(hash.get());
    for (auto at = begin; at != end; ++at)
      if (equalQueues(representatives[at->second], op))
        return at->second;
    sets.emplace(hash.get(), representatives.size());
    representatives.push_back(op);
    return static_cast<uint32_t>(representatives.size() - 1);
  }

  const PlanLowering &x;
  std::vector<uint32_t> setOf;           ///< by op; kNone: not a collective of gradients or states
  std::vector<uint32_t> representatives; ///< by set: an op
  std::vector<MinHeap<ReadyOp>> ready;   ///< by set
};

} // namespace zorse::step
