// Unwraps results of the setup of a test. The test ends if its setup failed.
#pragma once

#include "zorse/Base/Status.h"

#include <stdexcept>

namespace zorse {

/// Returns the value. Throws an exception with the error's message if there is none: GoogleTest
/// then reports a failed test; in another thread, the program terminates.
template <typename T> T must(Result<T> result) {
  if (result.failed())
    throw std::runtime_error(result.message());
  return std::move(*result);
}

} // namespace zorse
