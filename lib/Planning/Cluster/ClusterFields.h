// Reading of single fields of a cluster file: figures with units, names, and errors that say where, what was expected, what was found and what helps.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace zorse::planning::fields {

/// Thrown inside the reader only.
struct Bad {
  std::string message;
};

[[noreturn]] void fail(const YAML::Node &node, const std::string &message);

/// What a node is, for messages: 'text', a list, a mapping, nothing.
std::string show(const YAML::Node &node);

/// A mapping without unknown or repeated keys; an unknown one gets the nearest that there is.
void checkKeys(const YAML::Node &node, const std::string &what, std::initializer_list<const char *> known);

/// ", did you mean 'x'?" for a name that is close to one of the known ones, else "".
std::string suggestion(const std::string &name, const std::vector<std::string> &known);

/// At most twelve of them, separated by commas.
std::string listed(const std::vector<std::string> &names);

// Figures. All are finite; the range is part of the message.
double toSpeed(const YAML::Node &node, const std::string &what, bool zero = false);     ///< FLOP/s
double toBandwidth(const YAML::Node &node, const std::string &what, bool link = false); ///< bytes/s, > 0; "unlimited" is 0
double toSeconds(const YAML::Node &node, const std::string &what);
double toPrice(const YAML::Node &node, const std::string &what);
double toRows(const YAML::Node &node, const std::string &what);
/// Bytes; 0 only where `zero`.
uint64_t toBytes(const YAML::Node &node, const std::string &what, bool zero, double least = 65536);
bool toFlag(const YAML::Node &node, const std::string &what);
uint32_t toCount(const YAML::Node &node, const std::string &what, uint32_t most);
/// Names become parts of file names: no spaces, slashes or control characters, at most 200 bytes.
std::string toName(const YAML::Node &node, const std::string &what, bool spaces = false); ///< without spaces unless they are allowed

/// A mapping, and the template it stands on.
class Fields {
public:
  Fields(const YAML::Node &own, const YAML::Node &base) : own(own), base(base) {}
  /// Of the template where the mapping itself has none; undefined where neither has.
  YAML::Node operator[](const char *key) const;
  const YAML::Node &node() const { return own; }

private:
  const YAML::Node own, base;
};

} // namespace zorse::planning::fields
