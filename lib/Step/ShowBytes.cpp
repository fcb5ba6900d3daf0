#include "zorse/Step/ShowBytes.h"

#include <cmath>
#include <cstdio>
#include <iterator>

std::string zorse::step::showBytes(double bytes) {
  const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t i = 0;
  while (std::fabs(bytes) >= 1023.5 && i + 1 < std::size(units)) {
    bytes /= 1024;
    ++i;
  }
  char text[40];
  std::snprintf(text, sizeof text, i == 0 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
  return text;
}
