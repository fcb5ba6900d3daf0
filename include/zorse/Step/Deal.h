// How the samples of a stage are dealt to its devices in micro-batches.
#pragma once

#include "zorse/Step/Plan.h"

namespace zorse::step {

struct StageDevice {
  uint32_t device = 0;
  int64_t samples = 0;    ///< how many of the stage's samples it gets.
  int64_t microBatch = 0; ///< rows per cell; the last cell may be smaller.
};

/// Appends the cells of one stage: units [unitBegin, unitEnd) x samples [sampleBegin, sampleBegin + sum of samples).
///
/// Micro-batches are dealt in proportion, so that at every moment each device has had about its share: stages in front and behind can then work
/// in sample order. Shares of 20 (by 4), 8 (by 2) and 4 (by 2) of 32 samples:
///
///     device a  ----  ----    ----  ----    ----
///     device b      --    --      --    --
///     device c          --              --
///
/// The next cell goes to the device that would be done with the smallest part of its own samples after it; ties go to the first listed.
void dealStage(int32_t unitBegin, int32_t unitEnd, int64_t sampleBegin, const std::vector<StageDevice> &devices, std::vector<Cell> &cells);

/// Splits `total` into integers in proportion to `weights` (largest remainders; ties to the first). At least one weight is positive.
std::vector<int64_t> splitInProportion(int64_t total, const std::vector<double> &weights);

} // namespace zorse::step
