// Building blocks of the views of zorse-inspect: terminal colors, bars, tables, human-readable
// amounts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::inspect {

/// Columns of the terminal; 110 if unknown.
int terminalWidth();

/// Whether to use colors: on a terminal, unless NO_COLOR is set.
bool colours();

/// Text in a color that depends only on the number (device or cell).
std::string coloured(const std::string &text, unsigned number);
/// The same with a background color.
std::string onColour(const std::string &text, unsigned number);
std::string bold(const std::string &text);
std::string dim(const std::string &text);

/// "1.5 MiB", "640 B".
std::string bytes(double amount);
/// "1.2 G", "740 k": powers of 1000.
std::string amount(double value);
/// "97 %".
std::string percent(double share);

/// A bar of `width` columns of which the fraction `share` is filled.
std::string bar(double share, int width);

/// Number of columns of a text: UTF-8 characters without escape sequences.
int columnsOf(const std::string &text);
/// Pads with spaces or truncates with "…" to `width` columns.
std::string fit(const std::string &text, int width, bool right = false);

/// Prints rows with aligned columns. The first row is the header; a header that starts with '>'
/// right-aligns its column.
void printTable(const std::vector<std::vector<std::string>> &rows);

} // namespace zorse::inspect
