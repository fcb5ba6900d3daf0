// A body of the architecture "emu" on the host: kernels on the emulator, products by a processor's device.
#pragma once

#include "HostCode.h"

#include "bundle.pb.h"
#include "zorse/runtime/CpuDevice.h"

namespace zorse::emulator {

struct EmulatedCall {
  int64_t rows = 1, sampleBase = 0;
  uint64_t instanceBase = 0;
  std::vector<char *> slots;
  std::vector<uint8_t> overwrite;
};

/// Findings and errors; empty when all is well.
std::vector<std::string> runBody(const HostCode &code, runtime::CpuDevice &products, const bundle::Body &body, const EmulatedCall &call);

} // namespace zorse::emulator
