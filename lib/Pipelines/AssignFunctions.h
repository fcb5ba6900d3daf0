// Assigns compiled functions to functions, equally on all targets.
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Step/Plan.h"
#include "zorse/Units/Units.h"

#include <set>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// Makes the compiled functions of all targets equal in the properties that programs, plan and
/// verifier use:
/// arguments, and the workspace, which becomes the largest of all targets. Adds the compiled
/// functions that are not functions.
/// \param sumTerms  see appendBuiltinFunctions
/// \returns what differs, which is a bug; empty: nothing
std::string levelTargets(mlir::MLIRContext *context,
                         std::vector<codegen::CompiledFunctions> &targets,
                         const bundle::ModelSummary &summary, uint32_t sumTerms);

/// Sets the compiled function and workspace of each function in the summary.
void nameFunctions(bundle::ModelSummary &summary, const bundle::FunctionLibrary &library);

/// Returns the compiled functions of parts of backwards and forwards, and of sums of rounded terms,
/// that the plan does not call.
std::set<std::string> unusedParts(const bundle::ModelSummary &summary, const step::Plan &plan);

} // namespace zorse::pipelines
