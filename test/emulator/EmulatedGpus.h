// The GPUs of the stand-in's machine, and those that a process sees.
#pragma once

#include <string>
#include <vector>

namespace zorse::emulator {

struct EmulatedGpu {
  std::string model;
  int capability = 80; ///< 10 * major + minor
  int mebibytes = 8192;
  int bus = 0; ///< bus of the PCI address, and the last byte of the UUID
};

/// The GPUs that this process sees, according to the environment at the first call
/// (FakeDriver.cpp). They are in CUDA's order and limited by CUDA_VISIBLE_DEVICES, which ends at
/// the first unknown name.
const std::vector<EmulatedGpu> &gpus();

} // namespace zorse::emulator
