#include "Identity.h"

#include "Json.h"

#include "zorse/Bundle/ContentHash.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/runtime/LearningRate.h"

#include <google/protobuf/text_format.h>

#include <cstdio>
#include <tuple>

using namespace zorse;
using namespace zorse::runtime;
using Options = bundle::TrainingOptions;

namespace {

std::string storedName(Options::Optimizer optimizer) {
  return optimizer == Options::OPTIMIZER_UNSPECIFIED ? "none" : infoOf(optimizer).name;
}

std::string storedName(Options::Schedule schedule) {
  return schedule == Options::SCHEDULE_UNSPECIFIED ? "none" : zorse::nameOf(schedule);
}

/// The value of an enum with this name; fails the fields if there is none.
template <typename Enum>
Enum valueOf(const google::protobuf::EnumDescriptor *of, JsonFields &fields, const char *field) {
  std::string text;
  fields.text(field, text);
  for (int i = 0; i < of->value_count(); ++i)
    if (const auto value = static_cast<Enum>(of->value(i)->number()); text == storedName(value))
      return value;
  fields.fail(std::string("'") + field + "' is the unknown '" + text + "'");
  return Enum(0);
}

std::string shown(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  char shorter[40];
  std::snprintf(shorter, sizeof shorter, "%g", value);
  double back = 0;
  return std::sscanf(shorter, "%lf", &back) == 1 && back == value ? shorter : text;
}

std::string shown(const std::optional<uint64_t> &value) {
  return value ? std::to_string(*value) : "none";
}

/// The options that have no separate field in an index, without those that have no effect.
Options otherOptions(const Options &training) {
  const OptimizerInfo &info = infoOf(training.optimizer());
  Options others;
  if (info.has(OptimizerInfo::Alpha))
    others.set_alpha(training.alpha());
  others.set_centered(training.centered());
  others.set_amsgrad(training.amsgrad());
  others.set_clip_value(training.clip_value());
  others.set_ema_decay(training.ema_decay());
  if (training.schedule() == Options::POLYNOMIAL)
    others.set_decay_power(training.decay_power());
  if (training.schedule() == Options::COSINE_WITH_RESTARTS)
    others.set_cycles(training.cycles());
  if (training.schedule() == Options::WARMUP_STABLE_DECAY) {
    others.set_wsd_decay_steps(training.wsd_decay_steps());
    others.set_wsd_decay_style(training.wsd_decay_style());
  }
  if (training.schedule() == Options::TABLE)
    *others.mutable_points() = training.points();
  others.set_muon_scale(training.muon_scale());
  if (info.has(OptimizerInfo::Factors)) {
    others.set_beta2_decay(training.beta2_decay());
    others.set_epsilon2(training.epsilon2());
    others.set_update_clip(training.update_clip());
    others.set_absolute_updates(training.absolute_updates());
  }
  *others.mutable_parameter_groups() = training.parameter_groups();
  return others;
}

/// The last step of the decay; 0 if it has no effect.
uint64_t decayEnd(const RunConfig &runConfig) {
  if (!hasEnd(runConfig.training.schedule()))
    return 0;
  return runConfig.training.total_steps() > 0 ? uint64_t(runConfig.training.total_steps())
                                              : runConfig.steps;
}

/// Whether both runs have the same kind of decay and it ends with the run, so that they differ only
/// in length.
bool onlyLonger(const RunConfig &before, const RunConfig &now) {
  const Options &a = before.training, &b = now.training;
  return decayEnd(before) > 0 && a.schedule() == b.schedule() && a.total_steps() == 0 &&
         b.total_steps() == 0;
}

double finalRatio(const RunConfig &runConfig) {
  return decayEnd(runConfig) ? runConfig.training.final_ratio() : 1.0;
}

} // namespace

nlohmann::ordered_json zorse::runtime::runConfigJson(const RunConfig &runConfig) {
  const Options &t = runConfig.training;
  nlohmann::ordered_json json = {{"model", runConfig.model},
                                 {"batch", runConfig.batch},
                                 {"sequence", runConfig.sequence},
                                 {"seed", runConfig.seed},
                                 {"shuffle", nullptr},
                                 {"data", runConfig.data},
                                 {"samples_per_epoch", runConfig.samplesPerEpoch},
                                 {"steps", runConfig.steps}};
  if (!runConfig.matrices.empty())
    json["matrix_libraries"] = runConfig.matrices;
  if (runConfig.shuffle)
    json["shuffle"] = *runConfig.shuffle;
  json["training"] = {{"optimizer", storedName(t.optimizer())},
                      {"learning_rate", t.learning_rate()},
                      {"momentum", t.momentum()},
                      {"beta1", t.beta1()},
                      {"beta2", t.beta2()},
                      {"epsilon", t.epsilon()},
                      {"weight_decay", t.weight_decay()},
                      {"clip_norm", t.clip_norm()},
                      {"schedule", storedName(t.schedule())},
                      {"warmup_steps", t.warmup_steps()},
                      {"total_steps", t.total_steps()},
                      {"final_ratio", t.final_ratio()},
                      {"seed", t.seed()},
                      {"nesterov", t.nesterov()}};
  if (t.epsilon_before_bias_correction())
    json["training"]["plain_epsilon"] = true;
  if (const std::string text = otherOptions(t).ShortDebugString(); !text.empty())
    json["training"]["others"] = text;
  return json;
}

RunConfig zorse::runtime::parseRunConfig(const nlohmann::json &json, const std::string &where,
                                         std::string &problem) {
  RunConfig runConfig;
  JsonFields fields(json, where, problem);
  fields.text("model", runConfig.model);
  fields.signedNumber("batch", runConfig.batch, 0, INT64_MAX);
  fields.signedNumber("sequence", runConfig.sequence, 0, INT64_MAX);
  fields.number("seed", runConfig.seed);
  if (const nlohmann::json *shuffle = fields.find("shuffle"); shuffle && !shuffle->is_null()) {
    uint64_t seed = 0;
    fields.number("shuffle", seed);
    runConfig.shuffle = seed;
  }
  fields.text("data", runConfig.data);
  if (json.is_object() && json.contains("matrix_libraries")) // absent in old indices
    fields.text("matrix_libraries", runConfig.matrices);
  fields.number("samples_per_epoch", runConfig.samplesPerEpoch);
  fields.number("steps", runConfig.steps);
  const nlohmann::json *training = fields.find("training");
  if (!training)
    return runConfig;
  JsonFields options(*training, where + ", 'training'", problem);
  Options &t = runConfig.training;
  auto real = [&](const char *name, auto set) {
    double value = 0;
    options.real(name, value);
    (t.*set)(value);
  };
  auto truth = [&](const char *name, auto set) {
    bool value = false;
    options.truth(name, value);
    (t.*set)(value);
  };
  auto count = [&](const char *name, auto set) {
    int64_t value = 0;
    options.signedNumber(name, value, 0, INT64_MAX);
    (t.*set)(value);
  };
  t.set_optimizer(
      valueOf<Options::Optimizer>(Options::Optimizer_descriptor(), options, "optimizer"));
  t.set_schedule(valueOf<Options::Schedule>(Options::Schedule_descriptor(), options, "schedule"));
  real("learning_rate", &Options::set_learning_rate);
  real("momentum", &Options::set_momentum);
  real("beta1", &Options::set_beta1);
  real("beta2", &Options::set_beta2);
  real("epsilon", &Options::set_epsilon);
  real("weight_decay", &Options::set_weight_decay);
  real("clip_norm", &Options::set_clip_norm);
  real("final_ratio", &Options::set_final_ratio);
  truth("nesterov", &Options::set_nesterov);
  if (training->is_object() && training->contains("plain_epsilon")) // absent if it is the default
    truth("plain_epsilon", &Options::set_epsilon_before_bias_correction);
  if (training->is_object() && training->contains("others")) {
    std::string text;
    Options others;
    options.text("others", text);
    if (!google::protobuf::TextFormat::ParseFromString(text, &others))
      options.fail("'others' is not a text of training options");
    others.set_optimizer(t.optimizer());
    others.set_schedule(t.schedule());
    t.MergeFrom(otherOptions(others));
  }
  count("warmup_steps", &Options::set_warmup_steps);
  count("total_steps", &Options::set_total_steps);
  uint64_t seed = 0;
  options.number("seed", seed);
  t.set_seed(seed);
  return runConfig;
}

std::vector<Difference> zorse::runtime::differences(const RunConfig &before, const RunConfig &now) {
  std::vector<Difference> out;
  auto text = [&](const char *what, const std::string &a, const std::string &b) {
    if (a != b)
      out.push_back({what, a.empty() ? "none" : a, b.empty() ? "none" : b});
  };
  auto real = [&](const char *what, double a, double b) {
    if (a != b)
      out.push_back({what, shown(a), shown(b)});
  };
  auto number = [&](const char *what, uint64_t a, uint64_t b) {
    text(what, std::to_string(a), std::to_string(b));
  };
  const Options &a = before.training, &b = now.training;
  if (bundle::comparable(before.model, now.model))
    text("model (contents of the graph)", before.model, now.model);
  number("batch", uint64_t(before.batch), uint64_t(now.batch));
  number("sequence", uint64_t(before.sequence), uint64_t(now.sequence));
  number("seed", before.seed == now.seed ? a.seed() : before.seed,
         before.seed == now.seed ? b.seed() : now.seed);
  text("shuffle", shown(before.shuffle), shown(now.shuffle));
  text("data", before.data, now.data);
  number("samples an epoch", before.samplesPerEpoch, now.samplesPerEpoch);
  text("optimizer", storedName(a.optimizer()), storedName(b.optimizer()));
  const OptimizerInfo &info = infoOf(b.optimizer()); // other options have no effect
  if (info.has(OptimizerInfo::Momentum))
    real("momentum", a.momentum(), b.momentum());
  text("nesterov", a.nesterov() ? "yes" : "no", b.nesterov() ? "yes" : "no");
  text("epsilon", a.epsilon_before_bias_correction() ? "before the correction" : "as in PyTorch",
       b.epsilon_before_bias_correction() ? "before the correction" : "as in PyTorch");
  if (info.has(OptimizerInfo::Betas)) {
    real("beta1", a.beta1(), b.beta1());
    real("beta2", a.beta2(), b.beta2());
  }
  if (info.has(OptimizerInfo::Epsilon))
    real("epsilon", a.epsilon(), b.epsilon());
  real("weight decay", a.weight_decay(), b.weight_decay());
  text("other options", otherOptions(a).ShortDebugString(), otherOptions(b).ShortDebugString());
  real("clip", a.clip_norm(), b.clip_norm());
  real("learning rate", a.learning_rate(), b.learning_rate());
  text("schedule", storedName(a.schedule()), storedName(b.schedule()));
  number("warm-up steps", uint64_t(a.warmup_steps()), uint64_t(b.warmup_steps()));
  if (!onlyLonger(before, now))
    number("last step of the decay", decayEnd(before), decayEnd(now));
  real("final ratio of the learning rate", finalRatio(before), finalRatio(now));
  return out;
}

std::string zorse::runtime::explainDecay(const RunConfig &before, const RunConfig &now,
                                         uint64_t step) {
  if (!onlyLonger(before, now) || decayEnd(before) == decayEnd(now))
    return {};
  auto rate = [&](const RunConfig &run) {
    char text[40];
    std::snprintf(text, sizeof text, "%.3g", learningRate(run.training, step + 1, run.steps));
    return std::string(text);
  };
  return "the " + storedName(now.training.schedule()) +
         " decay of the learning rate ends with the run, at step " + std::to_string(decayEnd(now)) +
         " now and at step " + std::to_string(decayEnd(before)) +
         " in the checkpoint's run: step " + std::to_string(step + 1) + " has the learning rate " +
         rate(now) + ", and would have had " + rate(before) + "; --lr-decay-steps " +
         std::to_string(decayEnd(before)) +
         " keeps the decay as it was, and the steps after it at its end";
}

std::string zorse::runtime::listed(const std::vector<Difference> &differences) {
  std::string text;
  for (const Difference &difference : differences)
    text += "\n  " + difference.what + ": " + difference.before + " in the checkpoint, " +
            difference.now + " here";
  return text;
}

bool zorse::runtime::sameMoments(const Options &before, const Options &now) {
  auto kind = [](const Options &options) {
    const bool adam = options.optimizer() == Options::ADAM,
               codes = options.optimizer() == Options::ADAM_8BIT;
    return std::make_tuple(adam    ? Options::ADAMW
                           : codes ? Options::ADAMW_8BIT
                                   : options.optimizer(),
                           options.amsgrad(), options.centered(), options.momentum() > 0,
                           options.ema_decay() > 0);
  };
  return kind(before) == kind(now);
}
