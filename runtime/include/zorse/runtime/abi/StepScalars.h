// Values that change every step. Functions read them from memory; they are never compiled into a
// launch. One block of 1 KiB per device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse::abi {

inline constexpr int kMaxLossTerms = 14;
inline constexpr int kMaxKnown = 64;

/// The SCALARS argument. LoadScalars writes all of it at the start of a step (sums cleared);
/// CLIP_AND_CHECK writes `decided`.
struct StepScalars {
  uint64_t step; ///< 1-based, counts every step, including skipped ones: random numbers are keyed
                 ///< by it
  uint64_t seed;
  double learningRate; ///< learning rate of this step, after warm-up and decay
  double perRow;   ///< 1 / rows of the step: running statistics are updated with the mean over all
                   ///< rows
  double clipNorm; ///< 0: no clipping
  uint64_t skipNonFinite; ///< 1: a non-finite gradient or loss skips the update. A non-finite seed
                          ///< always does, because it is known before the step
  uint64_t reserved0;
  uint64_t evaluation; ///< 1: evaluation step; dropout keeps every element and does not scale

  struct Decided {
    double clipFactor; ///< factor of every gradient in the update; 1 without clipping. Includes 1 /
                       ///< lossScale
    double gradientNorm; ///< global L2 norm before clipping, of unscaled gradients; NaN if not
                         ///< computed
    uint64_t skip;       ///< 1: parameters, optimizer states and optimizer step do not change
    double lossScale;    ///< loss scale of this step; 0: no loss scaling
    uint64_t reserved[4];
  } decided;

  double lossGradient[16]; ///< factor of term k, multiplied by the loss scale in
                           ///< SCALE_LOSS_GRADIENT: gradient of the loss with respect to every
                           ///< element of numerator k
  double known[kMaxKnown]; ///< values of ModelSummary.known: numbers that functions of units read

  /// The LOCAL_METRICS region: sums[0] squared gradient norm, sums[1] count of non-finite elements,
  /// sums[2 + k] numerator of loss term k.
  double sums[16];
  double reserved1[16];
};
static_assert(sizeof(StepScalars) == 1024);
static_assert(offsetof(StepScalars, evaluation) == 56);
static_assert(offsetof(StepScalars, decided) == 64);
static_assert(offsetof(StepScalars, lossGradient) == 128);
static_assert(offsetof(StepScalars, known) == 256);
static_assert(offsetof(StepScalars, sums) == 768);

/// Values that CLIP_AND_CHECK carries from step to step: the state OPTIMIZER_STEP. With loss
/// scaling all fields are stored, otherwise only `updates`. Every device that computes seeds or
/// updates has a copy. All copies are equal, because they are computed from the same sums.
struct OptimizerStep {
  double updates;   ///< applied updates so far
  double lossScale; ///< loss scale of the next step: a power of two, at least 1
  double goodSteps; ///< consecutive steps without overflow since the scale last changed
  double overflows; ///< steps with non-finite gradients or loss so far

  bool operator==(const OptimizerStep &o) const {
    return updates == o.updates && lossScale == o.lossScale && goodSteps == o.goodSteps &&
           overflows == o.overflows;
  }
};
static_assert(sizeof(OptimizerStep) == 32);

} // namespace zorse::abi
