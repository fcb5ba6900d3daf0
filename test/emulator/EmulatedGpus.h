// Which GPUs the stand-in's machine has, and which of them a process sees.
#pragma once

#include <string>
#include <vector>

namespace zorse::emulator {

struct EmulatedGpu {
  std::string model;
  int capability = 80; ///< 10 times the major and the minor number
  int mebibytes = 8192;
  int bus = 0; ///< of its PCI address, and the last byte of its UUID
};

/// As this process sees them, by the environment of its first call (StandInDriver.cpp): in CUDA's order, of those CUDA_VISIBLE_DEVICES names, which
/// ends at the first that is none.
const std::vector<EmulatedGpu> &gpus();

} // namespace zorse::emulator
