// What lives where and when on one device: for pictures of memory.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// A region that holds one value, from its first to its last entry; state lives always.
struct Buffer {
  uint32_t arena;
  uint64_t offset, bytes;
  bundle::Value value;
  int first, last; ///< positions in Program.entries, inclusive
};

/// All of a program's, of a step. The same bytes may hold one value, then another: those are two buffers.
std::vector<Buffer> findBuffers(const bundle::Program &program);

} // namespace zorse::runtime
