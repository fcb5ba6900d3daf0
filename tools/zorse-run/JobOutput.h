// Output of the whole job that is shown or written once: steps on the console, in the metrics file
// and for TensorBoard, the trace, memory, and the time breakdown. Ranks send it to rank 0.
#pragma once

#include "MessageQueue.h"
#include "Options.h"
#include "SlowDevices.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/HtmlReport.h"
#include "zorse/runtime/Report.h"
#include "zorse/runtime/ReportedSteps.h"
#include "zorse/runtime/SlowDevices.h"
#include "zorse/runtime/TensorBoard.h"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
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

/// Receives messages of ranks from any thread. One thread writes them to files and another one to
/// the console: a slow disk must not block the control plane, and a suspended terminal must not
/// block checkpoints, which wait for the files (ReportedSteps.h).
class JobOutput {
public:
  JobOutput(const Options &options, const runtime::Bundle &bundle);

  /// Opens the metrics file and starts showing. Messages received before are kept. `lastStep` is
  /// the last step of the run that this one resumes; 0: none.
  runtime::Status begin(uint64_t lastStep);

  void take(const std::string &said) { files_.add(said); }

  /// The steps that are written to all files.
  const std::shared_ptr<runtime::ReportedSteps> &reportedSteps() const { return reported_; }

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
  void understand(const std::string &said);
  void takeStep(const std::string &said);
  void takeGenerated(const std::string &numbers);
  void takeTrace(const std::string &said);
  void show(const std::string &said);
  void showSlow(const runtime::SlowDeviceFinder::Finding &finding);
  void tellDriver(const runtime::StepReport &report);
  void writeSlow();

  const Options &options_;
  const runtime::Bundle &bundle_;
  std::shared_ptr<runtime::ReportedSteps> reported_ = std::make_shared<runtime::ReportedSteps>();
  std::unique_ptr<runtime::ConsoleReport> console_;
  std::unique_ptr<runtime::MetricsFile> metrics_;
  std::unique_ptr<runtime::TensorBoardFile> tensorBoard_;
  runtime::HtmlReport report_;
  std::optional<runtime::StepReport> evaluated_;
  runtime::SlowDeviceFinder finder_;
  SlowDevices slow_;                 ///< of an elastic job
  std::deque<double> recentSeconds_; ///< of the last steps
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  double secondsOfSteps_ = 0; ///< without the first step
  uint64_t steps_ = 0;
  std::chrono::steady_clock::time_point begun_;
  std::vector<runtime::TraceEvent> trace_;
  std::vector<runtime::Executor::MemoryUse> uses_;
  MessageQueue screen_; ///< destroyed after files_, which adds to it
  MessageQueue files_;
};

} // namespace zorse::run
