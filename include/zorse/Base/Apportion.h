// Division of a whole number in proportion to weights.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse {

/// Splits `total` into integers in proportion to `weights` (largest remainders; ties to the first).
/// At least one weight is positive.
std::vector<int64_t> apportion(int64_t total, const std::vector<double> &weights);

} // namespace zorse
