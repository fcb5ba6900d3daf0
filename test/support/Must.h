// Results of a test's preparations: a test whose preparations failed ends there, instead of going on with what it does not have.
#pragma once

#include "zorse/Base/Status.h"

#include <stdexcept>

namespace zorse {

/// The value; without one the test ends as failed with the error's message (GoogleTest reports exceptions as such; in a thread of its own it ends the
/// program).
template <typename T> T must(Result<T> result) {
  if (result.failed())
    throw std::runtime_error(result.message());
  return std::move(*result);
}

} // namespace zorse
