// What changes from step to step: learning rate, step scalars, factors of the loss; and the loop around the executor.
#pragma once

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"
#include "zorse/runtime/LearningRate.h"

#include "zorse/runtime/Sampling.h"

#include <functional>
#include <memory>
#include <vector>

namespace zorse::runtime {

/// What is known of a step before it begins, computed on the host: counts of its batch, and expressions of them.
class KnownNumbers {
public:
  static Result<std::unique_ptr<KnownNumbers>> create(const Bundle &bundle);
  ~KnownNumbers();

  /// n0, n1, ... of the first `rows` rows of a batch.
  Result<std::vector<double>> count(const Batch &batch, int64_t rows);
  /// The counts of two sets of samples as one, the second `weight` times: where counts are sums.
  void add(std::vector<double> &counts, const std::vector<double> &more, double weight = 1) const;
  /// Counts of no samples.
  std::vector<double> none() const;

  /// One per loss term.
  std::vector<double> factors(double samples, const std::vector<double> &counts) const;
  /// StepScalars.known.
  std::vector<double> known(double samples, const std::vector<double> &counts) const;

  /// "the factor 1/n0 of the loss is inf (n0 = 0)", of the first factor that is not finite; "" where all are.
  std::string describeNotFinite(double samples, const std::vector<double> &counts) const;

private:
  class Implementation;
  explicit KnownNumbers(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// One finished training step or evaluation. Times are of the process that has the Report entry.
struct StepReport {
  uint64_t skippedSoFar = 0; ///< skipped steps of this run, this one included
  uint64_t step = 0;         ///< 1-based; of an evaluation: the step after which it ran.
  bool evaluation = false;
  double loss = 0; ///< of the batch before the update; of an evaluation: over all its batches. NaN where a factor of the loss is not finite.
  double gradientNorm = 0;
  double learningRate = 0;
  double lossScale = 0; ///< of this step; 0: the loss is not scaled
  bool skipped = false;
  double seconds = 0;
  double tokensPerSecond = 0;
};

struct TrainingRun {
  uint64_t steps = 0;       ///< so many from `firstStep`
  uint64_t firstStep = 1;   ///< number of the first step: schedule and random numbers follow it.
  uint64_t firstSample = 0; ///< where the data begins: what earlier steps have consumed.
  bundle::TrainingOptions options;
  DataSource *data = nullptr;
  DataSource *evaluationData = nullptr; ///< null: no evaluation
  uint64_t evaluateEvery = 0;           ///< 0: only at the end
  uint64_t evaluationBatches = 0;       ///< at most; 0: all samples, those of a last short batch too
  std::function<void(const StepReport &)> report;
  Sampler *sampler = nullptr; ///< whom beforeCall of the executor's options calls; null: no text is sampled
  uint64_t sampleEvery = 0;   ///< steps
  Group *group = nullptr;     ///< of the ranks that agree on tokens; where there is a sampler
  std::function<void(uint64_t step, const std::vector<int64_t> &ids, size_t prompt)> sampled; ///< the first `prompt` ids are the prompt.
  StepGate *gate = nullptr;                                                                   ///< null: nobody ends the run early.
  std::function<void()>
      pace; ///< of a process whose devices have nothing to do: waits until the job has done the next turn. Null: entries set the pace.
  std::function<StateReader *(uint64_t step, bool last)> stateReader; ///< who keeps the state of a step; null: nobody.
  /// Of a step whose loss or gradients are not finite. Its update is never applied: every later one would be of NaNs. Where groups commit on their
  /// own (commitsByGroup) it has been applied when this is known, and the run always stops.
  enum class NonFinite : uint8_t { Skip, Stop } nonFinite = NonFinite::Skip;
  std::function<void()>
      stopping; ///< before a step that is not finite ends the run (NonFinite::Stop): what is still to be kept of the steps before it. Null: nothing.
};

/// Refuses what a bundle cannot do with such options.
Status checkTraining(const Bundle &bundle, const bundle::TrainingOptions &options);

/// A run that ends with so many steps in a row that are not finite has failed.
inline constexpr uint64_t kNotFiniteSteps = 10;

/// Where a run ended.
struct TrainingEnd {
  uint64_t lastStep = 0; ///< the last one done, here and in all other processes of the job; firstStep - 1: none
  std::string notFinite; ///< why the end of the run has learnt nothing: its last steps (kNotFiniteSteps, or all) were not finite, or none had
                         ///< anything to learn from. As far as this process was shown
  bool changed = true;   ///< some update was applied, as far as this process was shown
  uint64_t skipped = 0;  ///< steps whose update was skipped, as far as this process was shown
};

/// Trains. Steps are submitted one ahead, so that devices do not wait for the host. Only processes with a Report entry call `report`.
Result<TrainingEnd> train(Executor &executor, const Bundle &bundle, const TrainingRun &run);

/// One evaluation of `run.evaluationData`, reported as that after step `run.firstStep` - 1. False: the job was asked to end before it. An error where
/// the data have no loss.
Result<bool> evaluateOnce(Executor &executor, const Bundle &bundle, const TrainingRun &run);

} // namespace zorse::runtime
