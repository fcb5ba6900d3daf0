// Reads single fields of a cluster file: numbers with units, names. Errors contain the position,
// the expected and the found value, and a fix.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace zorse::planning::fields {

/// Error of the reader; never leaves it.
struct FieldError {
  std::string message;
};

[[noreturn]] void fail(const YAML::Node &node, const std::string &message);

/// Describes a node for messages: 'text', a list, a mapping, nothing.
std::string show(const YAML::Node &node);

/// Checks that a node is a mapping without unknown or repeated keys. The error for an unknown key
/// suggests the nearest known key.
void checkKeys(const YAML::Node &node, const std::string &what,
               std::initializer_list<const char *> known);

/// Returns "; did you mean 'x'?" if `name` is close to a known name, else "".
std::string suggestion(const std::string &name, const std::vector<std::string> &known);

/// Returns at most twelve of the names, separated by commas.
std::string listed(const std::vector<std::string> &names);

// Numbers. All are finite; messages contain the valid range.
double toSpeed(const YAML::Node &node, const std::string &what, bool zero = false); ///< FLOP/s
double toBandwidth(const YAML::Node &node, const std::string &what,
                   bool link = false); ///< bytes/s, > 0; "unlimited" is 0
double toSeconds(const YAML::Node &node, const std::string &what);
double toPrice(const YAML::Node &node, const std::string &what);
double toRows(const YAML::Node &node, const std::string &what);
double toSlowdown(const YAML::Node &node, const std::string &what);
/// Bytes; 0 is accepted only if `zero`.
uint64_t toBytes(const YAML::Node &node, const std::string &what, bool zero, double min = 65536);
bool toFlag(const YAML::Node &node, const std::string &what);
uint32_t toCount(const YAML::Node &node, const std::string &what, uint32_t max);
/// Reads a name. Names become parts of file names: no slashes or control characters, and at most
/// 200 bytes.
std::string toName(const YAML::Node &node, const std::string &what,
                   bool spaces = false); ///< spaces are accepted only if `spaces`

/// A mapping, and the template that it refers to.
class Fields {
public:
  Fields(const YAML::Node &own, const YAML::Node &base) : own(own), base(base) {}
  /// Returns the field of the mapping, or else of its template; undefined if neither has it.
  YAML::Node operator[](const char *key) const;
  const YAML::Node &node() const { return own; }

private:
  const YAML::Node own, base;
};

} // namespace zorse::planning::fields
