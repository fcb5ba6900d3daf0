// Which body each function became, on all targets alike.
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Step/Plan.h"
#include "zorse/Units/Units.h"

#include <set>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// Makes the bodies of all targets alike, as programs, plan and verifier know one of each: gives them equal slots and the largest workspace of all,
/// and adds the bodies that are not functions.
/// \param sumTerms  as appendBuiltinBodies takes it
void levelTargets(mlir::MLIRContext *context, std::vector<codegen::CompiledBodies> &targets, const bundle::ModelSummary &summary, uint32_t sumTerms);

/// Tells the summary which body of the library each function is, and its workspace.
void nameBodies(bundle::ModelSummary &summary, const bundle::BodyLibrary &library);

/// Bodies of parts of backwards and forwards that no task of the plan calls. \param split  not those of parts of split backwards
std::set<std::string> unusedParts(const bundle::ModelSummary &summary, const step::Plan &plan, bool split);

} // namespace zorse::pipelines
