// Human-readable numbers for messages, tables and documents.
#pragma once

#include <string>

namespace zorse {

/// Formats like printf.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

std::string showBytes(double bytes);         ///< "512 B", "12.3 GiB"
std::string showSeconds(double seconds);     ///< "1.234 s", "56.7 ms", "8.9 us"; "0 s"
std::string showDuration(double seconds);    ///< "1.23 s", "56.78 ms", "8.9 us": for table columns
std::string showRate(double bytesPerSecond); ///< "6.0 GB/s"
std::string showPercent(double share);       ///< "97.1 %"
std::string showCount(double number);        ///< "12.3k", "4.5M"

} // namespace zorse
