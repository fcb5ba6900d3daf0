#include "Variant.h"

#include "Problem.h"

using namespace zorse::codegen::cuda;

std::optional<int> zorse::codegen::cuda::tileColumns(int64_t size) {
  if (size < 8 || size % 8)
    return std::nullopt;
  for (int columns : {32, 64, 80, 96, 128, 256})
    if (size <= columns)
      return columns;
  return std::nullopt;
}

/// Masks, softcaps and random numbers need registers. Heads of 128 elements on sm_120 do as well:
/// with larger tiles, ptxas spills.
static bool sparesRegisters(const AttentionProblem &problem) {
  return !problem.isRegular() || (*tileColumns(problem.size) == 128 && problem.capability >= 120);
}

Variant zorse::codegen::cuda::forwardVariant(const AttentionProblem &problem) {
  const int columns = *tileColumns(problem.size);
  if (sparesRegisters(problem))
    return {64, columns == 256 ? 16 : 32, 0, Schedule::TwoStages, 1};
  switch (columns) {
  case 32:
  case 64:
    return {128, 32, 1, Schedule::Pipelined, 1};
  case 80:
  case 96:
    return {128, 32, 0, Schedule::TwoStages, 1};
  case 128:
    // The larger tile is faster. It spills a few registers with anything except a plain causal
    // mask, and on sm_90 with that as well.
    if (problem.options.causal && !problem.options.window && problem.capability < 90)
      return {128, 48, 0, Schedule::OneStage, 1};
    return {128, 32, 0, Schedule::TwoStages, 1};
  default:
    return {64, 32, 0, Schedule::OneStage, 1};
  }
}

Variant zorse::codegen::cuda::keyGradientVariant(const AttentionProblem &problem) {
  const int columns = *tileColumns(problem.size);
  if (columns == 256)
    return {64, 16, 0, Schedule::TwoStages, 2};
  if (sparesRegisters(problem))
    return {64, columns == 128 ? 16 : 32, 0, Schedule::TwoStages, 1};
  if (columns <= 64)
    return {128, 32, 0, Schedule::TwoStages, 1};
  return {64, 32, 2, Schedule::TwoStages, 1};
}

Variant zorse::codegen::cuda::queryGradientVariant(const AttentionProblem &problem) {
  const int columns = *tileColumns(problem.size);
  if (columns == 256)
    return {64, 16, 0, Schedule::TwoStages, 1};
  if (sparesRegisters(problem))
    return {64, 32, 0, Schedule::TwoStages, 1};
  if (columns <= 64)
    return {128, 32, 1, Schedule::TwoStages, 1};
  return {128, 32, 0, Schedule::TwoStages, 1};
}
