#pragma once

#include "bundle.pb.h"

#include <cstdint>

namespace zorse::runtime {

/// The learning rate of step 1, 2, ...: rises linearly to `learning_rate` over the warm-up, then stays, or falls to `final_ratio` of it at the end of
/// the decay.
///
///     lr |   /-------  constant          \                     step s <= warmup: s / warmup
///        |  /  \____   linear, cosine     > times learning_rate
///        | /                             /                     after it: falls over (warmup, total]
///        +--------------------- step
///
/// \param runSteps  length of the run: the end of the decay where the options leave it open.
double learningRate(const bundle::TrainingOptions &options, uint64_t step, uint64_t runSteps);

} // namespace zorse::runtime
