// How tools read numbers on their command lines: as they are written, or not at all. CLI11 alone takes "nan" for a number that is not negative, and
// what is beyond 64 bits for the largest number.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace zorse {

/// A finite number of at least 0.
inline CLI::Validator finiteNumber() {
  return CLI::Validator(
      [](std::string &text) -> std::string {
        double value = 0;
        auto [end, error] = std::from_chars(text.data() + (!text.empty() && text[0] == '+'), text.data() + text.size(), value);
        bool good = error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
        return good ? "" : "expects a finite number of at least 0, got '" + text + "'";
      },
      "");
}

/// An integer from 0 to `largest`, in decimal digits.
inline CLI::Validator wholeNumber(uint64_t largest = UINT64_MAX) {
  return CLI::Validator(
      [largest](std::string &text) -> std::string {
        uint64_t value = 0;
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        bool good = error == std::errc() && end == text.data() + text.size() && value <= largest;
        return good ? "" : "expects a whole number from 0 to " + std::to_string(largest) + ", got '" + text + "'";
      },
      "");
}

} // namespace zorse
