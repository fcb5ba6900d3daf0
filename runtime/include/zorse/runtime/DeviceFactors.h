// Numbers that users give for devices by name.
#pragma once

#include "zorse/runtime/Bundle.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// "a100:*=2": the factor of each of the bundle's devices, by the last text whose pattern its name matches, else 1. `option` is for messages.
Result<std::vector<double>> deviceFactors(const char *option, const std::vector<std::string> &texts, double most, const Bundle &bundle);

} // namespace zorse::runtime
