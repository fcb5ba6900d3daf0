// Times in tests.
#pragma once

#include <cstdlib>

namespace zorse::test {

/// By how much a loaded or instrumented machine may exceed the times that tests state: ZORSE_TEST_PATIENCE, which CTest sets; 1 where a test runs by
/// itself.
inline double patience() {
  const char *text = std::getenv("ZORSE_TEST_PATIENCE");
  double factor = text ? std::atof(text) : 1;
  return factor > 1 ? factor : 1;
}

} // namespace zorse::test
