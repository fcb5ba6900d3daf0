// What a rank says of peers that have fallen silent, or that its bytes do not reach.
#pragma once

#include <cstdint>

namespace zorse::runtime {

/// Nothing came from `peer` over the transport's connection with it for so long, although it has not said goodbye.
struct Unheard {
  uint32_t peer = 0;
  double seconds = 0;
  bool undelivered = false; ///< instead: its host has not acknowledged for so long what was sent to it, although it may be heard
};

} // namespace zorse::runtime
