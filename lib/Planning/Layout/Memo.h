// Results of a function that were computed before. Internal to Planning.
#pragma once

#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace zorse::planning {

/// The arguments of a function, as bytes. Arguments of variable length are preceded by their
/// length, so that different arguments have different keys.
class MemoKey {
public:
  template <typename T> MemoKey &add(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>, "structures may have padding");
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    return *this;
  }
  void clear() { bytes.clear(); }
  const std::string &text() const { return bytes; }

private:
  std::string bytes;
};

/// Remembers results. Searches propose the same neighbors again and again; a remembered result
/// changes no plan. Not thread-safe: one per thread. References to results stay valid.
template <typename Value> class Memo {
public:
  /// Returns the remembered result, or null.
  const Value *find(const MemoKey &key) const {
    const auto at = results.find(key.text());
    return at == results.end() ? nullptr : &at->second;
  }
  const Value &keep(const MemoKey &key, Value value) {
    return results.emplace(key.text(), std::move(value)).first->second;
  }

private:
  std::unordered_map<std::string, Value> results;
};

} // namespace zorse::planning
