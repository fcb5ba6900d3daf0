// Parses numeric options of test programs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace zorse::test {

/// Parses "--name=NUMBER" into `target`. Returns false if `word` is another option.
template <typename T> bool numberOption(const char *word, const char *name, T &target) {
  size_t length = std::strlen(name);
  if (std::strncmp(word, name, length) != 0 || word[length] != '=')
    return false;
  target = static_cast<T>(std::atoll(word + length + 1));
  return true;
}

} // namespace zorse::test
