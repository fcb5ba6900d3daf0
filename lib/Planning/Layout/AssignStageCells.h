// Conversion of a strategy's stage to cells. Internal to Planning.
#pragma once

#include "zorse/Planning/Strategy.h"
#include "zorse/Step/AssignMicroBatches.h"

namespace zorse::planning {

/// Appends the stage's cells of all ways, ordered by sample. Cells are assigned to the stage's
/// devices independent of their ways, end where turns end, and are omitted if the stage has no
/// units on the way.
/// \param base     the pipeline's first sample
/// \param devices  scratch memory
void assignStageCells(const Strategy &strategy, const Stage &stage, int64_t base,
                      std::vector<step::StageDevice> &devices, std::vector<step::Cell> &cells);

/// Returns the way of a pipeline's sample. Every round contains all ways, in another order than the
/// round before, so that a device that executes every third sample executes samples of all ways.
/// Ways with similar stage boundaries are far apart (van der Corput's order; the number of parts is
/// a power of two).
inline int32_t boundaryVariantOf(const Strategy &strategy, int64_t sample) {
  int64_t group = sample / strategy.samplesPerVariant,
          place = (group + group / strategy.boundaryDenominator) % strategy.boundaryDenominator;
  int32_t variant = 0;
  for (int32_t bit = 1; bit < strategy.boundaryDenominator; bit *= 2, place /= 2)
    variant = 2 * variant + static_cast<int32_t>(place % 2);
  return variant;
}

} // namespace zorse::planning
