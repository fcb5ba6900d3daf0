// Draws random valid plans, for property tests and for training on irregular tilings
// (bin/random-plan).
#pragma once

#include "zorse/Step/Plan.h"

#include <cstdint>

namespace zorse::step {

/// Draws a valid plan from `seed`. The same arguments give the same plan on every machine.
///
/// The rectangle is divided recursively by units, by samples, or into a pinwheel, which no straight
/// line separates:
///
///      +----+--------+
///      |    |        |
///      |    +-----+--+        cells may have one sample or one unit; a device may have
///      +----+-----+  |        several disjoint chunks, or none; devices without work may
///      |          |  |        own state; shares are uneven and may be 0 %;
///      +----------+--+        the schedule is 1f1b, gpipe, timed or an order;
///                                 a third of the plans split the backward, and a third
///                                 recompute or offload
///
/// Preconditions: the summary has at least one unit, batch >= 1, devices >= 1. Devices are named
/// d0, d1, ...
Plan randomPlan(const bundle::ModelSummary &summary, int64_t batch, uint32_t devices,
                uint64_t seed);

/// Gives a plan an explicit order without deadlocks, drawn from `seed`: a random topological order
/// of the tasks.
void randomOrder(Plan &plan, uint64_t seed);

/// Draws for each cell whether its activations are kept, recomputed or offloaded.
void randomActivations(Plan &plan, uint64_t seed);

} // namespace zorse::step
