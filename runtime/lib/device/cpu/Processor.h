// Which code this machine's processors run.
#pragma once

#include <string>

namespace zorse::runtime {

/// The highest of "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4" that runs here; of other machines their family's name.
std::string processorHere();

} // namespace zorse::runtime
