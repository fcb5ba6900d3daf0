#include "zorse/Base/Patterns.h"

bool zorse::matchesPattern(const std::string &pattern, const std::string &name) {
  // Position of the last star, and the end of the text it matches so far. On a mismatch, the star
  // matches one more character.
  size_t p = 0, n = 0, star = std::string::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

int zorse::decidingPattern(const std::vector<std::string> &patterns, const std::string &name) {
  int best = -1;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i] == name)
      return int(i);
    if (matchesPattern(patterns[i], name) &&
        (best < 0 || patterns[i].size() > patterns[best].size()))
      best = int(i);
  }
  return best;
}
