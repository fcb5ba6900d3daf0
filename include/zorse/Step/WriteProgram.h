// From the step graph to the programs the runtime reads: the one writer of bundle::Program.
#pragma once

#include "zorse/Step/StepGraph.h"

namespace zorse::step {

/// The program of `device`. Calls bind exactly the slots their bodies have; empty regions and values of kind NONE are absent fields.
/// \param out  empty; on an arena, it costs no allocation per message
/// \returns false and `error` where a call names no body, or its body has a slot for which the step has no buffer.
bool writeProgram(const StepGraph &graph, uint32_t device, const bundle::BodyLibrary &bodies, bundle::Program &out, std::string &error);
/// The same; nullopt instead of false.
std::optional<bundle::Program> writeProgram(const StepGraph &graph, uint32_t device, const bundle::BodyLibrary &bodies, std::string &error);

} // namespace zorse::step
