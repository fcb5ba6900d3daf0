#pragma once

#include <CLI/CLI.hpp>

#include <optional>

namespace zorse {

/// Reads the command line of `tool`, and the file that its --config names (ConfigFile.h). Returns the exit code if the tool is done: 0 after --help
/// and --version, 1 after an error, which was printed with the flags that a misspelt one may mean.
std::optional<int> parseFlags(CLI::App &app, int argc, char **argv, const char *tool);

} // namespace zorse
