// Text tables. Internal.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace zorse::planning {

/// Aligned columns: the first to the left, the others to the right. An empty row is a rule.
class TextTable {
public:
  void add(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  /// \param left  columns that are also left-aligned, in addition to the first
  std::string print(std::vector<size_t> left = {}) const;

private:
  std::vector<std::vector<std::string>> rows;
};

} // namespace zorse::planning
