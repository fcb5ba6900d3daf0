// An HTML report of a run: its losses and its time breakdown.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/TimeBreakdown.h"
#include "zorse/runtime/Training.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Facts about a run in addition to its steps.
struct RunSummary {
  bundle::TrainingOptions training; ///< options that the run uses
  std::optional<uint64_t> shuffle;
  uint64_t steps = 0;      ///< number of the last requested step
  double seconds = 0;      ///< duration of the run, including evaluations and waits
  double secondsAStep = 0; ///< 0: unknown
};

/// Collects steps in bounded memory and writes the report.
class HtmlReport {
public:
  /// Adds the steps and changes of the starts before this one, which resumes after `lastStep`.
  void addEarlier(const std::string &metricsFile, uint64_t lastStep);
  void step(const StepReport &report);

  /// Writes HTML that needs no other file.
  Status write(const std::string &path, const Bundle &bundle, const TimeBreakdown &breakdown,
               const RunSummary &run) const;

private:
  static constexpr size_t kMaxPoints = 2000;
  struct Point {
    uint64_t first, last;
    double loss, low, high, norm, learningRate, rate; ///< means; smallest and largest loss
    uint64_t steps;
  };
  /// Merges two points.
  static Point join(const Point &a, const Point &b);

  std::vector<Point> points_;
  uint64_t stepsAPoint_ = 1;
  std::vector<std::pair<uint64_t, double>> evaluations_;
  std::vector<MetricsChange> changes_;
  std::optional<StepReport> first_, last_; ///< training steps
  uint64_t resumedAfter_ = 0;              ///< last step of earlier starts
};

} // namespace zorse::runtime
