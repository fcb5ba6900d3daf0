// MLIR's own options on the command line of zorse-compile.
#pragma once

#include <vector>

namespace zorse::pipelines {

/// Takes the words that begin with --mlir- from a command line (argv[0] stays) and sets MLIR's options by them, so that contexts and pass managers
/// made afterwards follow them. Options have their value behind `=`. Ends the process with a message where MLIR knows no such option.
/// \returns whether there was any
bool takeMlirFlags(std::vector<char *> &arguments);

} // namespace zorse::pipelines
