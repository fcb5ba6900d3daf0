// Output of a run: lines or a progress bar, metrics, a trace, memory.
#pragma once

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Training.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Returns the bytes of anonymous memory of this process. Mapped files do not count.
uint64_t processBytes();

/// "1.5 GiB"
std::string bytesText(uint64_t bytes);

/// Serializes a report without loss, for the process that prints.
std::string encodeReport(const StepReport &report);
Result<StepReport> decodeReport(const std::string &text);

/// Prints steps as they finish. On a terminal it rewrites one line with a progress bar and the
/// remaining time, as wide as the terminal; otherwise it prints one line per step. Rates count
/// tokens, or samples if the model has no sequence.
class ConsoleReport {
public:
  ConsoleReport(FILE *out, bool terminal, uint64_t steps, bool tokens);
  ~ConsoleReport();
  void step(const StepReport &report);
  /// Prints a separate line between those of the steps.
  void line(const std::string &text);

private:
  void clear();

  FILE *out_;
  bool terminal_, tokens_, drawn_ = false, finite_ = true;
  uint64_t steps_;
  double seconds_ = 0;
  uint64_t counted_ = 0;
};

/// A line of a metrics file about a change of an elastic job: other devices take part after `step`,
/// or the same ones with another plan.
struct MetricsChange {
  uint64_t step = 0;
  std::vector<std::string> devices, left, joined;
  std::string reason;
  double seconds = 0; ///< without training
};

/// Reads a metrics file up to its first line that is not one.
void readMetrics(const std::string &path, const std::function<void(const StepReport &)> &step,
                 const std::function<void(const MetricsChange &)> &change);

/// Writes one JSON object per line: {"step", "loss", "grad_norm", "lr", "loss_scale" (f16),
/// "tokens_per_second", "seconds", "skipped", "memory_bytes"}. Lines of evaluations are {"step",
/// "eval_loss", "tokens_per_second", "seconds"}.
class MetricsFile {
public:
  /// \param lastStep  step of an earlier run that this one resumes: the file keeps its lines up to
  ///   that step. 0: it keeps none. If possible, a new file replaces the old one.
  static Result<std::unique_ptr<MetricsFile>> open(const std::string &path, uint64_t lastStep = 0);
  ~MetricsFile();
  void step(const StepReport &report);
  /// {"step", "prompt": [ids], "generated": [ids]}
  void generated(uint64_t step, const std::vector<int64_t> &ids, size_t prompt);
  /// Writes that other devices take part after `step`, or with another plan. \param change  JSON
  /// object with "devices", "left", "joined", "slowdowns" and "reason" \param seconds  without
  /// training
  void changed(uint64_t step, const std::string &change, double seconds);
  Status close();

private:
  void write(const std::string &line);
  explicit MetricsFile(std::string path, FILE *file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  FILE *file_;
  int cause_ = 0; ///< errno of the first line that could not be written
};

/// Writes a trace in Chrome's format, which Perfetto reads: a process per device, a track per
/// queue, an arrow from every send to its receive. Counters show the bytes in use by arena and the
/// runnable instructions by queue.
Status writeTrace(const std::string &path, const Bundle &bundle, std::vector<TraceEvent> events);

/// Writes JSON: planned and touched bytes per device; for the process, the memory of an executor
/// without arenas, the current memory, and the reserve beyond the plan.
Status writeMemoryReport(const std::string &path, const Bundle &bundle,
                         const std::vector<Executor::MemoryUse> &uses, uint64_t emptyExecutorBytes);

/// Returns the bytes that the runtime may use in addition to the arenas: batches, scratch memory of
/// matrix libraries, threads.
uint64_t reserveBytes(const Bundle &bundle);

} // namespace zorse::runtime
