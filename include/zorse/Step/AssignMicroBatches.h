// Distribution of a stage's samples to its devices in micro-batches.
#pragma once

#include "zorse/Step/Plan.h"

namespace zorse::step {

struct StageDevice {
  uint32_t device = 0;        ///< index in the cluster
  int64_t samples = 0;        ///< number of the stage's samples on this device
  int64_t microBatchSize = 1; ///< rows per cell; the last cell may be smaller
};

/// Appends the cells of one stage: units [unitBegin, unitEnd) x samples [sampleBegin, sampleBegin +
/// sum of samples).
///
/// Micro-batches are distributed in proportion, so that at every time each device has had about its
/// share. The stages before and after can then process samples in order. Shares of 20 (by 4), 8 (by
/// 2) and 4 (by 2) of 32 samples:
///
///     device a  ----  ----    ----  ----    ----
///     device b      --    --      --    --
///     device c          --              --
///
/// The next cell is assigned to the device that would then have processed the smallest fraction of
/// its own samples; ties go to the first listed.
void assignMicroBatches(int32_t unitBegin, int32_t unitEnd, int64_t sampleBegin,
                        const std::vector<StageDevice> &devices, std::vector<Cell> &cells);

} // namespace zorse::step
