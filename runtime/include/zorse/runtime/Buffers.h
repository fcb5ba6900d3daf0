// Live ranges of buffers on one device, for memory diagrams.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// A region that holds one value, and its live range in instructions. State is live in all
/// instructions.
struct Buffer {
  uint32_t arena;
  uint64_t offset, bytes;
  bundle::Value value;
  int first, last; ///< positions in Program.instructions, inclusive
};

/// Returns all buffers of a program in one step. Two values that use the same bytes one after
/// another are two buffers.
std::vector<Buffer> findBuffers(const bundle::Program &program);

} // namespace zorse::runtime
