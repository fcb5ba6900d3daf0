// Tables of text. Internal.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace zorse::planning {

/// Columns aligned, the first to the left, the others to the right; an empty row is a rule.
class TextTable {
public:
  void add(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  /// Columns that are aligned to the left besides the first.
  std::string print(std::vector<size_t> left = {}) const;

private:
  std::vector<std::vector<std::string>> rows;
};

} // namespace zorse::planning
