// What the pictures of zorse-inspect are made of: colours where a terminal shows them, bars, tables, amounts as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::inspect {

/// Columns of the terminal, or 110.
int terminalWidth();

/// Colours are used on a terminal, unless NO_COLOR is set.
bool colours();

/// Text in a colour that stays the same for the same number (devices, cells).
std::string coloured(const std::string &text, unsigned number);
/// The same as background.
std::string onColour(const std::string &text, unsigned number);
std::string bold(const std::string &text);
std::string dim(const std::string &text);

/// "1.5 MiB", "640 B".
std::string bytes(double amount);
/// "1.2 G", "740 k": powers of thousand.
std::string amount(double value);
/// "97 %".
std::string percent(double share);

/// A bar of `width` columns, `share` of it filled.
std::string bar(double share, int width);

/// Columns a text takes: UTF-8 characters, escape sequences not counted.
int columnsOf(const std::string &text);
/// Pads with spaces to `width` columns, or cuts with "…".
std::string fit(const std::string &text, int width, bool right = false);

/// Rows of texts with aligned columns, the first row as head. A column whose head starts with '>' is right-aligned.
void printTable(const std::vector<std::vector<std::string>> &rows);

} // namespace zorse::inspect
