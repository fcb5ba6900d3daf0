// A clock for heartbeat timeouts. It advances by at most `largest` seconds per reading. A thread
// that was suspended or starved between two readings therefore does not declare its peers failed.
#pragma once

#include <algorithm>
#include <chrono>

namespace zorse::runtime {

class PauseTolerantClock {
public:
  explicit PauseTolerantClock(double largest)
      : largest_(largest), last_(std::chrono::steady_clock::now()) {}

  /// Call it once per iteration of the loop, after all received data have been read.
  double advance() {
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    double passed = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    pause_ = std::max(pause_, passed);
    return fair_ += std::min(passed, largest_);
  }
  double now() const { return fair_; }
  /// The longest interval between two readings so far.
  double longestPause() const { return pause_; }

private:
  double largest_;
  std::chrono::steady_clock::time_point last_;
  double fair_ = 0, pause_ = 0;
};

} // namespace zorse::runtime
