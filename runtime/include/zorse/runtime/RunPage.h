// A page that shows a run: its losses, and where the time went.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/TimeShares.h"
#include "zorse/runtime/Training.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Collects steps in memory that does not grow with their number, and writes the page.
class RunPage {
public:
  void step(const StepReport &report);

  /// HTML that needs no other file. \param seconds  a step of the whole run; 0: not known
  Status write(const std::string &path, const Bundle &bundle, const TimeShares &shares, double seconds) const;

private:
  static constexpr size_t kMostPoints = 2000;
  struct Point {
    uint64_t first, last;
    double loss, low, high, norm, learningRate, rate; ///< means, and least and largest loss
    uint64_t steps;
  };
  /// Two points as one.
  static Point join(const Point &a, const Point &b);

  std::vector<Point> points_;
  uint64_t stepsAPoint_ = 1;
  std::vector<std::pair<uint64_t, double>> evaluations_;
};

} // namespace zorse::runtime
