// Detects the instruction set of this machine's CPU.
#pragma once

#include <string>

namespace zorse::runtime {

/// The highest of "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4" that this machine supports. On
/// other architectures, the family's name.
std::string cpuHere();

} // namespace zorse::runtime
