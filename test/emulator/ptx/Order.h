// How what the threads of a launch do is ordered: by the program of a thread, by barriers of blocks and warps, and from block to block by a fence, an
// atomic operation, the same operation of another block, and a fence there.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace zorse::emulator::ptx {

/// When a thread did something.
struct Moment {
  uint32_t thread = 0; ///< of the grid + 1; 0: never
  uint32_t epoch = 0;  ///< barriers that its block had passed
  uint32_t turn = 0;   ///< barriers that its warp had passed
  uint32_t fences = 0; ///< that it had passed itself
};

class Order {
public:
  explicit Order(uint32_t threads) : threads(threads) {}

  uint32_t blockOf(const Moment &moment) const { return (moment.thread - 1) / threads; }
  bool isOfWarp(const Moment &a, const Moment &b) const { return (a.thread - 1) / 32 == (b.thread - 1) / 32; }

  /// Whether what was done at `before` lies before what is done `now`.
  bool isBefore(const Moment &before, const Moment &now) const;

  void fence(const Moment &now);
  /// Reads and writes `address` in one step.
  void atomic(uint64_t address, const Moment &now);

private:
  uint32_t threads;
  /// By block: the last fence of a thread that has written to the address, behind the writes of earlier blocks.
  using Releases = std::map<uint32_t, Moment>;
  std::map<uint64_t, Releases> releases;
  std::map<uint32_t, Moment> lastFence; ///< by thread
  std::map<uint32_t, Releases> seen;    ///< by thread: what its atomic operations have found, until its next fence
  struct Acquisition {
    Moment at;
    Releases releases;
  };
  std::map<uint32_t, std::vector<Acquisition>> acquisitions; ///< by block

  /// Within a block.
  bool isBeforeInBlock(const Moment &before, const Moment &now) const {
    return before.thread == now.thread || before.epoch < now.epoch || (isOfWarp(before, now) && before.turn < now.turn);
  }
};

} // namespace zorse::emulator::ptx
