// How often shared memory has to be asked for what the lanes of a warp access together: it has 32 banks of 4 bytes, each of which gives one word at a
// time, to all lanes that want it.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::emulator {

/// Of one lane in one request.
struct SharedAccess {
  uint32_t lane, offset, bytes; ///< offset from the beginning of the block's shared memory
};

struct Wavefronts {
  uint64_t taken = 0, least = 0;
};

/// Requests of 8 bytes a lane are served by half warps, those of 16 by quarters.
Wavefronts wavefrontsOf(const std::vector<SharedAccess> &request);

} // namespace zorse::emulator
