// Messages about a plan, one per line. Internal to lib/Step.
#pragma once

#include <cstddef>
#include <string>

namespace zorse::step {

class Messages {
public:
  void add(const std::string &message) {
    if (++count <= kMost)
      text += (text.empty() ? "" : "\n") + message;
  }
  bool empty() const { return count == 0; }
  std::string take() {
    if (count > kMost)
      text += "\n... and " + std::to_string(count - kMost) + " more";
    return text;
  }

private:
  static constexpr size_t kMost = 20;
  size_t count = 0;
  std::string text;
};

} // namespace zorse::step
