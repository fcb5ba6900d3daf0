#pragma once

#include "zorse/Pipelines/Compile.h"

#include <string>

namespace zorse::pipelines {

/// What is wrong with options and files that are cheap to look at, before minutes are spent on the model and the search; empty if nothing is. What
/// only the model can tell (a plan's units, a profile's classes) is found later.
std::string problemAtStart(const CompileOptions &options);

} // namespace zorse::pipelines
