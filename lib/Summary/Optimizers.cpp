#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <cctype>

using namespace zorse;

using Training = bundle::TrainingOptions;
using Info = OptimizerInfo;

const std::vector<OptimizerInfo> &zorse::optimizers() {
  constexpr unsigned adam = Info::Betas | Info::Epsilon;
  static const std::vector<OptimizerInfo> all = {
      {Training::ADAMW, "adamw", adam | Info::AmsGrad, {0.9, 0.95}, 1e-8, 0, 0.1, 1.0, true},
      {Training::ADAM, "adam", adam | Info::AmsGrad, {0.9, 0.95}, 1e-8, 0, 0, 0},
      {Training::SGD, "sgd", Info::Momentum | Info::Nesterov, {0, 0}, 0, 0, 0, 0},
      {Training::LION, "lion", Info::Betas, {0.9, 0.99}, 0, 0, 0.1, 1.0, true},
      {Training::RMSPROP,
       "rmsprop",
       Info::Epsilon | Info::Alpha | Info::Momentum | Info::Centered,
       {0, 0},
       1e-8,
       0.99,
       0,
       0},
      {Training::ADAGRAD, "adagrad", Info::Epsilon, {0, 0}, 1e-10, 0, 0, 0},
      {Training::ADADELTA, "adadelta", Info::Epsilon | Info::Alpha, {0, 0}, 1e-6, 0.9, 0, 0},
      {Training::ADAMAX, "adamax", adam, {0.9, 0.999}, 1e-8, 0, 0, 0},
      {Training::RADAM, "radam", adam, {0.9, 0.999}, 1e-8, 0, 0, 0},
      {Training::MUON,
       "muon",
       adam | Info::Momentum | Info::Nesterov | Info::Matrices,
       {0.9, 0.95},
       1e-8,
       0,
       0.1,
       1.0,
       true,
       0.95},
  };
  return all;
}

const OptimizerInfo &zorse::infoOf(Training::Optimizer optimizer) {
  const Training::Optimizer known = optimizer == Training::OPTIMIZER_UNSPECIFIED ? Training::SGD
                                                                                 : optimizer;
  for (const OptimizerInfo &info : optimizers())
    if (info.optimizer == known)
      return info;
  return optimizers().front();
}

const OptimizerInfo *zorse::optimizerNamed(const std::string &name) {
  for (const OptimizerInfo &info : optimizers())
    if (name == info.name)
      return &info;
  return nullptr;
}

static uint32_t statesOf(const Training &training) {
  switch (infoOf(training.optimizer()).optimizer) {
  case Training::SGD:
    return training.momentum() > 0 ? 1 : 0;
  case Training::LION:
  case Training::ADAGRAD:
    return 1;
  case Training::RMSPROP:
    return 1 + (training.centered() ? 1 : 0) + (training.momentum() > 0 ? 1 : 0);
  default:
    return training.amsgrad() ? 3 : 2;
  }
}

uint32_t zorse::optimizerStates(const Training &training, bool statistic, bool matrix) {
  return (statistic ? 0 : matrix ? 1 : statesOf(training)) + (training.ema_decay() > 0 ? 1 : 0);
}

// An iteration multiplies an n x m matrix (n <= m) twice with n rows, and its n x n gram matrix
// once with itself.
double zorse::updateFlops(const bundle::Matrix &matrix) {
  const double longer = double(std::max(matrix.rows(), matrix.columns())),
               shorter = double(std::min(matrix.rows(), matrix.columns()));
  return kNewtonSchulzSteps * (4 * shorter + 2 * shorter * shorter / longer);
}

uint32_t zorse::optimizerStates(const bundle::ModelSummary &summary,
                                const bundle::FlatGroupInfo &group) {
  if (!group.trainable() || group.parameters().empty())
    return 0;
  const auto rule =
      static_cast<int>(summary.parameters(static_cast<int>(group.parameters(0))).update_rule());
  return rule < summary.update_rules_size() ? summary.update_rules(rule).states() : 0;
}

uint32_t zorse::maxOptimizerStates(const bundle::ModelSummary &summary) {
  uint32_t states = 0;
  for (const bundle::UpdateRule &rule : summary.update_rules())
    states = std::max(states, rule.states());
  return states;
}

static std::string lower(std::string text) {
  for (char &c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string zorse::nameOf(Training::Schedule schedule) {
  return lower(Training::Schedule_Name(schedule));
}

std::string zorse::nameOf(Training::WsdStyle style) {
  const std::string name = lower(Training::WsdStyle_Name(style));
  return name.substr(0, name.size() - std::string("_style").size());
}
