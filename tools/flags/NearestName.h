#pragma once

#include <string>
#include <vector>

namespace zorse {

/// Returns the name in `known` that is closest to `given`, or an empty string if none is close.
std::string nearestName(const std::vector<std::string> &known, const std::string &given);

} // namespace zorse
