// Random valid plans, for property tests and for training on odd tilings (bin/random-plan).
#pragma once

#include "zorse/Step/Plan.h"

#include <cstdint>

namespace zorse::step {

/// A valid plan drawn from `seed`: the same arguments give the same plan on every machine.
///
/// The rectangle is cut recursively by units, by samples, or into a pinwheel, which no straight cut separates:
///
///      +----+--------+
///      |    |        |
///      |    +-----+--+        cells may have one row or one unit; a device may hold
///      +----+-----+  |        several disjoint chunks, or nothing; state may belong to
///      |          |  |        devices without work, in uneven shares and 0 %;
///      +----------+--+        the schedule is 1f1b, gpipe, timed or an order,
///                                 a third of the plans split the backward, and as many
///                                 recompute or offload
///
/// Preconditions: the summary has at least one unit, batch >= 1, devices >= 1. Devices are named d0, d1, ...
Plan randomPlan(const bundle::ModelSummary &summary, int64_t batch, uint32_t devices, uint64_t seed);

/// Gives a plan an explicit order that can run, drawn from `seed`: any task whose predecessors have been drawn may be next.
void randomOrder(Plan &plan, uint64_t seed);

/// What happens to the activations of each of its cells.
void randomActivations(Plan &plan, uint64_t seed);

} // namespace zorse::step
