#include "TrainingFlags.h"

#include "Numbers.h"

#include <algorithm>
#include <cmath>

namespace zorse {

void TrainingFlags::addTo(CLI::App &app) {
  const char *group = "Training (docs/reference/training.md)";
  auto add = [&](const char *name, auto &value, const char *text) {
    return app.add_option(name, value, text)->group(group);
  };
  ofOptimizer = {
      add("--optimizer", optimizer, "optimizer: adamw (default), adam or sgd")
          ->check(CLI::IsMember({"adamw", "adam", "sgd"})),
      add("--betas", betas, "beta1,beta2 of Adam and AdamW (default: 0.9,0.95)")
          ->delimiter(',')
          ->expected(2)
          ->check(finiteNumber()),
      add("--eps", epsilon, "epsilon of Adam and AdamW (default: 1e-8)")->check(finiteNumber())};
  learningRateOption =
      add("--lr", learningRate, "learning rate (default: 3e-4)")->check(finiteNumber());
  weightDecay =
      add("--weight-decay", weightDecayValue, "weight decay (default: 0.1 for adamw, otherwise 0)")
          ->check(finiteNumber());
  ofOptimizer.push_back(weightDecay);
  ofOptimizer.push_back(
      add("--momentum", momentum, "momentum of SGD (default: 0)")->check(finiteNumber()));
  ofOptimizer.push_back(
      app.add_flag("--nesterov", nesterov, "use Nesterov momentum")->group(group));
  clip = add("--max-grad-norm", clipValue,
             "maximum global gradient norm, 0: no clipping (default: 1.0 for adamw, otherwise 0)")
             ->check(finiteNumber());
  add("--lr-scheduler-type", schedule,
      "learning rate schedule: constant (default), linear or cosine")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}));
  add("--warmup-steps", warmup, "steps of linear learning rate warm-up (default: 0)")
      ->check(wholeNumber(INT64_MAX));
  add("--lr-decay-steps", totalSteps,
      "step at which the linear or cosine decay ends; 0 (default): the last step of the run")
      ->check(wholeNumber(INT64_MAX));
  add("--min-lr-ratio", finalRatio,
      "learning rate at the end of the decay, as a fraction of --lr (default: 0.1)")
      ->check(finiteNumber());
  lossScale = add("--initial-loss-scale", lossScaleValue,
                  "initial loss scale of f16, a power of two (docs/concepts/precision.md)")
                  ->check(finiteNumber());
  add("--loss-scale-window", lossScaleInterval,
      "steps without overflow after which the loss scale of f16 doubles (default: 2000)")
      ->check(wholeNumber(INT64_MAX));
  add("--seed", seed, "random seed of dropout (default: 0)")->check(wholeNumber());
}

bool TrainingFlags::optimizerGiven() const {
  return std::any_of(ofOptimizer.begin(), ofOptimizer.end(),
                     [](const CLI::Option *option) { return option->count() > 0; });
}

void TrainingFlags::addStateTo(CLI::App &app) {
  const char *group = "Training (docs/reference/training.md)";
  app.add_option("--optimizer", optimizer, "optimizer: adamw (default), adam or sgd")
      ->group(group)
      ->check(CLI::IsMember({"adamw", "adam", "sgd"}));
  app.add_option("--momentum", momentum, "momentum of SGD (default: 0)")
      ->group(group)
      ->check(finiteNumber());
}

Status TrainingFlags::resolve(bundle::TrainingOptions &o) const {
  bool adamw = optimizer == "adamw";
  o.set_optimizer(adamw                 ? bundle::TrainingOptions::ADAMW
                  : optimizer == "adam" ? bundle::TrainingOptions::ADAM
                                        : bundle::TrainingOptions::SGD);
  o.set_schedule(schedule == "cosine"   ? bundle::TrainingOptions::COSINE
                 : schedule == "linear" ? bundle::TrainingOptions::LINEAR
                                        : bundle::TrainingOptions::CONSTANT);
  o.set_learning_rate(learningRate);
  o.set_beta1(betas[0]);
  o.set_beta2(betas[1]);
  o.set_epsilon(epsilon);
  o.set_weight_decay(weightDecay && weightDecay->count() ? weightDecayValue : adamw ? 0.1 : 0.0);
  o.set_momentum(momentum);
  o.set_nesterov(nesterov);
  o.set_clip_norm(clip && clip->count() ? clipValue : adamw ? 1.0 : 0.0);
  o.set_warmup_steps(warmup);
  o.set_total_steps(totalSteps);
  o.set_final_ratio(finalRatio);
  o.set_seed(seed);

  o.set_loss_scale(lossScaleValue);
  o.set_loss_scale_interval(lossScaleInterval);

  std::string error; // the first error
  auto expect = [&](bool good, const char *option, const char *what, double found) {
    if (!good && error.empty())
      error = std::string(option) + ": expects " + what + ", got " + CLI::detail::to_string(found);
  };
  for (double beta : betas)
    expect(beta >= 0 && beta < 1, "--betas", "two numbers in [0, 1)", beta);
  int exponent = 0;
  expect(!(lossScale && lossScale->count()) ||
             (lossScaleValue >= 1 && std::frexp(lossScaleValue, &exponent) == 0.5),
         "--initial-loss-scale",
         "a power of two, at least 1, because small gradients underflow in f16 (remove the option "
         "for the default)",
         lossScaleValue);
  if (error.empty() && nesterov && momentum == 0)
    error = "--nesterov: expects a --momentum above 0";
  if (error.empty() && optimizer != "sgd" && momentum != 0)
    error = "--momentum: belongs to --optimizer=sgd; " + optimizer + " has --betas";
  if (error.empty() && schedule != "constant" && totalSteps > 0 && totalSteps <= warmup)
    error = "--lr-decay-steps: expects more than the " + std::to_string(warmup) +
            " steps of --warmup-steps, got " + std::to_string(totalSteps);
  return error.empty() ? Status::success() : Status(userError(error));
}

} // namespace zorse
