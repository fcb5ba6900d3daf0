// Output of the whole job that is shown or written once: steps on the console, in the metrics file
// and for TensorBoard, the trace, memory, and the time breakdown. Ranks send it to rank 0.
#pragma once

#include "Options.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/HtmlReport.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/SlowDevices.h"
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

/// Encodes the reports of a rank as messages for Member::report.
std::string sayStep(const runtime::StepReport &report);
bool isStep(const std::string &said);
std::string describeGenerated(uint64_t step, const std::vector<int64_t> &ids, size_t prompt);
std::vector<std::string> sayTrace(const std::vector<runtime::TraceEvent> &events);
/// \param seconds  mean computing time of a device in the `steps` steps up to `step`
std::string sayComputing(uint32_t device, uint64_t step, uint64_t steps, double seconds);
std::string sayMemory(uint32_t device, const runtime::Executor::MemoryUse &use);

/// Receives messages of ranks from any thread and shows them from a separate thread, because a slow
/// terminal or disk must not block the control plane.
class JobOutput {
public:
  JobOutput(const Options &options, const runtime::Bundle &bundle)
      : options_(options), bundle_(bundle), slow_(runtime::plannedComputing(bundle)),
        uses_(bundle.programs.size()) {}
  ~JobOutput();

  /// Opens the metrics file and starts showing. Messages received before are kept. `lastStep` is
  /// the last step of the run that this one resumes; 0: none.
  runtime::Status begin(uint64_t lastStep);

  void take(const std::string &said);

  /// Shows all messages received so far and ends the progress line.
  void drain();
  /// Prints a line of text between the lines of steps.
  void line(const std::string &text);

  // Call the following functions only after drain().
  runtime::Status closeTensorBoard() { return tensorBoard_->close(); }
  /// Returns the time breakdown of steps, computed from the trace.
  runtime::TimeBreakdown breakdown() const { return runtime::timeBreakdown(bundle_, trace_); }
  double secondsAStep() const {
    return steps_ > 1 ? secondsOfSteps_ / double(steps_ - 1) : 0;
  } ///< 0: unknown
  runtime::Status writePage(const runtime::TimeBreakdown &breakdown,
                            const bundle::TrainingOptions &training) const;
  const std::optional<runtime::StepReport> &lastEvaluation() const { return evaluated_; }
  runtime::Status writeMetrics() { return metrics_->close(); }
  runtime::Status writeTrace() {
    return runtime::writeTrace(options_.trace, bundle_, std::move(trace_));
  }
  const std::vector<runtime::Executor::MemoryUse> &memoryUses() const { return uses_; }

private:
  void show();
  void understand(const std::string &said);
  void showGenerated(const std::string &numbers);
  void showSlow(const runtime::SlowDeviceFinder::Finding &finding);

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
  runtime::HtmlReport report_;
  std::optional<runtime::StepReport> evaluated_;
  runtime::SlowDeviceFinder slow_;
  double secondsOfSteps_ = 0; ///< without the first step
  uint64_t steps_ = 0;
  std::chrono::steady_clock::time_point begun_;
  std::vector<runtime::TraceEvent> trace_;
  std::vector<runtime::Executor::MemoryUse> uses_;
};

} // namespace zorse::run
