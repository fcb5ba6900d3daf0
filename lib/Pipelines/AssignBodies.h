// Which body each function became, on all targets alike.
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Step/Plan.h"
#include "zorse/Units/Units.h"

#include <vector>

namespace zorse::pipelines {

/// Makes the bodies of all targets alike, as programs, plan and verifier know one of each: gives them equal slots and the largest workspace of all,
/// and adds the bodies that are not functions.
/// \param sumTerms  as appendBuiltinBodies takes it
void levelTargets(mlir::MLIRContext *context, std::vector<codegen::CompiledBodies> &targets, const bundle::ModelSummary &summary, uint32_t sumTerms);

/// Tells the summary which body of the library each function is, and its workspace.
void nameBodies(bundle::ModelSummary &summary, const bundle::BodyLibrary &library);

/// Removes the parts of backwards and forwards that no task of the plan calls from all targets: their kernels need not be compiled. The summary still
/// says what they would cost.
/// \param split  keep the parts of split backwards, whatever the plan says
void dropUnusedParts(bundle::ModelSummary &summary, const step::Plan &plan, bool split, std::vector<codegen::CompiledBodies> &targets);

} // namespace zorse::pipelines
