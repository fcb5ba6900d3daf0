// Names that a user selects by patterns.
#pragma once

#include <string>
#include <vector>

namespace zorse {

/// Whether a pattern matches a whole name; * stands for any characters.
bool matchesPattern(const std::string &pattern, const std::string &name);

/// The index of the pattern that decides about a name: an exact name takes precedence over
/// patterns, a longer pattern over a shorter one, the first of equally long ones. -1: none matches.
int decidingPattern(const std::vector<std::string> &patterns, const std::string &name);

} // namespace zorse
