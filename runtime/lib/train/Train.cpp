#include "zorse/runtime/Training.h"

#include "zorse/runtime/Expression.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>
#include <numeric>

using namespace zorse;
using namespace zorse::runtime;

namespace {

class Loop {
public:
  Loop(Executor &executor, const Bundle &bundle, const TrainingRun &run)
      : executor_(executor), bundle_(bundle), run_(run), byGroup_(commitsByGroup(bundle)) {}

  Result<bool> evaluateOnce() {
    if (Status status = prepare(); status.failed())
      return status;
    if (!enter())
      return false;
    Result<Evaluated> found = evaluate(run_.firstStep - 1);
    if (found.failed())
      return found.error();
    if (!found->without.empty())
      return userError("the evaluation data have no loss: over all of them " + found->without +
                       ", for example because every label is ignored. Check the labels");
    if (!std::isfinite(found->loss))
      return userError("the loss of the evaluation data is not finite: a number among them is not, "
                       "or the parameters overflow on them. Check the data "
                       "of --eval-data and the initial parameters");
    return true;
  }

  Result<TrainingEnd> train() {
    if (Status status = checkTraining(bundle_, run_.options); status.failed())
      return status;
    if (Status status = prepare(); status.failed())
      return status;

    uint64_t last = run_.firstStep + run_.steps - 1, next = run_.firstStep;
    const uint64_t planned = last;
    end_.lastStep = run_.firstStep - 1;
    uint64_t &done = end_.lastStep;
    while (done < last) {
      // Submits one step ahead, but not past an evaluation, which needs the parameters of that
      // step. Not if a non-finite step stops the run: the step ahead would be applied after it. Not
      // if the batches are streamed: the next one may wait for this step.
      const bool alone = run_.nonFinite == TrainingRun::NonFinite::Stop || run_.data->isStream();
      const uint64_t ahead = alone ? 1 : 2;
      while (next <= last && next <= done + ahead &&
             (next == done + 1 || !pausesAfter(next - 1, planned))) {
        Result<bool> more = run_.data->awaitBatch();
        if (more.failed()) // a stream's: what was trained before it is kept
          end_.badBatch = more.error().message;
        if (more.failed() || !*more || !enter()) {
          last = next - 1;
          break;
        }
        if (Status status = submit(*run_.data,
                                   run_.firstSample + (next - run_.firstStep) * bundle_.samples(),
                                   next, /*evaluation=*/false);
            status.failed())
          return status;
        ++next;
      }
      if (done == last)
        break;
      if (Status status = finish(); status.failed())
        return status;
      if (evaluatesAfter(done, planned) && enter())
        if (Result<Evaluated> found = evaluate(done); found.failed())
          return found.error();
      if (samplesAfter(done) && enter())
        if (Status status = generate(done); status.failed())
          return status;
    }
    const uint64_t steps = end_.lastStep - run_.firstStep + 1;
    end_.changed = steps > empty_ && !(since_ && *since_ == run_.firstStep);
    if (steps > 0 && steps == empty_)
      end_.notFinite =
          "no step from " + std::to_string(run_.firstStep) + " to " +
          std::to_string(end_.lastStep) + " had anything to learn from: " + emptyBecause_ +
          " in the last, for example because every label is ignored. No update was applied. "
          "Check the labels of --data";
    if (since_ && end_.lastStep - *since_ + 1 >= std::min(kNotFiniteSteps, steps))
      end_.notFinite = "the loss or the gradients of every step from " + std::to_string(*since_) +
                       " to " + std::to_string(end_.lastStep) +
                       " were not finite: none of these updates was applied, and what is kept is "
                       "the state after step " +
                       std::to_string(*since_ - 1) +
                       ". Look at the data and the learning rate; --on-nonfinite=stop ends such a "
                       "run immediately";
    return end_;
  }

private:
  Status prepare() {
    Result<std::unique_ptr<KnownNumbers>> numbers = KnownNumbers::create(bundle_);
    if (numbers.failed())
      return numbers.error();
    numbers_ = std::move(*numbers);
    return Status::success();
  }

  /// Returns false if the job ends before this turn.
  bool enter() { return !run_.stopCoordinator || run_.stopCoordinator->beginIteration(++turn_); }

  struct PendingStep {
    uint64_t step;
    std::vector<double> counts, factors;
    double learningRate;
    bool hasSeeds; ///< all factors are finite; otherwise the step is skipped

    bool hasCounts() const { return isFinite(counts); }
    /// A batch without labels: nothing to learn from, although its data are valid.
    bool isEmpty() const { return !hasSeeds && hasCounts(); }
  };

  static bool isFinite(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(),
                       [](double value) { return std::isfinite(value); });
  }

  bool evaluatesAfter(uint64_t step, uint64_t last) const {
    return run_.evaluationData &&
           (step == last || (run_.evaluateEvery > 0 && step % run_.evaluateEvery == 0));
  }

  bool samplesAfter(uint64_t step) const {
    return run_.generator && run_.generateInterval > 0 && step % run_.generateInterval == 0;
  }

  /// Whether an evaluation or generation follows, which needs the parameters of this step.
  bool pausesAfter(uint64_t step, uint64_t last) const {
    return evaluatesAfter(step, last) || samplesAfter(step);
  }

  Status submit(DataSource &data, uint64_t firstSample, uint64_t step, bool evaluation) {
    Result<std::shared_ptr<const Batch>> batch = data.batchFrom(firstSample);
    if (batch.failed())
      return batch.error();
    Result<std::vector<double>> counts = numbers_->count(**batch, bundle_.batch);
    return counts.failed()
               ? Status(counts.error())
               : submit(*batch, step, evaluation, std::move(*counts), double(bundle_.samples()));
  }

  /// \param counts, samples  determine the numbers of the step
  Status submit(const std::shared_ptr<const Batch> &batch, uint64_t step, bool evaluation,
                std::vector<double> counts, double samples) {
    StepRequest request;
    request.evaluation = evaluation;
    request.batch = batch;
    if (!evaluation && run_.stateObserver)
      request.afterStep = run_.stateObserver(step, step == run_.firstStep + run_.steps - 1);
    zorse::abi::StepScalars &scalars = request.scalars;
    scalars.step = step;
    scalars.seed = run_.options.seed();
    scalars.learningRate = learningRate(run_.options, step, run_.firstStep + run_.steps - 1);
    scalars.perRow = 1 / double(bundle_.batch);
    scalars.clipNorm = run_.options.clip_norm();
    scalars.skipNonFinite = !byGroup_;
    scalars.evaluation = evaluation;
    scalars.decided.clipFactor = 1;
    scalars.decided.gradientNorm = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> factors = numbers_->factors(samples, counts),
                        known = numbers_->known(samples, counts);
    std::copy(factors.begin(), factors.end(), scalars.lossGradient);
    std::copy(known.begin(), known.end(), scalars.known);
    const bool hasSeeds = isFinite(factors);
    pending_.push_back(
        {step, std::move(counts), std::move(factors), scalars.learningRate, hasSeeds});
    executor_.submit(std::move(request));
    return Status::success();
  }

  /// Waits for the oldest step and reports its result.
  Status finish() {
    Result<StepResult> result = executor_.wait();
    if (result.failed())
      return result.error();
    if (run_.pace)
      run_.pace();
    PendingStep pending = std::move(pending_.front());
    pending_.pop_front();
    end_.lastStep = pending.step;
    if (run_.computed && !result->computing.empty())
      run_.computed(pending.step, result->computing);
    if (pending.isEmpty()) {
      ++empty_;
      emptyBecause_ = describe(pending);
    }
    double before = before_;
    before_ = result->end;
    if (!result->reported)
      return Status::success();
    StepReport report;
    report.step = pending.step;
    for (size_t k = 0; k < pending.factors.size(); ++k)
      report.loss += pending.hasSeeds ? pending.factors[k] * result->report.sums[2 + k]
                                      : std::numeric_limits<double>::quiet_NaN();
    report.gradientNorm = byGroup_ ? std::sqrt(result->report.sums[0])
                                   : result->report.decided.gradientNorm; // the decision did not
                                                                          // know the sums
    report.learningRate = pending.learningRate;
    report.skipped = result->report.decided.skip != 0;
    report.lossScale = result->report.decided.lossScale;
    report.skippedSoFar = end_.skipped += report.skipped;
    report.seconds = result->end - std::max(result->begin, before);
    report.tokensPerSecond = double(bundle_.samples()) *
                             double(std::max<int64_t>(bundle_.sequence, 1)) / report.seconds;
    run_.report(report);
    if (byGroup_ && pending.hasSeeds &&
        !(std::isfinite(report.loss) && std::isfinite(report.gradientNorm) &&
          result->report.sums[1] == 0)) {
      if (run_.stopping)
        run_.stopping();
      return userError(appliedNotFinite(report));
    }
    // A batch without labels has no non-finite values. Gradients that overflow with their loss
    // scale are finite with a smaller one.
    const bool overflow = report.lossScale > 1 && report.skipped && pending.hasSeeds &&
                          std::isfinite(report.loss);
    bool finite = pending.isEmpty() || overflow || (std::isfinite(report.loss) && !report.skipped);
    since_ = finite ? std::nullopt : since_ ? since_ : std::optional<uint64_t>(report.step);
    if (run_.nonFinite == TrainingRun::NonFinite::Stop && !overflow &&
        (report.skipped || !std::isfinite(report.loss))) {
      if (run_.stopping)
        run_.stopping();
      return userError(notFinite(report, pending));
    }
    return Status::success();
  }

  static std::string appliedNotFinite(const StepReport &report) {
    const std::string step = std::to_string(report.step);
    return "step " + step + ": " +
           (std::isfinite(report.loss) ? "a gradient is not finite" : "the loss is not finite") +
           "; the bundle updates every group as soon as its gradients are there "
           "(\"optimizer_in_backward\": true), so that the step has been "
           "applied, and the "
           "run "
           "stops. Resume from a checkpoint of an earlier step (remove those of step " +
           step +
           " and later), or compile with \"optimizer_in_backward\": false, where such steps are "
           "skipped";
  }

  std::string describe(const PendingStep &pending) const {
    return numbers_->describeNotFinite(double(bundle_.samples()), pending.counts);
  }

  std::string notFinite(const StepReport &report, const PendingStep &pending) const {
    std::string what = pending.isEmpty()
                           ? describe(pending) + ": the batch has nothing to learn from"
                       : !pending.hasSeeds           ? describe(pending)
                       : !std::isfinite(report.loss) ? "the loss is not finite"
                                                     : "a gradient is not finite";
    return "step " + std::to_string(report.step) + ": " + what +
           "; the step was not applied, and the run stops as --on-nonfinite=stop asks. Look at the "
           "data of this step and the learning rate, or use "
           "--on-nonfinite=skip";
  }

  /// Generates text after the prompt, one token per evaluation.
  Status generate(uint64_t step) {
    TextGenerator &generator = *run_.generator;
    std::vector<int64_t> ids = generator.options().prompt;
    const size_t prompt = ids.size();
    while (ids.size() < prompt + generator.options().tokens &&
           int64_t(ids.size()) < generator.length()) {
      std::shared_ptr<const Batch> batch = generator.ask(ids);
      Result<std::vector<double>> counts = numbers_->count(*batch, bundle_.batch);
      if (counts.failed())
        return counts.error();
      if (Status status = submit(batch, step, /*evaluation=*/true, std::move(*counts),
                                 double(bundle_.samples()));
          status.failed())
        return status;
      Result<StepResult> result = executor_.wait();
      if (result.failed())
        return result.error();
      pending_.pop_front();
      before_ = result->end;
      Result<std::optional<int64_t>> mine = generator.answer(step, ids.size());
      if (mine.failed())
        return mine.error();
      Result<int64_t> token = agreeOnToken(
          *run_.group,
          "token " + std::to_string(ids.size()) + " after step " + std::to_string(step), *mine);
      if (token.failed())
        return token.error();
      ids.push_back(*token);
    }
    run_.generated(step, ids, prompt);
    return Status::success();
  }

  /// A batch of an evaluation: its samples and the weight of its sums.
  struct EvaluationBatch {
    uint64_t first, samples;
    double weight;
  };

  /// All samples of the evaluation data, or those of at most `evaluationBatches` batches. The last
  /// batch of the data may be short: it is padded with its last unit. Sums are linear in units, so
  /// one more batch of that unit alone corrects the excess.
  struct EvaluationPlan {
    /// \param unit  number of samples that are taken together; the last samples % unit are left
    ///   out
    EvaluationPlan(uint64_t samples, uint64_t batch, uint64_t max, uint64_t unit)
        : batch(batch), unit(unit), whole(samples / batch), rest(samples % batch / unit * unit) {
      if (max > 0 && whole >= max) {
        whole = max;
        rest = 0;
      }
    }
    uint64_t size() const { return whole + (rest > 0 ? 2 : 0); }
    uint64_t samples() const { return whole * batch + rest; }
    EvaluationBatch at(uint64_t i) const {
      if (i < whole)
        return {i * batch, batch, 1};
      return i == whole
                 ? EvaluationBatch{whole * batch, rest, 1}
                 : EvaluationBatch{samples() - unit, unit, -double(batch - rest) / double(batch)};
    }
    /// Number of samples from which the numbers of batch i are derived. The correcting batch uses
    /// those of the last one.
    uint64_t samplesOf(uint64_t i) const { return i < whole ? batch : rest; }
    uint64_t batch, unit, whole, rest;
  };

  /// Sums of an evaluation over all samples, as in one batch. If units or counts read numbers of
  /// their step or of its samples, every batch of the evaluation is a separate step, and the loss
  /// is the mean over samples of the batches' losses.
  struct EvaluationSums {
    std::vector<double> numerators, counts; ///< over all samples
    double losses = 0;        ///< sum of the batches' losses, multiplied by their samples
    std::string without = {}; ///< why there is no loss
  };

  /// Corrects the counts of the last batch, which include the samples that pad its last group.
  Status takeOffFilling(const EvaluationPlan &plan) {
    const EvaluationBatch filling = plan.at(plan.whole + 1);
    Result<std::shared_ptr<const Batch>> batch =
        run_.evaluationData->batchOf(filling.first, filling.samples, plan.unit);
    if (batch.failed())
      return batch.error();
    Result<std::vector<double>> counts = numbers_->count(**batch, bundle_.batch);
    if (counts.failed())
      return counts.error();
    numbers_->add(batchCounts_, *counts, filling.weight);
    return Status::success();
  }

  Status submitEvaluation(const EvaluationPlan &plan, uint64_t i, uint64_t step,
                          EvaluationSums &sums) {
    const EvaluationBatch part = plan.at(i);
    Result<std::shared_ptr<const Batch>> batch =
        run_.evaluationData->batchOf(part.first, part.samples, plan.unit);
    if (batch.failed())
      return batch.error();
    // The sums of a padded group are corrected like those of the loss.
    const auto group = uint64_t(bundle_.samplesPerRow);
    const bool inRows = plan.rest % group == 0;
    if (i <= plan.whole || !inRows) {
      const int64_t rows = i < plan.whole || !inRows ? bundle_.batch : int64_t(plan.rest / group);
      Result<std::vector<double>> counts = numbers_->count(**batch, rows);
      if (counts.failed())
        return counts.error();
      numbers_->add(sums.counts, *counts, part.weight);
      if (i <= plan.whole)
        batchCounts_ = std::move(*counts);
    }
    if (i == plan.whole && !inRows)
      if (Status status = takeOffFilling(plan); status.failed())
        return status;
    const auto samples = double(plan.samplesOf(i));
    return submit(*batch, step, /*evaluation=*/true, batchCounts_, samples);
  }

  struct Evaluated {
    double loss;         ///< computed from the sums that this process received
    std::string without; ///< why there is no loss: a factor of it is not finite
  };

  /// The loss over the evaluation data.
  Result<Evaluated> evaluate(uint64_t step) {
    const bool numbered = bundle_.summary.reads_sample_numbers(),
               bySteps = numbered || !bundle_.summary.known().empty();
    const EvaluationPlan plan(run_.evaluationData->samplesPerEpoch(), uint64_t(bundle_.samples()),
                              run_.evaluationBatches, evaluationUnit(bundle_));
    EvaluationSums sums{std::vector<double>(bundle_.summary.loss_size(), 0), numbers_->none()};
    StepReport total;
    bool reported = false;
    for (uint64_t submitted = 0, done = 0; done < plan.size(); ++done) {
      for (; submitted < plan.size() && submitted < done + 2; ++submitted)
        if (Status status = submitEvaluation(plan, submitted, step, sums); status.failed())
          return status.error();
      Result<StepResult> result = executor_.wait();
      if (result.failed())
        return result.error();
      reported = result->reported;
      const PendingStep pending = std::move(pending_.front());
      pending_.pop_front();
      for (size_t k = 0; k < sums.numerators.size(); ++k) {
        const double numerator = plan.at(done).weight * result->report.sums[2 + k];
        sums.numerators[k] += numerator;
        sums.losses += pending.factors[k] * numerator * double(plan.samplesOf(done));
      }
      if (bySteps && !pending.hasSeeds && sums.without.empty())
        sums.without = numbers_->describeNotFinite(double(plan.samplesOf(done)), pending.counts);
      total.seconds += result->end - std::max(result->begin, before_);
      before_ = result->end;
    }
    total.step = step;
    total.evaluation = true;
    const auto samples = double(plan.samples());
    const std::vector<double> factors = numbers_->factors(samples, sums.counts);
    if (!bySteps)
      sums.without = numbers_->describeNotFinite(samples, sums.counts);
    total.loss =
        bySteps ? sums.losses / samples
                : std::inner_product(factors.begin(), factors.end(), sums.numerators.begin(), 0.0);
    if (!sums.without.empty())
      total.loss = std::numeric_limits<double>::quiet_NaN();
    total.tokensPerSecond = samples * double(std::max<int64_t>(bundle_.sequence, 1)) /
                            total.seconds;
    if (reported)
      run_.report(total);
    if (run_.pace)
      run_.pace();
    return Evaluated{total.loss, sums.without};
  }

  Executor &executor_;
  const Bundle &bundle_;
  const TrainingRun &run_;
  const bool byGroup_;
  std::unique_ptr<KnownNumbers> numbers_;
  std::vector<double> batchCounts_; ///< counts of the last batch of an evaluation
  std::deque<PendingStep> pending_;
  double before_ = 0; ///< end time of the previous step
  uint64_t turn_ = 0;
  uint64_t empty_ = 0;            ///< steps with nothing to learn from
  std::string emptyBecause_;      ///< reason of the last of them
  std::optional<uint64_t> since_; ///< all steps since this one were not finite
  TrainingEnd end_;
};

} // namespace

uint64_t zorse::runtime::evaluationUnit(const Bundle &bundle) {
  if (bundle.summary.reads_sample_numbers())
    return uint64_t(bundle.samples());
  return bundle.summary.combines_samples() ? uint64_t(bundle.samplesPerRow) : 1;
}

Status zorse::runtime::checkTraining(const Bundle &bundle, const bundle::TrainingOptions &options) {
  if (options.clip_norm() > 0 && commitsByGroup(bundle)) {
    char norm[32];
    std::snprintf(norm, sizeof norm, "%g", options.clip_norm());
    return userError(bundle.directory +
                     ": updates every group as soon as its gradients are reduced "
                     "(\"optimizer_in_backward\": true in its plan), and --max-grad-norm=" +
                     norm +
                     " needs the norm of all gradients first. Run it with --max-grad-norm=0, or "
                     "compile a plan with \"optimizer_in_backward\": false");
  }
  return Status::success();
}

Result<TrainingEnd> zorse::runtime::train(Executor &executor, const Bundle &bundle,
                                          const TrainingRun &run) {
  return Loop(executor, bundle, run).train();
}

Result<bool> zorse::runtime::evaluateOnce(Executor &executor, const Bundle &bundle,
                                          const TrainingRun &run) {
  return Loop(executor, bundle, run).evaluateOnce();
}
