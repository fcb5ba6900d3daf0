#pragma once

#include <string>
#include <vector>

namespace zorse {

/// The nearest of `known` to `given`; empty if none is near.
std::string nearestName(const std::vector<std::string> &known, const std::string &given);

} // namespace zorse
