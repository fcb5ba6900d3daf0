// Flags and values that earlier versions spelled differently.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

namespace zorse {

/// Returns the present names of an option that earlier versions called `name` (both without
/// dashes), for example "threads" -> "num-threads", "in-process": which one is meant depends on the
/// tool. Empty if `name` was never an option.
std::vector<std::string> presentNames(const std::string &name);

/// Returns all old names.
std::vector<std::string> renamedNames();

/// Returns why the option that was called `name` is gone; empty if it is not.
std::string whyRemoved(const std::string &name);

/// A check that refuses old values of an option and names the new ones: {{"copy", "embed"}}.
CLI::Validator renamedValues(std::vector<std::pair<std::string, std::string>> oldToNew);

} // namespace zorse
