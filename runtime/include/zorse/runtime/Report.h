// What a run tells people and programs: lines or a progress bar, metrics, a trace, memory.
#pragma once

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Training.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Bytes of anonymous memory this process holds now; files that are mapped do not count.
uint64_t processBytes();

/// "1.5 GiB"
std::string bytesText(uint64_t bytes);

/// A report on its way to the process that prints; exact.
std::string encodeReport(const StepReport &report);
Result<StepReport> decodeReport(const std::string &text);

/// Prints steps as they finish: on a terminal one line that is rewritten, with a bar and the time that is left, as wide as the terminal; otherwise
/// one line a step. Rates are of tokens, or of samples where the model has no sequence.
class ConsoleReport {
public:
  ConsoleReport(FILE *out, bool terminal, uint64_t steps, bool tokens);
  ~ConsoleReport();
  void step(const StepReport &report);
  /// A line of its own among those of the steps.
  void line(const std::string &text);

private:
  void clear();

  FILE *out_;
  bool terminal_, tokens_, drawn_ = false, finite_ = true;
  uint64_t steps_;
  double seconds_ = 0;
  uint64_t counted_ = 0;
};

/// One JSON object a line: {"step", "loss", "grad_norm", "lr", "loss_scale" (f16), "tokens_per_second", "seconds", "skipped", "memory_bytes"};
/// evaluations have
/// {"step", "eval_loss", "tokens_per_second", "seconds"}.
class MetricsFile {
public:
  /// \param lastStep  of an earlier run that this one goes on from: its lines up to that step stay. 0: none do. Where it can, it is a new file in the
  /// old one's place.
  static Result<std::unique_ptr<MetricsFile>> open(const std::string &path, uint64_t lastStep = 0);
  ~MetricsFile();
  void step(const StepReport &report);
  /// {"step", "prompt": [ids], "generated": [ids]}
  void sample(uint64_t step, const std::vector<int64_t> &ids, size_t prompt);
  Status close();

private:
  void write(const std::string &line);
  explicit MetricsFile(std::string path, FILE *file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  FILE *file_;
  int cause_ = 0; ///< errno of the first line that could not be written
};

/// Chrome's trace format, which Perfetto reads: a process per device, a track per queue, an arrow from every send to its receive; counters of the
/// bytes that hold something, by arena, and of the entries that could run, by queue.
Status writeTrace(const std::string &path, const Bundle &bundle, std::vector<TraceEvent> events);

/// JSON: per device planned and touched bytes; of the process, what an executor without arenas took, what it takes, and the reserve beyond the plan.
Status writeMemoryReport(const std::string &path, const Bundle &bundle, const std::vector<Executor::MemoryUse> &uses, uint64_t emptyExecutorBytes);

/// What the runtime may take beside the arenas: batches, the scratch of matrix-product libraries, threads.
uint64_t reserveBytes(const Bundle &bundle);

} // namespace zorse::runtime
