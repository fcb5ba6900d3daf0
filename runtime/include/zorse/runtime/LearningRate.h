#pragma once

#include "bundle.pb.h"

#include <cstdint>

namespace zorse::runtime {

/// Returns the learning rate of step 1, 2, .... It rises linearly to `learning_rate` during the
/// warm-up. It then stays constant, or falls to `final_ratio` of `learning_rate` at the end of the
/// decay.
///
///     lr |   /-------  constant          \                     step s <= warmup: s / warmup
///        |  /  \____   linear, cosine     > times learning_rate
///        | /                             /                     after it: falls over (warmup,
///        total]
///        +--------------------- step
///
/// \param runSteps  steps of the run: the end of the decay if the options do not specify one
double learningRate(const bundle::TrainingOptions &options, uint64_t step, uint64_t runSteps);

} // namespace zorse::runtime
