// What changes from step to step and is read from memory by bodies, never baked into a launch: one block per device, 1 KiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse::abi {

inline constexpr int kMaxLossTerms = 14;
inline constexpr int kMaxKnown = 64;

/// The SCALARS slot. Written whole by LoadScalars at the start of a step (sums cleared); `decided` is written by DECIDE.
struct StepScalars {
  uint64_t step; ///< 1-based, counts every step, also skipped ones: random numbers are keyed by it.
  uint64_t seed;
  double learningRate;    ///< of this step, after warm-up and decay.
  double perRow;          ///< 1 / rows of the step: running statistics move by the mean over all rows.
  double clipNorm;        ///< 0: no clipping.
  uint64_t skipNonFinite; ///< 1: a non-finite gradient or loss skips the update. A non-finite seed always does: it is known before the step.
  uint64_t reserved0;
  uint64_t evaluation; ///< 1: the step only evaluates; dropout keeps every element and does not scale.

  struct Decided {
    double clipFactor;   ///< multiplies every gradient in the update; 1 without clipping. Includes 1 / lossScale.
    double gradientNorm; ///< global L2 norm before clipping, of gradients that are not scaled; NaN when not computed.
    uint64_t skip;       ///< 1: no parameter, moment or optimizer step changes.
    double lossScale;    ///< of this step; 0 where the loss is not scaled.
    uint64_t reserved[4];
  } decided;

  double lossSeed[16];     ///< factor of term k, multiplied by the loss scale in SCALE_SEEDS: the gradient of the loss with respect to every element
                           ///< of numerator k.
  double known[kMaxKnown]; ///< values of ModelSummary.known: numbers that functions of units read.

  /// The SUMS region: sums[0] squared gradient norm, sums[1] count of non-finite elements, sums[2 + k] numerator of loss term k.
  double sums[16];
  double reserved1[16];
};
static_assert(sizeof(StepScalars) == 1024);
static_assert(offsetof(StepScalars, evaluation) == 56);
static_assert(offsetof(StepScalars, decided) == 64);
static_assert(offsetof(StepScalars, lossSeed) == 128);
static_assert(offsetof(StepScalars, known) == 256);
static_assert(offsetof(StepScalars, sums) == 768);

/// What DECIDE carries from step to step: the state OPTIMIZER_STEP. All of it where the loss is scaled, `updates` alone elsewhere. Every device that
/// makes seeds or updates has its own, and all are equal: they follow from the same sums.
struct OptimizerStep {
  double updates;   ///< applied so far
  double lossScale; ///< of the next step: a power of two, at least 1
  double goodSteps; ///< in a row without overflow, since the scale last changed
  double overflows; ///< steps whose gradients or loss were not finite, so far

  bool operator==(const OptimizerStep &o) const {
    return updates == o.updates && lossScale == o.lossScale && goodSteps == o.goodSteps && overflows == o.overflows;
  }
};
static_assert(sizeof(OptimizerStep) == 32);

} // namespace zorse::abi
