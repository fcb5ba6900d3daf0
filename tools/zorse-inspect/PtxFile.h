// Extracts facts about kernels from the PTX of a bundle without an assembler.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::inspect {

/// Bytes of an access → number of instructions.
using AccessWidths = std::map<int, int>;

struct PtxKernel {
  AccessWidths loads, stores; ///< accesses to global memory
  uint64_t loaded = 0;        ///< bit i: the address of some load depends on operand i
  uint64_t stored = 0;        ///< the same for stores
  /// Floating-point operations (f32 and f64) in the text of the kernel, a fused multiply-add as 2;
  /// -1 if the code has loops, because the number is then known only at run time.
  int64_t flops = 0;
  struct Operand {
    int64_t fixed, perRow, perPoint; ///< bytes that may be accessed (ZorseKernelBounds)
  };
  std::vector<Operand> operands; ///< empty: not given in the file
};

/// Returns kernels by symbol. Lines that are not understood are ignored.
std::map<std::string, PtxKernel> readPtx(std::string_view text);

} // namespace zorse::inspect
