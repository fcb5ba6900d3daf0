// Passes that run several phases, for zorse-opt.
#pragma once

namespace zorse::pipelines {

/// Registers `zorse-train-pipeline`, `zorse-lower-bodies` and `zorse-apply-plan` (option `plan`: a plan.json): replaces a recognised module by the
/// exec programs of all devices of the plan.
void registerPasses();

} // namespace zorse::pipelines
