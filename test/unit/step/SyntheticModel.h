// Makes a small ModelSummary with all difficulties of expansion: a weight tied between the first
// and the last unit, a skip connection, several values per cut, a value without gradient, a frozen
// group, padding inside groups, rows that are not multiples of 64 bytes.
#pragma once

#include "bundle.pb.h"

#include <string>

namespace zorse::test {

/// `units` >= 2.
bundle::ModelSummary syntheticModel(int units = 6);

} // namespace zorse::test
