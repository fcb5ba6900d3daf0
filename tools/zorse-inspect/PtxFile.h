// What can be read off the PTX of a bundle without an assembler.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::inspect {

/// Bytes of one access, and how many instructions have it.
using AccessWidths = std::map<int, int>;

struct PtxKernel {
  AccessWidths loads, stores; ///< of global memory
  uint64_t loaded = 0;        ///< bit i: some load has an address that comes from operand i
  uint64_t stored = 0;        ///< likewise
  /// Additions, multiplications, ... of f32 and f64, each counted where it stands, a fused one as 2; -1: the code has loops, so that the number is
  /// known only where it runs.
  int64_t flops = 0;
  struct Operand {
    int64_t fixed, perRow, perPoint; ///< bytes that may be touched (ZorseKernelNeeds)
  };
  std::vector<Operand> operands; ///< empty: the file does not say
};

/// By symbol. Whatever is not understood counts for nothing.
std::map<std::string, PtxKernel> readPtx(std::string_view text);

} // namespace zorse::inspect
