#include "Renaming.h"

#include <algorithm>
#include <map>

using namespace zorse::runtime;

namespace {

constexpr size_t kMaxTried = 16;

/// Calls `visit(beginning including the dot, rest)` for every dot in a name.
template <typename Visit> void eachSplit(const std::string &name, Visit visit) {
  for (size_t dot = name.find('.'); dot != std::string::npos && dot + 1 < name.size();
       dot = name.find('.', dot + 1))
    visit(name.substr(0, dot + 1), name.substr(dot + 1));
}

} // namespace

std::string Renaming::apply(const std::string &name) const {
  if (kind == Kind::More)
    return prefix + name;
  if (kind == Kind::Less && name.compare(0, prefix.size(), prefix) == 0)
    return name.substr(prefix.size());
  return name;
}

std::string Renaming::text() const {
  return kind == Kind::None   ? "names as they are"
         : kind == Kind::More ? "its names begin with '" + prefix + "', which is left out"
                              : "its names do not begin with '" + prefix + "', which is added";
}

std::vector<Renaming> zorse::runtime::possibleRenamings(const std::set<std::string> &names,
                                                        const std::set<std::string> &there) {
  std::map<std::pair<Renaming::Kind, std::string>, size_t> counts;
  for (const std::string &name : names)
    eachSplit(name, [&](const std::string &prefix, const std::string &rest) {
      if (there.count(rest))
        ++counts[{Renaming::Kind::Less, prefix}];
    });
  for (const std::string &name : there)
    eachSplit(name, [&](const std::string &prefix, const std::string &rest) {
      if (names.count(rest))
        ++counts[{Renaming::Kind::More, prefix}];
    });
  std::vector<std::pair<size_t, Renaming>> found;
  found.reserve(counts.size());
  for (const auto &[change, count] : counts)
    found.push_back({count, {change.first, change.second}});
  std::stable_sort(found.begin(), found.end(),
                   [](const auto &a, const auto &b) { return a.first > b.first; });
  std::vector<Renaming> out{{}};
  for (size_t i = 0; i < found.size() && i < kMaxTried; ++i)
    out.push_back(found[i].second);
  return out;
}

bool zorse::runtime::isEnd(const std::string &one, const std::string &other) {
  const std::string &longer = one.size() >= other.size() ? one : other,
                    &shorter = one.size() >= other.size() ? other : one;
  return longer.size() == shorter.size()
             ? longer == shorter
             : longer[longer.size() - shorter.size() - 1] == '.' &&
                   longer.compare(longer.size() - shorter.size(), shorter.size(), shorter) == 0;
}
