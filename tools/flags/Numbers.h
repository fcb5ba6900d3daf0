// Strict number validators for command lines. CLI11 alone accepts "nan" as a nonnegative number and
// clamps integers beyond 64 bits to the largest one.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace zorse {

/// Accepts a finite number >= 0, or any finite number.
inline CLI::Validator finiteNumber(bool anySign = false) {
  return CLI::Validator(
      [anySign](std::string &text) -> std::string {
        double value = 0;
        auto [end, error] = std::from_chars(text.data() + (!text.empty() && text[0] == '+'),
                                            text.data() + text.size(), value);
        bool good = error == std::errc() && end == text.data() + text.size() &&
                    std::isfinite(value) && (anySign || value >= 0);
        return good ? ""
                    : std::string("expects a finite number") + (anySign ? "" : " of at least 0") +
                          ", got '" + text + "'";
      },
      "");
}

/// Accepts an integer from 0 to `largest`, in decimal digits.
inline CLI::Validator wholeNumber(uint64_t largest = UINT64_MAX) {
  return CLI::Validator(
      [largest](std::string &text) -> std::string {
        uint64_t value = 0;
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        bool good = error == std::errc() && end == text.data() + text.size() && value <= largest;
        return good ? ""
                    : "expects a whole number from 0 to " + std::to_string(largest) + ", got '" +
                          text + "'";
      },
      "");
}

} // namespace zorse
