// Chooses the tile sizes of an attention kernel. A warp owns 16 or 32 rows of a block; the other
// operand is streamed through shared memory.
#pragma once

#include <cstdint>
#include <optional>

namespace zorse::codegen::cuda {

struct AttentionProblem;

/// Overlap of copies, products and exponentials in a forward.
enum class Schedule {
  OneStage,  ///< one buffer for keys, one for values: each is copied during the products of the
             ///< other
  TwoStages, ///< two buffers each: the next tile is copied during this tile's products
  Pipelined  ///< two buffers each; the next tile's scores are computed during this tile's
             ///< exponentials
};

struct Variant {
  int rows = 64;         ///< rows of a block: queries, or keys in the kernel of their gradients
  int streamed = 32;     ///< rows of a tile of the streamed operand
  int fromRegisters = 0; ///< number of the block's own operands that stay in registers: q (k), then
                         ///< dout (v)
  Schedule schedule = Schedule::TwoStages;
  int parts = 1; ///< blocks that share the columns of one result that does not fit into a warp's
                 ///< registers

  static constexpr int kWarps = 4;
  int threads() const { return 32 * kWarps; }
  /// Number of 16-row tiles that a warp owns.
  int tiles() const { return rows / (16 * kWarps); }
};

/// Columns of a tile in shared memory for heads of `size`: the next of 32, 64, 80, 96, 128 and 256.
/// Nullopt if `size` is not a multiple of 8.
std::optional<int> tileColumns(int64_t size);

// Measured with ptxas 13.0 for sm_80 to sm_120: no registers spill if the tiles divide the lengths;
// otherwise a few bytes may spill. docs/internals/attention.md describes how tiles were chosen.
Variant forwardVariant(const AttentionProblem &problem);
Variant keyGradientVariant(const AttentionProblem &problem);
Variant queryGradientVariant(const AttentionProblem &problem);

} // namespace zorse::codegen::cuda
