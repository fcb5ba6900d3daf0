#pragma once

#include "bundle.pb.h"

#include <cstdint>

namespace zorse::runtime {

/// Returns the learning rate of step 1, 2, .... It rises linearly to `learning_rate` during the
/// warm-up, and then follows the schedule.
///
///     lr |   /-------  constant
///        |  /  \____   linear, cosine
///        | /
///        +--------------------- step
///
/// In steps s <= warmup the rate is s / warmup times `learning_rate`; one_cycle has its own rise.
/// Schedules that fall do so over the steps in (warmup, total].
///
/// Schedules with these names have the formulas of transformers (get_scheduler), one_cycle that of
/// torch.optim.lr_scheduler.OneCycleLR. `step` is the number of steps that PyTorch's schedulers
/// count after this step; one_cycle has the rate that PyTorch uses in this step.
/// \param runSteps  steps of the run: the end of the decay if the options do not specify one
double learningRate(const bundle::TrainingOptions &options, uint64_t step, uint64_t runSteps);

/// Whether the schedule depends on the step at which it ends.
bool hasEnd(bundle::TrainingOptions::Schedule schedule);

} // namespace zorse::runtime
