// A page that shows a run: its losses, and where the time went.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/TimeShares.h"
#include "zorse/runtime/Training.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// What the page says about a run beside its steps.
struct RunSummary {
  bundle::TrainingOptions training; ///< as the run uses it
  std::optional<uint64_t> shuffle;
  uint64_t steps = 0;      ///< number of the last step that was asked for
  double seconds = 0;      ///< that the run took, evaluations and waits included
  double secondsAStep = 0; ///< 0: not known
};

/// Collects steps in memory that does not grow with their number, and writes the page.
class RunPage {
public:
  void step(const StepReport &report);

  /// HTML that needs no other file.
  Status write(const std::string &path, const Bundle &bundle, const TimeShares &shares, const RunSummary &run) const;

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
  std::optional<StepReport> first_, last_; ///< training steps
};

} // namespace zorse::runtime
