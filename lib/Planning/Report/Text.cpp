#include "Text.h"

#include <algorithm>

using namespace zorse::planning;

std::string TextTable::print(std::vector<size_t> left) const {
  std::vector<size_t> widths;
  for (const auto &row : rows)
    for (size_t c = 0; c < row.size(); ++c) {
      widths.resize(std::max(widths.size(), c + 1), 0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  std::string out;
  for (const auto &row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string fill(widths[c] - row[c].size(), ' ');
      const bool toLeft = c == 0 || std::find(left.begin(), left.end(), c) != left.end();
      line += " " + (toLeft ? row[c] + fill : fill + row[c]) + (c + 1 < row.size() ? " " : "");
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}
