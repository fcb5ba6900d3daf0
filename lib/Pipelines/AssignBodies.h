// Which body each function became.
#pragma once

#include "zorse/Codegen/Codegen.h"
#include "zorse/Step/Plan.h"
#include "zorse/Units/Units.h"

namespace zorse::pipelines {

/// Adds the bodies that are not functions and tells the summary which body each function became.
/// \param sumTerms  as appendBuiltinBodies takes it
void assignBodies(bundle::ModelSummary &summary, codegen::CompiledBodies &bodies, std::vector<codegen::CompiledBodies> &others, uint32_t sumTerms = 0);

/// Removes the parts of backwards and forwards that no task of the plan calls: their kernels need not be compiled. The summary still says what they
/// would cost.
/// \param split  keep the parts of split backwards, whatever the plan says
void dropUnusedParts(bundle::ModelSummary &summary, const step::Plan &plan, bool split, codegen::CompiledBodies &bodies,
                     std::vector<codegen::CompiledBodies> &others);

} // namespace zorse::pipelines
