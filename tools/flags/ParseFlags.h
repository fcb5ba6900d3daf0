#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// Reads the command line of `tool`. Returns the exit code if the tool is done: 0 after --help and --version, 1 after an error, which was printed
/// with the flags that a misspelt one may mean.
std::optional<int> parseFlags(CLI::App &app, int argc, char **argv, const char *tool);

/// The nearest of `known` to `given`; empty if none is near.
std::string nearestName(const std::vector<std::string> &known, const std::string &given);

} // namespace zorse
