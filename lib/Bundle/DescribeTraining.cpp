#include "zorse/Bundle/DescribeTraining.h"

#include "zorse/Base/Format.h"
#include "zorse/Summary/Optimizers.h"

using namespace zorse;

static std::string number(double value) { return format("%g", value); }

std::string zorse::describeTraining(const bundle::TrainingOptions &t) {
  const OptimizerInfo &info = infoOf(t.optimizer());
  std::string text = info.name +
                     std::string(t.amsgrad()    ? " (AMSGrad)"
                                 : t.centered() ? " (centered)"
                                 : info.has(OptimizerInfo::Matrices)
                                     ? " for hidden matrices, adamw for others"
                                     : "") +
                     ", lr " + number(t.learning_rate());
  if (info.has(OptimizerInfo::Momentum) && t.momentum() > 0)
    text += ", momentum " + number(t.momentum());
  if (info.has(OptimizerInfo::Alpha))
    text += ", alpha " + number(t.alpha());
  if (info.has(OptimizerInfo::Betas))
    text += ", betas " + number(t.beta1()) + " " + number(t.beta2());
  if (info.has(OptimizerInfo::Epsilon))
    text += ", eps " + number(t.epsilon());
  if (t.weight_decay() > 0)
    text += ", weight decay " + number(t.weight_decay());
  if (t.clip_norm() > 0)
    text += ", clipped to " + number(t.clip_norm());
  if (t.clip_value() > 0)
    text += ", gradients clipped to +-" + number(t.clip_value());
  if (t.parameter_groups_size() > 0)
    text += ", " + std::to_string(t.parameter_groups_size()) +
            (t.parameter_groups_size() > 1 ? " parameter groups" : " parameter group");
  if (t.ema_decay() > 0)
    text += ", moving average of parameters with decay " + number(t.ema_decay());
  text += ", " + nameOf(t.schedule()) + " schedule";
  if (t.warmup_steps() > 0)
    text += " after " + std::to_string(t.warmup_steps()) + " steps of warm-up";
  return text;
}
