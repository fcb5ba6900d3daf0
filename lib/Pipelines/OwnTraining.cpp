#include "Phases.h"

#include "zorse/Base/Format.h"

using namespace zorse;

static std::string shown(double value) { return zorse::format("%g", value); }

std::string pipelines::adoptOptimizer(const FileTraining &training, const CompileOptions &options,
                                      bundle::TrainingOptions &to, std::string &decay) {
  if (!training.optimizer)
    return {};
  const FileOptimizer &from = *training.optimizer;
  if (options.optimizerGiven)
    return "options replace the file's optimizer, " + from.node;
  using Kind = FileOptimizer::Kind;
  const bool adam = from.kind != Kind::Sgd;
  to.set_optimizer(from.kind == Kind::AdamW  ? bundle::TrainingOptions::ADAMW
                   : from.kind == Kind::Adam ? bundle::TrainingOptions::ADAM
                                             : bundle::TrainingOptions::SGD);
  std::string text = "the file's optimizer: " + from.node + ", which is " +
                     (from.kind == Kind::AdamW ? "adamw"
                      : adam                   ? "adam"
                                               : "sgd");
  if (adam) {
    to.set_beta1(from.beta1);
    to.set_beta2(from.beta2);
    to.set_epsilon(from.epsilon);
    to.set_epsilon_before_bias_correction(from.plainEpsilon);
    text += " with betas " + shown(from.beta1) + "," + shown(from.beta2) + ", eps " +
            shown(from.epsilon) + (from.plainEpsilon ? " (added before the correction)" : "");
  }
  to.set_momentum(from.momentum);
  to.set_nesterov(from.nesterov);
  if (from.momentum != 0)
    text += std::string(" with momentum ") + shown(from.momentum) +
            (from.nesterov ? " (Nesterov)" : "");
  to.set_weight_decay(from.weightDecay);
  if (from.weightDecay != 0) {
    text += ", weight decay " + shown(from.weightDecay) +
            (options.decayGiven ? "" : " of all parameters");
    if (!options.decayGiven)
      decay = "all";
  }
  if (from.learningRate && !options.learningRateGiven)
    to.set_learning_rate(*from.learningRate);
  text += ", lr " + shown(to.learning_rate());
  if (!options.clipGiven)
    to.set_clip_norm(0);
  return text + ", clip " + (to.clip_norm() > 0 ? shown(to.clip_norm()) : "off");
}
