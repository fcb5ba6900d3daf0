// Conversion of the step graph to the programs that the runtime reads. This is the only writer of
// bundle::Program.
#pragma once

#include "zorse/Step/StepGraph.h"

namespace zorse::step {

/// Writes the program of `device`. Calls bind exactly the arguments that their functions have;
/// empty regions and values of kind NONE are absent fields. Fails if a call refers to no function,
/// or if its function has an argument for which the step has no buffer.
/// \param out  empty; on an arena, messages need no separate allocations
Status writeProgram(const StepGraph &graph, uint32_t device,
                    const bundle::FunctionLibrary &functions, bundle::Program &out);
/// As above, without an arena.
Result<bundle::Program> writeProgram(const StepGraph &graph, uint32_t device,
                                     const bundle::FunctionLibrary &functions);

} // namespace zorse::step
