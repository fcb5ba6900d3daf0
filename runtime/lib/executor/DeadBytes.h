// When the bytes of a device hold nothing that anybody still reads: for the mode that spoils them then (ExecutorOptions::spoil), in which a program
// that reads what is no longer there shows it.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// What is dead once an entry of a training step is done.
struct Death {
  std::vector<bundle::Region> regions;
  std::vector<uint32_t> after; ///< earlier entries that also have to be done: their queues may be behind
};

/// By entry of the program. Bytes are dead after the last access before they are overwritten, in this step or the next; those of state that lives
/// across steps never are.
std::vector<Death> deathsOf(const bundle::Program &program, const bundle::BodyLibrary &bodies);

} // namespace zorse::runtime
