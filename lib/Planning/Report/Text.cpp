#include "Text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

using namespace zorse::planning;

std::string zorse::planning::format(const char *pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string zorse::planning::showSeconds(double seconds) {
  if (seconds == 0)
    return "0 s";
  const double size = std::fabs(seconds);
  return size >= 0.9995 ? format("%.4g s", seconds) : size >= 0.9995e-3 ? format("%.4g ms", seconds * 1e3) : format("%.3g us", seconds * 1e6);
}

std::string zorse::planning::showRate(double rate) { return rate >= 0.9995e9 ? format("%.3g GB/s", rate / 1e9) : format("%.3g MB/s", rate / 1e6); }

std::string zorse::planning::showPercent(double share) { return format("%.1f %%", 100 * share); }

std::string zorse::planning::showCount(double number) {
  return number >= 0.9995e9   ? format("%.4gG", number / 1e9)
         : number >= 0.9995e6 ? format("%.4gM", number / 1e6)
         : number >= 9.995e3  ? format("%.4gk", number / 1e3)
                              : format("%.4g", number);
}

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
