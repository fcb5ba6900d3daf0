// From the step graph to the programs the runtime reads: the one writer of bundle::Program.
#pragma once

#include "zorse/Step/StepGraph.h"

namespace zorse::step {

/// The program of `device`. Calls bind exactly the slots their bodies have; empty regions and values of kind NONE are absent fields. An error where a
/// call names no body, or its body has a slot for which the step has no buffer.
/// \param out  empty; on an arena, it costs no allocation per message
Status writeProgram(const StepGraph &graph, uint32_t device, const bundle::BodyLibrary &bodies, bundle::Program &out);
/// The same, not on an arena.
Result<bundle::Program> writeProgram(const StepGraph &graph, uint32_t device, const bundle::BodyLibrary &bodies);

} // namespace zorse::step
