// Runs a function of a GPU architecture on the host: kernels from their PTX text, products on a CPU
// device.
#pragma once

#include "EmulatedFunction.h"
#include "Program.h"

namespace zorse::emulator::ptx {

/// Runs a function. Returns findings and errors; empty on success. Workspaces and arguments to
/// overwrite are undefined at the beginning; every byte of overwritten arguments must be defined at
/// the end.
std::vector<std::string> runPtxBody(Program &program, runtime::CpuDevice &products,
                                    const bundle::CompiledFunction &function,
                                    const EmulatedCall &call, uint64_t seed);

} // namespace zorse::emulator::ptx
