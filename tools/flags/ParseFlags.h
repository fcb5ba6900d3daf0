#pragma once

#include <CLI/CLI.hpp>

#include <optional>

namespace zorse {

/// Parses the command line of `tool` and the file given by --config (ConfigFile.h). Returns the
/// exit code if the tool should exit: 0 after --help or --version, 1 after an error. The error is
/// printed with suggestions for misspelled flags.
std::optional<int> parseFlags(CLI::App &app, int argc, char **argv, const char *tool);

} // namespace zorse
