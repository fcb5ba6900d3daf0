// What follows from a model summary alone, defined once for planning, steps, code generation and the runtime. The verifier has its own, on purpose.
#pragma once

#include "zorse/runtime/abi/StepScalars.h"

#include "bundle.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// Bytes of one element; 0 for a type that this version does not know.
constexpr uint64_t elementBytes(bundle::ElementType type) {
  switch (type) {
  case bundle::F64:
  case bundle::I64:
    return 8;
  case bundle::F32:
  case bundle::I32:
    return 4;
  case bundle::BF16:
  case bundle::F16:
    return 2;
  case bundle::I1:
    return 1;
  default:
    return 0;
  }
}

/// "f32", "bf16", "i64", ...: how flags, plans and messages write a type; "" for an unknown one.
const char *elementTypeName(bundle::ElementType type);

/// Two bytes per element: parameters are then kept in f32 besides.
constexpr bool isHalf(bundle::ElementType type) { return type == bundle::BF16 || type == bundle::F16; }

/// What `--precision` and `--residual` say of a model: in which type its units compute, and which of their values are rounded to what.
struct Precision {
  bundle::ElementType compute = bundle::F32;                      ///< f32, or f64 for tests
  bundle::ElementType rounded = bundle::ELEMENT_TYPE_UNSPECIFIED; ///< bf16 or f16; unspecified: nothing is rounded
  bool wideResidual = false;                                      ///< as ModelSummary.wide_residual
  bool tf32 = false;                                              ///< as ModelSummary.tf32: of f32 where nothing is rounded
  bool sumsF16 = false;                                           ///< as ModelSummary.sums_f16: of f16

  /// f16 has no gradients below 6e-8: on their way through it they are scaled.
  bool needsScaling() const { return rounded == bundle::F16; }
  bool rounds() const { return rounded != bundle::ELEMENT_TYPE_UNSPECIFIED; }
  /// "f32", "tf32", "bf16", "f64:bf16" (test type: the roundings of bf16 in f64 arithmetic), "f16, f32 residual, sums in f16".
  std::string name() const;
};
/// `text` as `--precision` takes it, which is `name()` without the residual; nothing if it is no precision.
std::optional<Precision> parsePrecision(const std::string &text);
Precision precisionOf(const bundle::ModelSummary &summary);

/// The type of the operands of matrix products: which of a device's speeds counts.
bundle::ElementType productType(const bundle::ModelSummary &summary);

/// Of regions bound to slots, in bytes.
inline constexpr uint64_t kRegionAlignment = 64;
constexpr uint64_t alignRegion(uint64_t bytes) { return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment; }

/// Every parameter of a state group, and every owner's extent, starts on a multiple of so many bytes.
inline constexpr uint64_t kStateAlignment = 512;

/// Of the block of step scalars: all of it, what the SCALARS slot sees, and the sums behind.
inline constexpr uint64_t kScalarsBlock = sizeof(abi::StepScalars), kScalarsBytes = offsetof(abi::StepScalars, sums),
                          kSumsBytes = sizeof(abi::StepScalars::sums);

/// Samples that one row of a program holds: a group of them, where batch norm takes its statistics over groups; else 1.
inline int64_t samplesPerRow(const bundle::ModelSummary &summary) { return summary.samples_per_row() > 1 ? summary.samples_per_row() : 1; }

/// Whether gradients are scaled on their way through f16 (docs/precision.md).
inline bool scalesLoss(const bundle::ModelSummary &summary) { return summary.training().loss_scale() > 0; }
/// Good steps in a row that double the loss scale, by default: GradScaler's.
inline constexpr int64_t kLossScaleInterval = 2000;
// Sums of GPUs that exchange directly: terms arrive in memory of the GPU, each on a multiple of kStateAlignment, and bodies add them.

/// Most terms that one body adds, in any bundle. Sums of more are made of several.
inline constexpr uint32_t kMostSumTerms = 8;
/// Most terms that one body of this model adds in a type; those of fewer, from 2 on, exist too. 0: there is none.
uint32_t mostTerms(const bundle::ModelSummary &summary, bundle::ElementType type);
/// The body that adds so many terms. Precondition: 2 <= terms <= mostTerms.
uint32_t sumBody(const bundle::ModelSummary &summary, bundle::ElementType type, uint32_t terms);
/// Bytes from one term to the next in ReduceScatter.parts.
constexpr uint64_t partStride(uint64_t chunkBytes) { return (chunkBytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment; }
/// Of ReduceScatter.parts: for the terms of one round, and what several bodies hand on.
uint64_t roundPartsBytes(const bundle::ModelSummary &summary, bundle::ElementType type, uint64_t terms, int64_t chunk);
/// Of AllReduce.parts.
uint64_t sumPartsBytes(const bundle::ModelSummary &summary, uint64_t terms);

/// Of the state OPTIMIZER_STEP.
inline uint64_t optimizerStepBytes(const bundle::ModelSummary &summary) {
  return scalesLoss(summary) ? sizeof(abi::OptimizerStep) : sizeof(abi::OptimizerStep::updates);
}
/// The loss scale of a first step of `batch` rows, as seeds then begin between 8 and 16 times their coefficient (docs/precision.md): 16 times the
/// number of addends of the loss, rounded down to a power of two.
double firstLossScale(const bundle::ModelSummary &summary, int64_t batch);

/// "sum", "max" or "min"; "" for an unknown one.
const char *reduceName(bundle::Count::Reduce reduce);
std::optional<bundle::Count::Reduce> parseReduce(const std::string &name);
/// The meaning of the loss as text, two lines (docs/training.md). `samples`: of a step.
std::vector<std::string> describeLoss(const bundle::ModelSummary &summary, int64_t samples);

/// The wide type that a compute type's losses and sums over rows have: f64 computes in f64, everything else sums in f32.
constexpr bundle::ElementType wideType(bundle::ElementType computeType) { return computeType == bundle::F64 ? bundle::F64 : bundle::F32; }

/// Type of a group's parameters as units read them and gathers carry them.
bundle::ElementType computeType(const bundle::GroupInfo &group);

int64_t elementsOf(const bundle::ParameterInfo &parameter);

/// Per cut between units, 0 to the number of units: values that live across it, ascending; if `gradients`, those of them that need one.
std::vector<std::vector<uint32_t>> valuesAtCuts(const bundle::ModelSummary &summary, bool gradients);

// What a unit's functions are. All of these are defined for any summary, also one that contradicts itself.

/// Whose functions a unit calls.
inline const bundle::UnitClass &classOf(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit) {
  const bool exists = unit.class_id() < static_cast<uint32_t>(summary.classes_size());
  return exists ? summary.classes(static_cast<int>(unit.class_id())) : bundle::UnitClass::default_instance();
}
/// nullptr: the class has no such function.
inline const bundle::UnitFunction *findFunction(const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task) {
  for (const bundle::UnitFunction &function : unitClass.functions())
    if (function.task() == task)
      return &function;
  return nullptr;
}
/// One without sizes and costs where the class has none.
inline const bundle::UnitFunction &functionOf(const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task) {
  const bundle::UnitFunction *function = findFunction(unitClass, task);
  return function ? *function : bundle::UnitFunction::default_instance();
}
inline const bundle::UnitFunction &functionOf(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit, bundle::UnitFunction::Task task) {
  return functionOf(classOf(summary, unit), task);
}
/// The name of a class's function: "mlp.backward_inputs".
std::string functionName(const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task);
/// FLOPs of the forward and the backward of one row.
inline double trainingFlops(const bundle::UnitClass &unitClass) {
  return functionOf(unitClass, bundle::UnitFunction::FORWARD).flops_per_row() + functionOf(unitClass, bundle::UnitFunction::BACKWARD).flops_per_row();
}

/// State groups whose parameters a unit uses, ascending.
std::vector<uint32_t> groupsOfUnit(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit);

} // namespace zorse
