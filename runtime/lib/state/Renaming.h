// Differences of name prefixes. Wrappers add a prefix to every name ("module.", "_orig_mod."), and
// a base model's names do not have the prefix of its head's ("transformer.").
#pragma once

#include <set>
#include <string>
#include <vector>

namespace zorse::runtime {

/// One change of the prefix of all names.
struct Renaming {
  enum class Kind : uint8_t { None, Less, More };
  Kind kind = Kind::None;
  std::string prefix = {}; ///< ends with a dot

  bool isNone() const { return kind == Kind::None; }
  /// The name in the file of the tensor `name`.
  std::string apply(const std::string &name) const;
  /// Description for messages.
  std::string text() const;
};

/// A few changes for which some of `names` are in `there`: no change first, then by the number of
/// matching names.
std::vector<Renaming> possibleRenamings(const std::set<std::string> &names,
                                        const std::set<std::string> &there);

/// Whether the names are equal, or one ends with a dot and the other.
bool isEnd(const std::string &one, const std::string &other);

} // namespace zorse::runtime
