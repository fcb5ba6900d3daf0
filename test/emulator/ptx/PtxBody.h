// A body of an architecture of GPUs on the host: kernels by their PTX text, products by a processor's device.
#pragma once

#include "EmulatedBody.h"
#include "Program.h"

namespace zorse::emulator::ptx {

/// Findings and errors; empty when all is well. Workspaces and what the body is to overwrite are undefined where it begins; every byte of what it
/// overwrites has to be defined where it ends.
std::vector<std::string> runPtxBody(Program &program, runtime::CpuDevice &products, const bundle::Body &body, const EmulatedCall &call,
                                    uint64_t seed);

} // namespace zorse::emulator::ptx
