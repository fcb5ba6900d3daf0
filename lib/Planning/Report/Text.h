// Numbers as people read them; shared by the tables, the page and the reasons. Internal.
#pragma once

#include "zorse/Step/ShowBytes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

std::string showSeconds(double seconds);     ///< "1.234 s", "56.7 ms", "8.9 us"
using step::showBytes;                       ///< "12.3 GiB"
std::string showRate(double bytesPerSecond); ///< "6.0 GB/s"
std::string showPercent(double share);       ///< "97.1 %"
std::string showCount(double number);        ///< "12.3k", "4.5M"

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
