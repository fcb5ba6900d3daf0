// Wrappers put something in front of every name ("module.", "_orig_mod."), and a base model's names lack what its head's have ("transformer.").
#pragma once

#include <set>
#include <string>
#include <vector>

namespace zorse::runtime {

/// One change of the beginning of all names.
struct Renaming {
  enum class Kind : uint8_t { None, Less, More };
  Kind kind = Kind::None;
  std::string prefix = {}; ///< ends with a dot

  bool isNone() const { return kind == Kind::None; }
  /// The name that the tensor called `name` has in the file.
  std::string apply(const std::string &name) const;
  /// For people.
  std::string text() const;
};

/// Changes under which some of `names` are among `there`; no change first, then those of most names, at most a few.
std::vector<Renaming> possibleRenamings(const std::set<std::string> &names, const std::set<std::string> &there);

/// Whether one name is the other, or ends with it behind a dot.
bool isEnd(const std::string &one, const std::string &other);

} // namespace zorse::runtime
