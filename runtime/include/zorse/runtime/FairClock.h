// A clock for whoever waits for others' signs of life: it advances at most `largest` seconds from one reading to the next, so that a thread that was
// itself stopped or starved between two readings does not count that time against others.
#pragma once

#include <algorithm>
#include <chrono>

namespace zorse::runtime {

class FairClock {
public:
  explicit FairClock(double largest) : largest_(largest), last_(std::chrono::steady_clock::now()) {}

  /// Call once per turn of the loop, after everything that had arrived was read.
  double advance() {
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    double passed = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    pause_ = std::max(pause_, passed);
    return fair_ += std::min(passed, largest_);
  }
  double now() const { return fair_; }
  /// The longest pause between two readings so far.
  double longestPause() const { return pause_; }

private:
  double largest_;
  std::chrono::steady_clock::time_point last_;
  double fair_ = 0, pause_ = 0;
};

} // namespace zorse::runtime
