// Orders checkpoints after the reports of their steps: a checkpoint counts only when the outputs of
// the job, such as the metrics file, have the steps before it. So a job that continues from it has
// a report of every step, whatever dies at any moment.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace zorse::runtime {

/// Written by the process that writes the outputs, rank 0. May be used from any thread.
class ReportedSteps {
public:
  /// The reports of all steps up to `step` are written.
  void add(uint64_t step);
  /// Waits for add() with this or a later step. Returns false if close() comes first.
  bool await(uint64_t step);
  /// Ends all waits: no more steps are reported.
  void close();

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t step_ = 0;
  bool closed_ = false;
};

} // namespace zorse::runtime
