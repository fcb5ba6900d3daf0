// Failures that tests report.
#pragma once

#include "ControlRig.h"

#include <chrono>
#include <string>
#include <thread>

namespace zorse::runtime::test {

inline Failure blame(uint32_t peer, const std::string &where,
                     const std::string &text = "connection closed by peer") {
  Failure failure;
  failure.peer = peer;
  failure.where = where;
  failure.message = text;
  return failure;
}

inline Failure ownError(const std::string &text) {
  Failure failure;
  failure.message = text;
  return failure;
}

inline void sleepFor(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

} // namespace zorse::runtime::test
