#include "zorse/runtime/LearningRate.h"

#include <algorithm>
#include <cmath>

using namespace zorse;

double zorse::runtime::learningRate(const bundle::TrainingOptions &options, uint64_t step,
                                    uint64_t runSteps) {
  double warmup = double(options.warmup_steps()),
         total = double(options.total_steps() > 0 ? uint64_t(options.total_steps()) : runSteps);
  if (double(step) <= warmup)
    return options.learning_rate() * double(step) / warmup;
  double progress = total > warmup ? std::min(1.0, (double(step) - warmup) / (total - warmup))
                                   : 1.0;
  double factor = 1.0;
  if (options.schedule() == bundle::TrainingOptions::LINEAR)
    factor = 1.0 - (1.0 - options.final_ratio()) * progress;
  else if (options.schedule() == bundle::TrainingOptions::COSINE)
    factor = options.final_ratio() +
             (1.0 - options.final_ratio()) * 0.5 * (1.0 + std::cos(M_PI * progress));
  return options.learning_rate() * factor;
}
