// Counts the wavefronts of a warp's access to shared memory. Shared memory has 32 banks of 4 bytes;
// a bank serves one word at a time, to all lanes that request it.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::emulator {

/// The access of one lane in one request.
struct SharedAccess {
  uint32_t lane, offset, bytes; ///< offset from the beginning of the block's shared memory
};

struct Wavefronts {
  uint64_t taken = 0, min = 0;
};

/// Requests of 8 bytes per lane are served by half warps, those of 16 bytes by quarter warps.
Wavefronts wavefrontsOf(const std::vector<SharedAccess> &request);

} // namespace zorse::emulator
