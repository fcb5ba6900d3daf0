// What belongs to the whole job and is shown or written once: steps on the console and in the metrics file, the trace, memory. Ranks send it to rank
// 0.
#pragma once

#include "Options.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Report.h"

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
  runtime::Status writeMetrics() { return metrics_->close(); }
  runtime::Status writeTrace() { return runtime::writeTrace(options_.trace, bundle_, std::move(trace_)); }
  const std::vector<runtime::Executor::MemoryUse> &memoryUses() const { return uses_; }
  uint64_t stepsShown() const { return shown_; }

private:
  void show();
  void understand(const std::string &said);

  const Options &options_;
  const runtime::Bundle &bundle_;
  std::mutex mutex_;
  std::condition_variable changed_, drained_;
  std::deque<std::string> said_;
  bool idle_ = true, stopping_ = false;
  std::thread thread_;

  std::unique_ptr<runtime::ConsoleReport> console_;
  std::unique_ptr<runtime::MetricsFile> metrics_;
  std::vector<runtime::TraceEvent> trace_;
  std::vector<runtime::Executor::MemoryUse> uses_;
  uint64_t shown_ = 0;
};

} // namespace zorse::run
