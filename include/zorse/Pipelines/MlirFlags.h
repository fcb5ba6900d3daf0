// MLIR's own options on the command line of zorse-compile.
#pragma once

#include <vector>

namespace zorse::pipelines {

/// Removes the arguments that begin with --mlir- from a command line (argv[0] stays) and sets
/// MLIR's options to them. Contexts and pass managers created later use these options. Options have
/// their value after `=`. Ends the process with a message if MLIR does not know an option.
/// \returns whether there was any
bool takeMlirFlags(std::vector<char *> &arguments);

} // namespace zorse::pipelines
