// Numbers that users specify for devices by name.
#pragma once

#include "zorse/runtime/Bundle.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Parses texts such as "a100:*=2". Returns the factor of each device of the bundle: that of the
/// last text with a pattern that matches its name, otherwise 1. `option` is for messages.
Result<std::vector<double>> deviceFactors(const char *option, const std::vector<std::string> &texts,
                                          double max, const Bundle &bundle);

} // namespace zorse::runtime
