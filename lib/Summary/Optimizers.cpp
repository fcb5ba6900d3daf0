#include "zorse/Summary/Optimizers.h"

#include "zorse/Summary/StateLayout.h"

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
      {Training::ADAFACTOR, "adafactor", Info::Epsilon | Info::Factors, {0, 0}, 0, 0, 0, 0, true},
      {Training::ADAMW_8BIT, "adamw8bit", adam | Info::Codes, {0.9, 0.95}, 1e-8, 0, 0.1, 1.0, true},
      {Training::ADAM_8BIT, "adam8bit", adam | Info::Codes, {0.9, 0.95}, 1e-8, 0, 0, 0},
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

/// Number of states per element, of updates that treat every element alone.
static int statesOf(const Training &training) {
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

void zorse::addOptimizerStates(const Training &training, bundle::UpdateRule &rule) {
  const int64_t elements = blockElements(rule);
  auto add = [&](int64_t entries, bundle::ElementType type = bundle::ELEMENT_TYPE_UNSPECIFIED) {
    bundle::UpdateRule::State &state = *rule.add_states();
    state.set_entries(entries);
    state.set_type(type);
  };
  const OptimizerInfo &info = infoOf(training.optimizer());
  const int rank = rule.block_size();
  if (rule.running_stat())
    ; // the reduction is all that they need
  else if (info.has(Info::Factors) && rank > 1) {
    add(elements / rule.block(rank - 1));
    add(elements / rule.block(rank - 2));
  } else if (info.has(Info::Codes) && rank > 0) {
    for (int moment = 0; moment < 2; ++moment) {
      add(elements, bundle::U8);
      add(1);
    }
  } else {
    for (int state = rank > 0 ? 1 : statesOf(training); state > 0; --state)
      add(elements);
  }
  if (training.ema_decay() > 0)
    add(elements);
}

// An iteration multiplies an n x m matrix (n <= m) twice with n rows, and its n x n gram matrix
// once with itself.
double zorse::updateFlops(const Training &training, const bundle::UpdateRule &rule) {
  if (!infoOf(training.optimizer()).has(Info::Matrices) || rule.block_size() != 2)
    return 0;
  const double longer = double(std::max(rule.block(0), rule.block(1))),
               shorter = double(std::min(rule.block(0), rule.block(1)));
  return kNewtonSchulzSteps * (4 * shorter + 2 * shorter * shorter / longer);
}

uint32_t zorse::optimizerStates(const bundle::ModelSummary &summary,
                                const bundle::FlatGroupInfo &group) {
  const bundle::UpdateRule *rule = ruleOf(summary, group);
  return rule ? static_cast<uint32_t>(rule->states_size()) : 0;
}

uint32_t zorse::maxOptimizerStates(const bundle::ModelSummary &summary) {
  int states = 0;
  for (const bundle::UpdateRule &rule : summary.update_rules())
    states = std::max(states, rule.states_size());
  return static_cast<uint32_t>(states);
}

double zorse::meanStateBytes(const bundle::ModelSummary &summary) {
  double elements = 0, bytes = 0, largest = 0;
  for (const bundle::UpdateRule &rule : summary.update_rules())
    largest = std::max(largest, stateBytesPerElement(rule, bundle::F32));
  for (const bundle::FlatGroupInfo &group : summary.groups())
    if (const bundle::UpdateRule *rule = ruleOf(summary, group)) {
      const auto count = static_cast<double>(group.elements());
      elements += count;
      bytes += count * stateBytesPerElement(*rule, group.type());
    }
  return elements > 0 ? bytes / elements : largest;
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
