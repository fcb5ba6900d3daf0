#include "zorse/Base/Format.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <iterator>

std::string zorse::format(const char *pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::string zorse::showBytes(double bytes) {
  const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t i = 0;
  while (std::fabs(bytes) >= 1023.5 && i + 1 < std::size(units)) {
    bytes /= 1024;
    ++i;
  }
  return format(i == 0 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
}

std::string zorse::showSeconds(double seconds) {
  if (seconds == 0)
    return "0 s";
  const double size = std::fabs(seconds);
  return size >= 0.9995      ? format("%.4g s", seconds)
         : size >= 0.9995e-3 ? format("%.4g ms", seconds * 1e3)
                             : format("%.3g us", seconds * 1e6);
}

std::string zorse::showDuration(double seconds) {
  return seconds >= 1      ? format("%.2f s", seconds)
         : seconds >= 1e-3 ? format("%.2f ms", seconds * 1e3)
                           : format("%.1f us", seconds * 1e6);
}

std::string zorse::showRate(double rate) {
  return rate >= 0.9995e9 ? format("%.3g GB/s", rate / 1e9) : format("%.3g MB/s", rate / 1e6);
}

std::string zorse::showPercent(double share) { return format("%.1f %%", 100 * share); }

std::string zorse::showCount(double number) {
  return number >= 0.9995e9   ? format("%.4gG", number / 1e9)
         : number >= 0.9995e6 ? format("%.4gM", number / 1e6)
         : number >= 9.995e3  ? format("%.4gk", number / 1e3)
                              : format("%.4g", number);
}
