// Messages about a plan, one per line. Internal to lib/Step.
#pragma once

#include <cstddef>
#include <string>

namespace zorse::step {

class Messages {
public:
  void add(const std::string &message) {
    if (++count <= kMax)
      text += (text.empty() ? "" : "\n") + message;
  }
  bool empty() const { return count == 0; }
  std::string take() {
    if (count > kMax)
      text += "\n... and " + std::to_string(count - kMax) + " more";
    return text;
  }

private:
  static constexpr size_t kMax = 20;
  size_t count = 0;
  std::string text;
};

} // namespace zorse::step
