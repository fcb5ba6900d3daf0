// The happens-before order of a launch: program order within a thread, barriers of blocks and
// warps, and, between blocks, a fence, an atomic operation, the same operation of another block,
// and a fence there.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace zorse::emulator::ptx {

/// The time of an access of a thread.
struct Moment {
  uint32_t thread = 0; ///< thread of the grid + 1; 0: never
  uint32_t epoch = 0;  ///< number of barriers that its block had passed
  uint32_t turn = 0;   ///< number of barriers that its warp had passed
  uint32_t fences = 0; ///< number of fences that it had passed
};

class Order {
public:
  explicit Order(uint32_t threads) : threads(threads) {}

  uint32_t blockOf(const Moment &moment) const { return (moment.thread - 1) / threads; }
  bool isOfWarp(const Moment &a, const Moment &b) const {
    return (a.thread - 1) / 32 == (b.thread - 1) / 32;
  }

  /// Whether an access at `before` happens before an access at `now`.
  bool isBefore(const Moment &before, const Moment &now) const;

  void fence(const Moment &now);
  /// Reads and writes `address` atomically.
  void atomic(uint64_t address, const Moment &now);

private:
  uint32_t threads;
  /// By block: the last fence of a thread before its atomic write to the address, ordered after the
  /// writes of earlier blocks.
  using Releases = std::map<uint32_t, Moment>;
  std::map<uint64_t, Releases> releases;
  std::map<uint32_t, Moment> lastFence; ///< by thread
  std::map<uint32_t, Releases> seen;    ///< by thread: the releases that its atomic operations have
                                        ///< read, until its next fence
  struct Acquisition {
    Moment at;
    Releases releases;
  };
  std::map<uint32_t, std::vector<Acquisition>> acquisitions; ///< by block

  /// Within a block.
  bool isBeforeInBlock(const Moment &before, const Moment &now) const {
    return before.thread == now.thread || before.epoch < now.epoch ||
           (isOfWarp(before, now) && before.turn < now.turn);
  }
};

} // namespace zorse::emulator::ptx
