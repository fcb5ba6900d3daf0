#include "TrainingFlags.h"

#include "Numbers.h"

#include "zorse/Base/Format.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <cmath>

namespace zorse {

using Training = bundle::TrainingOptions;

namespace {

const char *kGroup = "Training (docs/reference/training.md)";

std::string shown(double value) { return format("%g", value); }

/// "adamw (default), adam, ... or radam".
std::string listOfOptimizers() {
  std::string text;
  for (size_t i = 0; i < optimizers().size(); ++i)
    text += (i == 0                         ? ""
             : i + 1 == optimizers().size() ? " or "
                                            : ", ") +
            std::string(optimizers()[i].name) + (i == 0 ? " (default)" : "");
  return text;
}

std::vector<std::string> namesOfOptimizers(unsigned option = 0) {
  std::vector<std::string> names;
  for (const OptimizerInfo &info : optimizers())
    if ((info.options & option) == option)
      names.push_back(info.name);
  return names;
}

/// Applies an option "lr=1e-4" of a --param-group. Errors do not name the group.
Status applyToGroup(const std::string &option, double learningRate,
                    Training::ParameterGroup &group) {
  const size_t equals = option.find('=');
  const std::string key = option.substr(0, equals);
  std::string word = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (key == "optimizer" && (word == "adamw" || word == "muon")) {
    group.set_optimizer(optimizerNamed(word)->optimizer);
    return Status::success();
  }
  if (key == "optimizer")
    return userError("optimizer: expected adamw or muon, got '" + word + "'");
  if (key != "lr" && key != "lr_scale" && key != "weight_decay")
    return userError("there is no option '" + key +
                     "'; there are lr, lr_scale, weight_decay and optimizer (freeze parameters "
                     "with --freeze)");
  if (const std::string problem = finiteNumber()(word); !problem.empty())
    return userError(key + ": " + problem);
  const double value = std::stod(word);
  if (key == "lr" && learningRate == 0)
    return userError("lr is a multiple of --lr, which is 0; give a positive --lr");
  if (key == "weight_decay")
    group.set_weight_decay(value);
  else
    group.set_learning_rate_scale(key == "lr" ? value / learningRate : value);
  return Status::success();
}

/// Parses "PATTERN[,PATTERN]:lr=1e-4,weight_decay=0".
Status readGroup(const std::string &text, double learningRate, Training::ParameterGroup &group) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return userError("--param-group: expects names or patterns and options, such as "
                     "'embed.*,head.*:lr=1e-4,weight_decay=0', got '" +
                     text + "'");
  for (const std::string &pattern : CLI::detail::split(text.substr(0, colon), ','))
    group.add_parameters(pattern);
  group.set_learning_rate_scale(1);
  for (const std::string &option : CLI::detail::split(text.substr(colon + 1), ','))
    if (Status status = applyToGroup(option, learningRate, group); status.failed())
      return userError("--param-group: " + text + ": " + status.message());
  return Status::success();
}

} // namespace

template <typename Value>
CLI::Option *TrainingFlags::addOfOptimizer(CLI::App &app, const char *name, Value &value,
                                           const std::string &text) {
  ofOptimizer.push_back(app.add_option(name, value, text)->group(kGroup));
  return ofOptimizer.back();
}

CLI::Option *TrainingFlags::addFlag(CLI::App &app, const char *name, bool &value,
                                    const char *text) {
  ofOptimizer.push_back(app.add_flag(name, value, text)->group(kGroup));
  return ofOptimizer.back();
}

/// Options that plans depend on: the number of optimizer states, and whether gradients are clipped.
void TrainingFlags::addStateTo(CLI::App &app) {
  addOfOptimizer(app, "--optimizer", optimizer, "optimizer: " + listOfOptimizers())
      ->check(CLI::IsMember(namesOfOptimizers()));
  addOfOptimizer(app, "--momentum", momentum,
                 "momentum of SGD and RMSprop (default: 0), and of Muon (default: 0.95)")
      ->check(finiteNumber());
  addFlag(app, "--centered", centered, "RMSprop: normalize by the variance of gradients");
  addFlag(app, "--amsgrad", amsgrad,
          "Adam and AdamW: use the largest second moment so far (AMSGrad)");
  app.add_option("--ema-decay", emaDecay,
                 "decay of an exponential moving average of the parameters, which zorse-run "
                 "--save-ema writes; 0: none (default: 0)")
      ->group(kGroup)
      ->check(finiteNumber());
  app.add_option("--max-grad-norm", clipNorm,
                 "maximum global gradient norm, 0: no clipping (default: 1.0 for adamw, adamw8bit, "
                 "lion and muon, otherwise 0)")
      ->group(kGroup)
      ->check(finiteNumber());
}

void TrainingFlags::addTo(CLI::App &app) {
  addStateTo(app);
  addOfOptimizer(
      app, "--betas", betas,
      "beta1,beta2 of the Adam family, and of AdamW for the parameters that Muon does not "
      "update (default: 0.9,0.95; Lion: 0.9,0.99; Adamax and "
      "RAdam: 0.9,0.999)")
      ->delimiter(',')
      ->expected(2)
      ->check(finiteNumber());
  addOfOptimizer(
      app, "--eps", epsilon,
      "epsilon of the optimizer (default: 1e-8; Adadelta: 1e-6; Adagrad: 1e-10; Adafactor: the "
      "machine epsilon of f32)")
      ->check(finiteNumber());
  addOfOptimizer(app, "--alpha", alpha,
                 "decay of the mean square of RMSprop (default: 0.99), rho of Adadelta (default: "
                 "0.9)")
      ->check(finiteNumber());
  addOfOptimizer(app, "--weight-decay", weightDecay,
                 "weight decay (default: 0.1 for adamw, adamw8bit, lion and muon, otherwise 0)")
      ->check(finiteNumber());
  addFlag(app, "--no-nesterov", noNesterov, "Muon: no Nesterov momentum")
      ->excludes(addFlag(app, "--nesterov", nesterov, "SGD: use Nesterov momentum"));
  addOfOptimizer(app, "--muon-adjust-lr", muonScale,
                 "factor of Muon's learning rate for a matrix of n rows and m columns: "
                 "match_rms_adamw (default), 0.2 sqrt(max(n, m)), with which updates are as large "
                 "as those of AdamW, or original, sqrt(max(1, n / m))")
      ->check(CLI::IsMember({"match_rms_adamw", "original"}));
  addOfOptimizer(app, "--beta2-decay", beta2Decay,
                 "Adafactor: step t has the weight t^B in second moments (default: -0.8)")
      ->check(finiteNumber(/*anySign=*/true));
  addOfOptimizer(app, "--eps2", epsilon2,
                 "Adafactor: least root mean square of a parameter, to which its updates are "
                 "relative (default: 1e-3)")
      ->check(finiteNumber());
  addOfOptimizer(app, "--update-clip", updateClip,
                 "Adafactor: largest root mean square of a relative update (default: 1)")
      ->check(finiteNumber());
  addFlag(app, "--no-scale-parameter", noScaleParameter,
          "Adafactor: updates are not relative to parameters, as in transformers' Trainer");
  app.add_option("--param-group", groups,
                 "parameters with another learning rate or weight decay: "
                 "'PATTERN,PATTERN:lr=1e-4,weight_decay=0' (* matches any characters; lr_scale= is "
                 "a factor of --lr; optimizer=adamw or optimizer=muon: with --optimizer=muon, the "
                 "update of these parameters); repeatable")
      ->group(kGroup)
      ->take_all();
  app.add_option("--clip-grad-value", clipValue,
                 "maximum absolute value of every gradient, instead of --max-grad-norm")
      ->group(kGroup)
      ->check(finiteNumber());
  schedule.addTo(app, kGroup, /*compiled=*/false);
  app.add_option("--initial-loss-scale", lossScale,
                 "initial loss scale of f16, a power of two (docs/concepts/precision.md)")
      ->group(kGroup)
      ->check(finiteNumber());
  app.add_option("--loss-scale-window", lossScaleInterval,
                 "steps without overflow after which the loss scale of f16 doubles (default: 2000)")
      ->group(kGroup)
      ->check(wholeNumber(INT64_MAX));
  app.add_option("--seed", seed, "random seed of dropout (default: 0)")
      ->group(kGroup)
      ->check(wholeNumber());
}

bool TrainingFlags::optimizerGiven() const {
  return std::any_of(ofOptimizer.begin(), ofOptimizer.end(),
                     [](const CLI::Option *option) { return option->count() > 0; });
}

Status TrainingFlags::resolve(Training &o) {
  const OptimizerInfo *info = optimizerNamed(optimizer);
  if (!info) // an option's check has refused it
    return userError("--optimizer: there is no '" + optimizer + "'");
  o.set_optimizer(info->optimizer);
  o.set_beta1(betas.empty() ? info->betas[0] : betas[0]);
  o.set_beta2(betas.empty() ? info->betas[1] : betas[1]);
  o.set_epsilon(epsilon.value_or(info->epsilon));
  o.set_alpha(alpha.value_or(info->alpha));
  o.set_weight_decay(weightDecay.value_or(info->weightDecay));
  o.set_momentum(momentum.value_or(info->momentum));
  o.set_nesterov(nesterov || (info->momentum > 0 && o.momentum() > 0 && !noNesterov));
  o.set_muon_scale(muonScale == "original" ? Training::ORIGINAL : Training::MATCH_RMS_ADAMW);
  o.set_beta2_decay(beta2Decay.value_or(-0.8));
  o.set_epsilon2(epsilon2.value_or(1e-3));
  o.set_update_clip(updateClip.value_or(1));
  o.set_absolute_updates(noScaleParameter);
  o.set_centered(centered);
  o.set_amsgrad(amsgrad);
  o.set_ema_decay(emaDecay);
  o.set_clip_value(clipValue.value_or(0));
  o.set_clip_norm(clipNorm.value_or(o.clip_value() > 0 ? 0 : info->clipNorm));
  o.set_schedule(Training::CONSTANT);
  o.set_learning_rate(3e-4);
  o.set_final_ratio(0.1);
  o.set_decay_power(1);
  o.set_cycles(1);
  o.set_seed(seed);
  o.set_loss_scale(lossScale.value_or(0));
  o.set_loss_scale_interval(lossScaleInterval);
  if (Status status = schedule.apply(o); status.failed())
    return status;
  for (const std::string &group : groups)
    if (Status status = readGroup(group, o.learning_rate(), *o.add_parameter_groups());
        status.failed())
      return status;
  return checkOptions(o);
}

Status TrainingFlags::checkOptions(const Training &o) const {
  std::string error; // the first error
  auto expect = [&](bool good, const std::string &message) {
    if (!good && error.empty())
      error = message;
  };
  auto belongs = [&](bool given, const char *option, OptimizerInfo::Option kind) {
    const std::vector<std::string> having = namesOfOptimizers(kind);
    expect(!given || infoOf(o.optimizer()).has(kind),
           std::string(option) + ": belongs to --optimizer=" + CLI::detail::join(having, ", ") +
               "; " + optimizer + " has none");
  };
  belongs(!betas.empty(), "--betas", OptimizerInfo::Betas);
  belongs(epsilon.has_value(), "--eps", OptimizerInfo::Epsilon);
  belongs(o.momentum() != 0, "--momentum", OptimizerInfo::Momentum);
  belongs(nesterov, "--nesterov", OptimizerInfo::Nesterov);
  belongs(noNesterov, "--no-nesterov", OptimizerInfo::Matrices);
  belongs(!muonScale.empty(), "--muon-adjust-lr", OptimizerInfo::Matrices);
  for (const Training::ParameterGroup &group : o.parameter_groups())
    belongs(group.optimizer() != Training::OPTIMIZER_UNSPECIFIED,
            "--param-group with optimizer=", OptimizerInfo::Matrices);
  belongs(alpha.has_value(), "--alpha", OptimizerInfo::Alpha);
  belongs(beta2Decay.has_value(), "--beta2-decay", OptimizerInfo::Factors);
  belongs(epsilon2.has_value(), "--eps2", OptimizerInfo::Factors);
  belongs(updateClip.has_value(), "--update-clip", OptimizerInfo::Factors);
  belongs(noScaleParameter, "--no-scale-parameter", OptimizerInfo::Factors);
  belongs(centered, "--centered", OptimizerInfo::Centered);
  belongs(amsgrad, "--amsgrad", OptimizerInfo::AmsGrad);
  auto fraction = [&](double value, const char *option, const char *what) {
    expect(value >= 0 && value < 1,
           std::string(option) + ": expects " + what + ", got " + shown(value));
  };
  fraction(o.beta1(), "--betas", "two numbers in [0, 1)");
  fraction(o.beta2(), "--betas", "two numbers in [0, 1)");
  fraction(o.momentum(), "--momentum", "a number in [0, 1)");
  fraction(o.alpha(), "--alpha", "a number in [0, 1)");
  fraction(o.ema_decay(), "--ema-decay", "a number in [0, 1)");
  expect(o.beta2_decay() >= -16 && o.beta2_decay() <= 0,
         "--beta2-decay: expects a number from -16 to 0, got " + shown(o.beta2_decay()));
  expect(o.epsilon2() >= 0, "--eps2: expects a number of at least 0, got " + shown(o.epsilon2()));
  expect(o.update_clip() >= 1,
         "--update-clip: expects a number of at least 1, got " + shown(o.update_clip()));
  int exponent = 0;
  expect(!lossScale || (*lossScale >= 1 && std::frexp(*lossScale, &exponent) == 0.5),
         "--initial-loss-scale: expects a power of two, at least 1, because small gradients "
         "underflow in f16 (remove the option for the default), got " +
             shown(lossScale.value_or(0)));
  expect(!o.nesterov() || o.momentum() > 0, "--nesterov: expects a --momentum above 0");
  expect(!(o.clip_value() > 0 && o.clip_norm() > 0),
         "--clip-grad-value: gradients are clipped by value or by norm; remove --max-grad-norm");
  expect(!o.wsd_decay_steps() || !o.total_steps() ||
             o.wsd_decay_steps() + o.warmup_steps() <= o.total_steps(),
         "--lr-wsd-decay-steps: expects at most the " +
             std::to_string(o.total_steps() - o.warmup_steps()) +
             " steps between --warmup-steps and --lr-decay-steps, got " +
             std::to_string(o.wsd_decay_steps()));
  expect(o.schedule() == Training::CONSTANT || o.total_steps() == 0 ||
             o.total_steps() > o.warmup_steps(),
         "--lr-decay-steps: expects more than the " + std::to_string(o.warmup_steps()) +
             " steps of --warmup-steps, got " + std::to_string(o.total_steps()));
  return error.empty() ? Status::success() : Status(userError(error));
}

} // namespace zorse
