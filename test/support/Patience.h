// Time limits in tests.
#pragma once

#include <cstdlib>

namespace zorse::test {

/// Factor by which a loaded or instrumented machine may exceed the time limits of tests:
/// ZORSE_TEST_PATIENCE, which CTest sets; 1 if a test runs alone.
inline double patience() {
  const char *text = std::getenv("ZORSE_TEST_PATIENCE");
  double factor = text ? std::atof(text) : 1;
  return factor > 1 ? factor : 1;
}

} // namespace zorse::test
