// Values that follow from a model summary alone. Planning, steps, code generation and the runtime
// share these definitions. The verifier intentionally has its own.
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
  case bundle::U8:
    return 1;
  default:
    return 0;
  }
}

/// Name of a type in flags, plans and messages: "f32", "bf16", "i64", ...; "" for an unknown type.
const char *elementTypeName(bundle::ElementType type);

/// Whether the type has two bytes per element. Parameters then also have master weights in f32.
constexpr bool isHalf(bundle::ElementType type) {
  return type == bundle::BF16 || type == bundle::F16;
}

/// The result of `--precision` and `--residual`: the compute type of units, and the type to which
/// some of their values are rounded.
struct Precision {
  bundle::ElementType compute = bundle::F32;                      ///< f32, or f64 for tests
  bundle::ElementType rounded = bundle::ELEMENT_TYPE_UNSPECIFIED; ///< bf16 or f16; unspecified:
                                                                  ///< nothing is rounded
  bool wideResidual = false;                                      ///< as ModelSummary.wide_residual
  bool tf32 = false;    ///< as ModelSummary.tf32: for f32 without rounding
  bool sumsF16 = false; ///< as ModelSummary.sums_f16: for f16

  /// f16 cannot represent gradients below 6e-8, so they are scaled.
  bool needsScaling() const { return rounded == bundle::F16; }
  bool rounds() const { return rounded != bundle::ELEMENT_TYPE_UNSPECIFIED; }
  /// Returns "f32", "tf32", "bf16", "f64:bf16" (for tests: the roundings of bf16 in f64
  /// arithmetic), "f16, f32 residual, sums in f16".
  std::string name() const;
};
/// Parses the value of `--precision`, which is `name()` without the residual. Nullopt if it is not
/// a precision.
std::optional<Precision> parsePrecision(const std::string &text);
Precision precisionOf(const bundle::ModelSummary &summary);

/// Type of the operands of matrix products. It selects the device speed that applies.
bundle::ElementType productType(const bundle::ModelSummary &summary);

/// Alignment of regions bound to arguments, in bytes.
inline constexpr uint64_t kRegionAlignment = 64;
constexpr uint64_t alignRegion(uint64_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

/// Alignment in bytes of every parameter of a state group and of every owner's extent.
inline constexpr uint64_t kStateAlignment = 512;

/// Bytes of the block of step scalars: the whole block, the part of the SCALARS argument, and the
/// sums after it.
inline constexpr uint64_t kScalarsBlock = sizeof(abi::StepScalars),
                          kScalarsBytes = offsetof(abi::StepScalars, sums),
                          kSumsBytes = sizeof(abi::StepScalars::sums);

/// Samples per row of a program: more than 1 if batch norm computes its statistics over groups of
/// samples.
inline int64_t samplesPerRow(const bundle::ModelSummary &summary) {
  return summary.samples_per_row() > 1 ? summary.samples_per_row() : 1;
}

/// Whether the loss is scaled because gradients are in f16 (docs/concepts/precision.md).
inline bool scalesLoss(const bundle::ModelSummary &summary) {
  return summary.training().loss_scale() > 0;
}
/// Default number of consecutive good steps after which the loss scale is doubled, as in
/// GradScaler.
inline constexpr int64_t kLossScaleInterval = 2000;
// Sums on GPUs that exchange data directly: terms are received in GPU memory, each aligned to
// kStateAlignment, and compiled functions add them.

/// Maximum number of terms that one compiled function adds, in any bundle. Larger sums use several
/// compiled functions.
inline constexpr uint32_t kMaxSumTerms = 8;
/// Maximum number of terms that one compiled function of this model adds in a type. Compiled
/// functions for all smaller numbers from 2 on exist as well. 0: there is none.
uint32_t maxTerms(const bundle::ModelSummary &summary, bundle::ElementType type);
/// Index of the compiled function that adds `terms` terms. Precondition: 2 <= terms <= maxTerms.
uint32_t sumFunction(const bundle::ModelSummary &summary, bundle::ElementType type, uint32_t terms);
/// Distance in bytes between terms in ReduceScatter.parts.
constexpr uint64_t partStride(uint64_t chunkBytes) {
  return (chunkBytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}
/// Bytes of ReduceScatter.parts: the terms of one round, and intermediate sums passed between
/// compiled functions.
uint64_t roundPartsBytes(const bundle::ModelSummary &summary, bundle::ElementType type,
                         uint64_t terms, int64_t chunk);
/// Functions for f32 sums of terms that are rounded to bf16.
struct RoundedSumFunctions {
  uint32_t round = UINT32_MAX;       ///< rounds a term
  std::vector<uint32_t> first, next; ///< add 2, 3, ... terms; the sum so far, and 1, 2, ... terms
  /// Maximum number of terms that one function adds; 0: there is none.
  uint32_t maxTerms() const {
    return round != UINT32_MAX && !first.empty() && first.size() == next.size()
               ? static_cast<uint32_t>(first.size()) + 1
               : 0;
  }
};
RoundedSumFunctions roundedSumFunctions(const bundle::ModelSummary &summary);
/// Distance in bytes between rounded terms of `chunk` elements.
constexpr uint64_t roundedStride(int64_t chunk) {
  return partStride(static_cast<uint64_t>(chunk) * elementBytes(bundle::BF16));
}
/// Bytes of ReduceScatter.receive_buffer with rounded terms: the terms of one round, and then two
/// intermediate sums where one function cannot add all.
uint64_t roundedPartsBytes(uint32_t maxTerms, uint64_t terms, int64_t chunk);

/// Bytes of AllReduce.parts.
uint64_t sumPartsBytes(const bundle::ModelSummary &summary, uint64_t terms);

/// Bytes of the state OPTIMIZER_STEP.
inline uint64_t optimizerStepBytes(const bundle::ModelSummary &summary) {
  return scalesLoss(summary) ? sizeof(abi::OptimizerStep) : sizeof(abi::OptimizerStep::updates);
}
/// Loss scale of the first step of `batch` rows: 16 times the number of addends of the loss,
/// rounded down to a power of two. Seeds then are between 8 and 16 times their coefficient
/// (docs/concepts/precision.md).
double firstLossScale(const bundle::ModelSummary &summary, int64_t batch);

/// Returns "sum", "max" or "min"; "" for an unknown value.
const char *reduceName(bundle::Count::Reduce reduce);
std::optional<bundle::Count::Reduce> parseReduce(const std::string &name);
/// Describes the meaning of the loss in two lines (docs/reference/training.md). \param samples
/// samples per step
std::vector<std::string> describeLoss(const bundle::ModelSummary &summary, int64_t samples);

/// The wide type of a compute type, for losses and sums over rows: f64 for f64, f32 for all others.
constexpr bundle::ElementType accumulationType(bundle::ElementType computeType) {
  return computeType == bundle::F64 ? bundle::F64 : bundle::F32;
}

/// Type of a group's parameters as units read them and all-gathers transfer them.
bundle::ElementType computeType(const bundle::FlatGroupInfo &group);

int64_t elementsOf(const bundle::ParameterInfo &parameter);
/// Returns the name of a parameter in files: parts of a parameter share it.
inline const std::string &fileNameOf(const bundle::ParameterInfo &parameter) {
  return parameter.has_shard() ? parameter.shard().of() : parameter.name();
}

/// For each cut between units, from 0 to the number of units: the values live across it, ascending.
/// If `gradients`, only those that need a gradient.
std::vector<std::vector<uint32_t>> valuesAtCuts(const bundle::ModelSummary &summary,
                                                bool gradients);

// Functions of units. All of these are defined for any summary, even an inconsistent one.

/// The class of a unit, which has the functions that the unit calls.
inline const bundle::UnitClass &classOf(const bundle::ModelSummary &summary,
                                        const bundle::UnitInfo &unit) {
  const bool exists = unit.class_id() < static_cast<uint32_t>(summary.classes_size());
  return exists ? summary.classes(static_cast<int>(unit.class_id()))
                : bundle::UnitClass::default_instance();
}
/// Returns nullptr if the class has no such function.
inline const bundle::UnitFunction *findFunction(const bundle::UnitClass &unitClass,
                                                bundle::UnitFunction::Task task) {
  for (const bundle::UnitFunction &function : unitClass.functions())
    if (function.task() == task)
      return &function;
  return nullptr;
}
/// Returns a function without sizes and costs if the class has none.
inline const bundle::UnitFunction &functionOf(const bundle::UnitClass &unitClass,
                                              bundle::UnitFunction::Task task) {
  const bundle::UnitFunction *function = findFunction(unitClass, task);
  return function ? *function : bundle::UnitFunction::default_instance();
}
inline const bundle::UnitFunction &functionOf(const bundle::ModelSummary &summary,
                                              const bundle::UnitInfo &unit,
                                              bundle::UnitFunction::Task task) {
  return functionOf(classOf(summary, unit), task);
}
/// Name of a class's function, for example "mlp.backward_inputs".
std::string functionName(const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task);
/// FLOPs of the forward and the backward of one row.
inline double trainingFlops(const bundle::UnitClass &unitClass) {
  return functionOf(unitClass, bundle::UnitFunction::FORWARD).flops_per_row() +
         functionOf(unitClass, bundle::UnitFunction::BACKWARD).flops_per_row();
}

/// State groups of the parameters that a unit uses, ascending.
std::vector<uint32_t> groupsOfUnit(const bundle::ModelSummary &summary,
                                   const bundle::UnitInfo &unit);

} // namespace zorse
