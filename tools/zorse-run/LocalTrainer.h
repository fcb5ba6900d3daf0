// Trains or evaluates with the devices of this process, from the creation of devices to the last
// output.
#pragma once

#include "Options.h"
#include "PrefixedGroup.h"
#include "Train.h"

#include "zorse/Bundle/OutputDirectory.h"
#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Generation.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/TimeBreakdown.h"
#include "zorse/runtime/Training.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::run {

class LocalTrainer {
public:
  LocalTrainer(const Options &options, const runtime::Bundle &bundle, runtime::DataSource &data,
               ProcessContext &process, uint64_t &stepsDone)
      : o(options), bundle(bundle), data(data), process(process), stepsDone(stepsDone),
        gradients(bundle), lossRows(bundle), again(process.group, "weights: ") {}

  ~LocalTrainer() {
    if (process.member)
      process.member->setProgress(nullptr);
  }

  runtime::Status run();

private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kNotFinite = 3; ///< exit code

  /// Whether the time breakdown is printed at the end.
  bool showsTimes() const { return (!o.quiet || !o.page.empty()) && !o.evaluate; }

  bool alone() const { return process.member == nullptr; }

  /// Opens the data and creates devices and executor.
  runtime::Status prepare();

  /// Opens the data of --eval-data, if any is given.
  runtime::Status openEvaluationData();

  /// Creates the generator of texts, if texts are to be generated. The generator adds its observers
  /// to `options`.
  runtime::Status createGenerator(runtime::ExecutorOptions &options);

  /// Loads the initial state: initial weights, or a snapshot.
  runtime::Status restore();

  runtime::Status loadInitial(runtime::Initial initial);

  bool hasCheckpoint() const;

  /// Loads the parameters of one snapshot, or of the newest one of a directory. Rank 0 chooses it,
  /// because a running job may be writing others.
  runtime::Status restoreToEvaluate();

  /// Matrix libraries of the devices of all ranks, without duplicates. A rank's choice may depend
  /// on its machine.
  runtime::Result<std::string> matrixLibraries();

  /// Joins the names in sorted order, without duplicates.
  static std::string joined(const std::vector<std::string> &names);

  runtime::Status openCheckpoints(runtime::CheckpointOptions options, runtime::ProcessGroup &group);

  /// Creates a directory next to the checkpoint for the ranks' parts of it. Rank 0 creates it and
  /// sends its name.
  runtime::Status openParts();

  void removeParts();

  runtime::Status announce();

  runtime::Status train();

  /// Reports the computing times of this process's devices every few steps.
  void tellComputing(uint64_t step, const std::vector<double> &seconds);

  /// Waits for the last snapshot. If it failed and the checkpoint would have been merged from it,
  /// collects the parts next to the checkpoint instead, which may be on a working disk.
  runtime::Status finishCheckpoints();

  /// Writes the requested outputs in this order, the trained state first. An output that fails does
  /// not prevent the others.
  runtime::Status finish();

  /// Removes the checkpoints in memory if nothing has failed, and returns the first error.
  runtime::Status end(const std::optional<runtime::Error> &first);

  /// Reports the memory use and the trace of this process to rank 0.
  void tellMeasurements(std::optional<runtime::Error> &first);

  /// Writes the requested outputs on rank 0. Fails only if a later start of the job owns them;
  /// other errors are kept in `first`.
  runtime::Status writeOutputs(const runtime::TimeBreakdown &breakdown,
                               std::optional<runtime::Error> &first);

  void sayEvaluation() const;

  /// Waits until rank 0 has written the outputs. If a rank that was asked to stop exited earlier
  /// with 130, launchers would kill the others.
  runtime::Status waitForOutputs();

  runtime::Status writeWeights(const std::string &path, runtime::SavedWeights which);

  void tell(std::string message, bool toAll = false);

  void say(const std::string &note) const;

  const Options &o;
  const runtime::Bundle &bundle;
  runtime::DataSource &data;
  ProcessContext &process;
  uint64_t &stepsDone;
  std::unique_ptr<runtime::DataSource> evaluation;
  runtime::GradientDump gradients;
  runtime::LossRows lossRows;
  std::unique_ptr<runtime::Executor> executor;
  std::unique_ptr<runtime::TextGenerator> generator; // destroyed before the executor: uses its
                                                     // device memory
  PrefixedGroup again;                               // exchanges about the parts of the weights
  std::unique_ptr<runtime::CheckpointManager> checkpoints; // destroyed before the executor
  runtime::RunConfig runConfig;
  bool unchanged = false;     // no update was applied
  bool inParts = false;       // the weights are merged from parts, not from the last checkpoint
  bool partsFailed = false;   // collecting the parts failed, and the error has been printed
  std::string partsDirectory; // as sent by rank 0
  std::optional<bundle::DraftDirectory> parts; // rank 0: the same directory
  std::optional<runtime::Error> problem; // why the run fails after its outputs are written: losses
                                         // or gradients that are not finite, or a batch of a stream
  runtime::TrainingRun training;
  std::vector<double> computing; // by device of this process, in measured steps since the last
                                 // report
  uint64_t computingSamples = 0, computingFrom = 0; // number of these steps; step of that report
  Clock::time_point computingSince = Clock::now();
  uint64_t emptyExecutor = 0;
  Clock::time_point made, began;
};

} // namespace zorse::run
