// Values that change every step (learning rate, step scalars, factors of the loss), and the
// training loop around the executor.
#pragma once

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/LearningRate.h"
#include "zorse/runtime/ProcessGroup.h"

#include "zorse/runtime/Generation.h"

#include <functional>
#include <memory>
#include <vector>

namespace zorse::runtime {

/// Numbers that are known before a step begins, computed on the host: counts of its batch, and
/// expressions of them.
class KnownNumbers {
public:
  static Result<std::unique_ptr<KnownNumbers>> create(const Bundle &bundle);
  ~KnownNumbers();

  /// Returns n0, n1, ... of the first `rows` rows of a batch.
  Result<std::vector<double>> count(const Batch &batch, int64_t rows);
  /// Adds the counts of other samples, `weight` times. For counts that are sums.
  void add(std::vector<double> &counts, const std::vector<double> &more, double weight = 1) const;
  /// Returns the counts of zero samples.
  std::vector<double> none() const;

  /// Returns the factors of the loss, one per loss term.
  std::vector<double> factors(double samples, const std::vector<double> &counts) const;
  /// Returns StepScalars.known.
  std::vector<double> known(double samples, const std::vector<double> &counts) const;

  /// Describes the first factor that is not finite: "the factor 1/n0 of the loss is inf (n0 = 0)";
  /// "" if all are finite.
  std::string describeNotFinite(double samples, const std::vector<double> &counts) const;

private:
  class Implementation;
  explicit KnownNumbers(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// One finished training step or evaluation. Times are those of the process with the ReadMetrics
/// instruction.
struct StepReport {
  uint64_t skippedSoFar = 0; ///< skipped steps of this run, including this one
  uint64_t step = 0;         ///< 1-based; of an evaluation: the step that it follows
  bool evaluation = false;
  double loss = 0; ///< loss of the batch before the update; of an evaluation: over all its batches.
                   ///< NaN if a factor of the loss is not finite
  double gradientNorm = 0;
  double learningRate = 0;
  double lossScale = 0; ///< loss scale of this step; 0: no loss scaling
  bool skipped = false;
  double seconds = 0;
  double tokensPerSecond = 0;
};

struct TrainingRun {
  uint64_t steps = 0;       ///< number of steps from `firstStep` on
  uint64_t firstStep = 1;   ///< number of the first step, which determines schedule and random
                            ///< numbers
  uint64_t firstSample = 0; ///< index of the first sample: samples that earlier steps have consumed
  bundle::TrainingOptions options;
  DataSource *data = nullptr;
  DataSource *evaluationData = nullptr; ///< null: no evaluation
  uint64_t evaluateEvery = 0;           ///< steps; 0: only at the end
  uint64_t evaluationBatches = 0; ///< maximum; 0: all samples, including those of a last partial
                                  ///< batch
  std::function<void(const StepReport &)> report;
  /// Called in every process after a measured step (ExecutorOptions::measureComputing). \param
  /// seconds  in functions, by device of the process. Null: not needed.
  std::function<void(uint64_t step, const std::vector<double> &seconds)> computed;
  TextGenerator *generator = nullptr; ///< ExecutorOptions::beforeCall must call its `observe`;
                                      ///< null: no text is generated
  uint64_t generateInterval = 0;      ///< steps
  ProcessGroup *group = nullptr;      ///< ranks that agree on tokens; required with a sampler
  std::function<void(uint64_t step, const std::vector<int64_t> &ids, size_t prompt)>
      generated;                              ///< the first `prompt` ids are the prompt
  StopCoordinator *stopCoordinator = nullptr; ///< null: the run cannot be stopped early
  /// Called in a process with devices that have no work: waits until the job has finished the next
  /// turn. Null: the instructions set the pace.
  std::function<void()> pace;
  /// Returns the reader that saves the state of a step; null: state is not saved.
  std::function<StateObserver *(uint64_t step, bool last)> stateObserver;
  /// Treatment of a step with a loss or gradients that are not finite. Its update is never
  /// applied, because it would make all later updates NaN. If groups are updated separately
  /// (commitsByGroup), the update has been applied before this is known, and the run always stops.
  enum class NonFinite : uint8_t { Skip, Stop } nonFinite = NonFinite::Skip;
  /// Called before a step that is not finite ends the run (NonFinite::Stop), to save the state of
  /// earlier steps. Null: nothing to save.
  std::function<void()> stopping;
};

/// Number of samples that an evaluation takes together: a step if the loss depends on the positions
/// of samples in it, a group if the loss combines its samples, else one. The last samples of the
/// data that do not fill such a unit are left out.
uint64_t evaluationUnit(const Bundle &bundle);

/// Returns an error if the bundle does not support these options.
Status checkTraining(const Bundle &bundle, const bundle::TrainingOptions &options);

/// A run that ends with this number of consecutive non-finite steps has failed.
inline constexpr uint64_t kNotFiniteSteps = 10;

/// How a run ended.
struct TrainingEnd {
  uint64_t lastStep = 0; ///< last finished step, in all processes of the job; firstStep - 1: none
  std::string notFinite; ///< why the last steps of the run trained nothing: they (kNotFiniteSteps,
                         ///< or all) were not finite, or no step had a training signal. As far as
                         ///< this process received reports
  std::string badBatch;  ///< why a stream's batch cannot be used; the run ended before its step
  bool changed = true;   ///< whether an update was applied, as far as this process received reports
  uint64_t skipped = 0;  ///< steps with a skipped update, as far as this process received reports
};

/// Trains. Steps are submitted one ahead, so that devices do not wait for the host. Only processes
/// with a ReadMetrics instruction call `report`.
Result<TrainingEnd> train(Executor &executor, const Bundle &bundle, const TrainingRun &run);

/// Evaluates `run.evaluationData` once and reports it as the evaluation after step `run.firstStep`
/// - 1. Returns false if the job was asked to stop before it. Returns an error if the data have no
/// loss.
Result<bool> evaluateOnce(Executor &executor, const Bundle &bundle, const TrainingRun &run);

} // namespace zorse::runtime
