#include "Terminal.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

namespace zorse::inspect {

namespace {

// Distinct colors, readable on dark and light backgrounds, ordered so that neighbors differ.
constexpr int kPalette[] = {33, 208, 71, 170, 37, 178, 131, 63, 106, 205, 30, 166};
int paletteOf(unsigned number) { return kPalette[number % (sizeof kPalette / sizeof *kPalette)]; }

std::string scaled(double value, double step, const char *const *units, int count) {
  int unit = 0;
  while (unit + 1 < count && std::fabs(value) >= step) {
    value /= step;
    ++unit;
  }
  bool whole = unit == 0 || std::fabs(value) >= 100;
  std::string text = format(whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
  while (text.back() == ' ')
    text.pop_back();
  return text;
}

} // namespace

int terminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return std::min<int>(size.ws_col, 200);
  return 110;
}

bool colours() {
  static const bool use = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  return use;
}

std::string coloured(const std::string &text, unsigned number) {
  return colours() ? "\033[38;5;" + std::to_string(paletteOf(number)) + "m" + text + "\033[0m"
                   : text;
}
std::string onColour(const std::string &text, unsigned number) {
  return colours() ? "\033[30;48;5;" + std::to_string(paletteOf(number)) + "m" + text + "\033[0m"
                   : text;
}
std::string bold(const std::string &text) {
  return colours() ? "\033[1m" + text + "\033[0m" : text;
}
std::string dim(const std::string &text) { return colours() ? "\033[2m" + text + "\033[0m" : text; }

std::string bytes(double value) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(value, 1024, units, 5);
}

std::string amount(double value) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P"};
  return scaled(value, 1000, units, 6);
}

std::string percent(double share) { return format("%.0f %%", 100 * share); }

std::string bar(double share, int width) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int steps = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width * 8));
  std::string text;
  for (int i = 0; i < steps / 8; ++i)
    text += "█";
  text += eighths[steps % 8];
  int used = steps / 8 + (steps % 8 != 0);
  std::string rest;
  for (int i = used; i < width; ++i)
    rest += "·";
  return text + dim(rest);
}

int columnsOf(const std::string &text) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm')
        ++i;
      continue;
    }
    columns += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
  }
  return columns;
}

std::string fit(const std::string &text, int width, bool right) {
  int columns = columnsOf(text);
  if (columns <= width) {
    std::string space(width - columns, ' ');
    return right ? space + text : text + space;
  }
  if (width <= 0)
    return "";
  std::string cut; // colored texts are never longer than their column
  int kept = 0;
  for (size_t i = 0; i < text.size() && kept < width; ++i) {
    bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && ++kept == width)
      break;
    cut += text[i];
  }
  return cut + "…";
}

void printTable(const std::vector<std::vector<std::string>> &rows) {
  std::vector<int> width;
  std::vector<bool> right;
  for (const auto &row : rows)
    for (size_t c = 0; c < row.size(); ++c) {
      if (c >= width.size()) {
        width.push_back(0);
        right.push_back(!row[c].empty() && row[c][0] == '>');
      }
      bool head = &row == &rows.front() && right[c];
      width[c] = std::max(width[c], columnsOf(row[c]) - head);
    }
  for (const auto &row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      bool head = &row == &rows.front();
      std::string text = head && right[c] ? row[c].substr(1) : row[c];
      bool last = c + 1 == row.size() && !right[c];
      line += " " + (last ? text : fit(text, width[c], right[c])) + " ";
    }
    while (!line.empty() && line.back() == ' ')
      line.pop_back();
    puts((&row == &rows.front() ? dim(line) : line).c_str());
  }
}

} // namespace zorse::inspect
