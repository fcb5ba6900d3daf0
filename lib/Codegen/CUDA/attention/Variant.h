// Which tiles a kernel of attention works on. A warp owns 16 or 32 rows of a block; the other operand is streamed through shared memory.
#pragma once

#include <cstdint>
#include <optional>

namespace zorse::codegen::cuda {

struct AttentionProblem;

/// How a forward overlaps copies, products and exponentials.
enum class Schedule {
  OneStage,  ///< one buffer for keys, one for values: each is fetched under the products of the other
  TwoStages, ///< two of each: the next tile is fetched under this one's products
  Pipelined  ///< two of each, and the next tile's scores are computed beside this one's exponentials
};

struct Variant {
  int rows = 64;         ///< of a block: queries, or keys where these have the gradients
  int streamed = 32;     ///< rows of a tile of the other side
  int fromRegisters = 0; ///< how many of a block's own operands stay in registers: q (k), then dout (v)
  Schedule schedule = Schedule::TwoStages;
  int parts = 1; ///< blocks that share the columns of one result, because it does not fit into a warp's registers

  static constexpr int kWarps = 4;
  int threads() const { return 32 * kWarps; }
  /// Tiles of 16 rows that a warp owns.
  int tiles() const { return rows / (16 * kWarps); }
};

/// Elements of a row as tiles hold it, for heads of `size`: the next of 32, 64, 80, 96, 128 and 256. None for other sizes than multiples of 8.
std::optional<int> tileColumns(int64_t size);

// Measured with ptxas 13.0 for sm_80 to sm_120: no registers spill where tiles divide the lengths, elsewhere some bytes may. docs/attention-cuda.md
// says how tiles were chosen.
Variant forwardVariant(const AttentionProblem &problem);
Variant keyGradientVariant(const AttentionProblem &problem);
Variant queryGradientVariant(const AttentionProblem &problem);

} // namespace zorse::codegen::cuda
