// What belongs to the whole job and is shown or written once: steps on the console, in the metrics file and for TensorBoard, the trace, memory, where
// the time went. Ranks send it to rank 0.
#pragma once

#include "Options.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/RunPage.h"
#include "zorse/runtime/TensorBoard.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace zorse::run {

/// What a rank has to say, as bytes for Member::report.
std::string sayStep(const runtime::StepReport &report);
bool isStep(const std::string &said);
std::string saySample(uint64_t step, const std::vector<int64_t> &ids, size_t prompt);
std::vector<std::string> sayTrace(const std::vector<runtime::TraceEvent> &events);
std::string sayMemory(uint32_t device, const runtime::Executor::MemoryUse &use);

/// Takes what ranks say, from any thread, and shows it from a thread of its own: a slow terminal or disk must not keep the control plane waiting.
class JobOutput {
public:
  JobOutput(const Options &options, const runtime::Bundle &bundle) : options_(options), bundle_(bundle), uses_(bundle.programs.size()) {}
  ~JobOutput();

  /// Opens the metrics file and starts showing; what was said before is kept. `lastStep`: of an earlier run that this one goes on from; 0: none.
  runtime::Status begin(uint64_t lastStep);

  void take(const std::string &said);

  /// Shows what has been said so far and ends the progress line.
  void drain();
  /// A line for people among those of the steps.
  void line(const std::string &text);

  // After drain().
  runtime::Status closeTensorBoard() { return tensorBoard_->close(); }
  /// Where the time of steps went, from the trace.
  runtime::TimeShares shares() const { return runtime::timeShares(bundle_, trace_); }
  double secondsAStep() const { return steps_ > 1 ? secondsOfSteps_ / double(steps_ - 1) : 0; } ///< 0: not known
  runtime::Status writePage(const runtime::TimeShares &shares, const bundle::TrainingOptions &training) const;
  const std::optional<runtime::StepReport> &lastEvaluation() const { return evaluated_; }
  runtime::Status writeMetrics() { return metrics_->close(); }
  runtime::Status writeTrace() { return runtime::writeTrace(options_.trace, bundle_, std::move(trace_)); }
  const std::vector<runtime::Executor::MemoryUse> &memoryUses() const { return uses_; }

private:
  void show();
  void understand(const std::string &said);
  void showSample(const std::string &numbers);

  const Options &options_;
  const runtime::Bundle &bundle_;
  std::mutex mutex_;
  std::condition_variable changed_, drained_;
  std::deque<std::string> said_;
  bool idle_ = true, stopping_ = false;
  std::thread thread_;

  std::unique_ptr<runtime::ConsoleReport> console_;
  std::unique_ptr<runtime::MetricsFile> metrics_;
  std::unique_ptr<runtime::TensorBoardFile> tensorBoard_;
  runtime::RunPage page_;
  std::optional<runtime::StepReport> evaluated_;
  double secondsOfSteps_ = 0; ///< but for the first
  uint64_t steps_ = 0;
  std::chrono::steady_clock::time_point begun_;
  std::vector<runtime::TraceEvent> trace_;
  std::vector<runtime::Executor::MemoryUse> uses_;
};

} // namespace zorse::run
