#include "zorse/Bundle/DescribeTraining.h"

#include "zorse/Base/Format.h"

#include <cctype>

using namespace zorse;

static std::string lower(std::string text) {
  for (char &c : text)
    c = static_cast<char>(tolower(c));
  return text;
}

static std::string number(double value) { return format("%g", value); }

std::string zorse::describeTraining(const bundle::TrainingOptions &t) {
  std::string text = lower(bundle::TrainingOptions::Optimizer_Name(t.optimizer())) + ", lr " +
                     number(t.learning_rate());
  if (t.optimizer() == bundle::TrainingOptions::SGD)
    text += t.momentum() > 0 ? ", momentum " + number(t.momentum()) : "";
  else
    text += ", betas " + number(t.beta1()) + " " + number(t.beta2()) + ", eps " +
            number(t.epsilon());
  if (t.weight_decay() > 0)
    text += ", weight decay " + number(t.weight_decay());
  if (t.clip_norm() > 0)
    text += ", clipped to " + number(t.clip_norm());
  text += ", " + lower(bundle::TrainingOptions::Schedule_Name(t.schedule())) + " schedule";
  if (t.warmup_steps() > 0)
    text += " after " + std::to_string(t.warmup_steps()) + " steps of warm-up";
  return text;
}
