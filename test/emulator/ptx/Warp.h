// Registers and states of the 32 threads of a warp.
#pragma once

#include "Decode.h"

#include <array>

namespace zorse::emulator::ptx {

enum class LaneState : uint8_t { Ready, AtWarp, AtBlock, Done };

/// cp.async: `size` bytes of `bytes` are copied, the others are 0.
struct AsyncCopy {
  uint64_t to = 0, from = 0;
  uint32_t bytes = 0, size = 0, group = 0;
};

struct Lane {
  LaneState state = LaneState::Ready;
  uint32_t counter = 0;          ///< program counter
  uint32_t members = 0;          ///< members of the warp operation that it waits at
  uint32_t fences = 0;           ///< number of fences that it has passed
  uint32_t group = 0;            ///< number of committed copy groups
  std::vector<AsyncCopy> copies; ///< in progress
};

struct Warp {
  uint32_t first = 0; ///< index of the first thread in the block
  uint32_t turn = 0;  ///< number of warp barriers that it has passed
  uint64_t steps = 0;
  std::array<Lane, 32> lanes;
  std::vector<uint64_t> values;         ///< by register and lane
  std::vector<uint64_t> undefinedBits;  ///< by register and lane; valid for the lanes in
                                        ///< `undefinedLanes`
  std::vector<uint32_t> undefinedLanes; ///< by register: lanes with undefined bits

  void reset(uint32_t firstThread, size_t registers);

  uint64_t *value(int32_t index) { return &values[size_t(index) * 32]; }
  uint64_t valueOf(const Source &source, uint32_t lane) const {
    return source.index < 0 ? source.value : values[size_t(source.index) * 32 + lane];
  }
  uint64_t undefinedOf(const Source &source, uint32_t lane) const {
    return source.index >= 0 && undefinedLanes[size_t(source.index)] >> lane & 1
               ? undefinedBits[size_t(source.index) * 32 + lane]
               : 0;
  }
  void set(int32_t index, uint32_t lane, uint64_t value, uint64_t undefined) {
    if (index < 0)
      return;
    values[size_t(index) * 32 + lane] = value;
    uint32_t &lanesOf = undefinedLanes[size_t(index)];
    lanesOf = undefined ? lanesOf | 1u << lane : lanesOf & ~(1u << lane);
    if (undefined)
      undefinedBits[size_t(index) * 32 + lane] = undefined;
  }
};

inline uint64_t maskOf(uint32_t bits) {
  return bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
}

/// Calls `function(lane)` for the lanes of a mask.
template <typename Function> void forLanes(uint32_t lanes, Function function) {
  for (; lanes; lanes &= lanes - 1)
    function(uint32_t(__builtin_ctz(lanes)));
}

// Instructions on registers alone.
void executeScalar(Warp &warp, const Instruction &instruction, uint32_t lanes);
void executePack(Warp &warp, const Instruction &instruction, uint32_t lanes);
void executeUnpack(Warp &warp, const Instruction &instruction, uint32_t lanes);
// Instructions of a whole warp.
void executeExchange(Warp &warp, const Instruction &instruction, uint32_t lanes);
void executeBallot(Warp &warp, const Instruction &instruction, uint32_t lanes);
void executeMultiply(Warp &warp, const Instruction &instruction);

} // namespace zorse::emulator::ptx
