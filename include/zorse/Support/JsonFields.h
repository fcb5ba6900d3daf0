// Helpers for reading JSON files written by users. Every error contains the position in the file,
// the expected value and the value found.
#pragma once

#include "zorse/Base/Status.h"
#include "zorse/Support/ShallowJson.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zorse::fields {

using Json = nlohmann::json;

/// Thrown by all functions below except `read`, which catches it.
struct JsonError {
  std::string path, message; ///< path: "cells[3].units"; empty: the whole file
};

[[noreturn]] inline void fail(const std::string &path, const std::string &message) {
  throw JsonError{path, message};
}

inline std::string at(const std::string &path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

/// Formats a value for messages, the outer levels only: dump() is recursive, and a malicious file
/// may have a million nested levels.
inline std::string show(const Json &value, int depth = 0) {
  if (!value.is_structured()) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }
  std::string text = value.is_array() ? "[" : "{";
  const char *separator = "";
  for (auto &[key, item] : value.items()) {
    if (text.size() > 60 || depth > 3) {
      text += "...";
      break;
    }
    text += separator + (value.is_array() ? std::string() : "\"" + key + "\":") +
            show(item, depth + 1);
    separator = ",";
  }
  text += value.is_array() ? "]" : "}";
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

/// Keys of an older format: the old name and the new one.
using RenamedKeys = std::vector<std::pair<const char *, const char *>>;

/// Refuses keys that are not in `known`. \param renamed  old keys, for which the message names the
/// new key
inline void checkKeys(const Json &object, const std::string &path,
                      const std::vector<const char *> &known, const RenamedKeys &renamed = {}) {
  if (!object.is_object())
    fail(path, "expected an object, got " + show(object));
  for (auto &[key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end())
      continue;
    for (auto &[old, now] : renamed)
      if (key == old && std::any_of(known.begin(), known.end(), [now = now](const char *k) {
            return std::string_view(k) == now;
          }))
        fail(path, "key " + show(key) + " is now \"" + now + "\"");
    std::string list;
    for (const char *k : known)
      list += std::string(list.empty() ? "" : ", ") + k;
    fail(path, "unknown key " + show(key) + "; known are " + list);
  }
}

/// Moves a value from an old key to the new one, unless the object has the new one.
inline void renameKey(Json &object, const char *old, const char *now) {
  if (!object.is_object() || !object.contains(old) || object.contains(now))
    return;
  Json value = std::move(object[old]);
  object.erase(old);
  object[now] = std::move(value);
}

inline int64_t toInteger(const Json &value, const std::string &path) {
  if (!value.is_number_integer())
    fail(path, "expected a whole number, got " + show(value));
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    fail(path, "expected a whole number below 2^63, got " + show(value));
  return value.get<int64_t>();
}

inline int64_t toInteger(const Json &value, const std::string &path, int64_t min, int64_t max) {
  int64_t number = toInteger(value, path);
  if (number < min || number > max)
    fail(path, "expected a whole number from " + std::to_string(min) + " to " +
                   std::to_string(max) + ", got " + show(value));
  return number;
}

/// \param what  the quantity, for messages: "a number", "seconds"
inline double toNumber(const Json &value, const std::string &path, double min = 0,
                       double max = 1e30, const char *what = "a number") {
  if (!value.is_number() || !(value.get<double>() >= min && value.get<double>() <= max)) {
    char text[120];
    std::snprintf(text, sizeof text, "expected %s from %g to %g, got ", what, min, max);
    fail(path, text + show(value));
  }
  return value.get<double>();
}

inline std::string toText(const Json &value, const std::string &path, bool mayBeEmpty = true) {
  if (!value.is_string() || (value.get_ref<const std::string &>().empty() && !mayBeEmpty))
    fail(path, "expected a text" + std::string(mayBeEmpty ? "" : " that is not empty") + ", got " +
                   show(value));
  return value.get<std::string>();
}

inline const Json &toArray(const Json &value, const std::string &path, size_t max = SIZE_MAX) {
  if (!value.is_array() || value.size() > max)
    fail(path, "expected an array" +
                   (max == SIZE_MAX ? std::string() : " of at most " + std::to_string(max)) +
                   ", got " + show(value));
  return value;
}

inline std::pair<int64_t, int64_t> toRange(const Json &value, const std::string &path) {
  if (!value.is_array() || value.size() != 2)
    fail(path, "expected [begin, end], got " + show(value));
  return {toInteger(value[0], path + "[0]"), toInteger(value[1], path + "[1]")};
}

/// Returns the index of the name that the object has under this key. \param otherwise  returned if
/// the key is missing
inline size_t toChoice(const Json &object, const std::string &path, const char *key,
                       std::initializer_list<const char *> names, size_t otherwise) {
  const auto value = object.find(key);
  if (value == object.end())
    return otherwise;
  const std::string where = (path.empty() ? "" : path + ".") + key, name = toText(*value, where);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end())
    return static_cast<size_t>(found - names.begin());
  std::string expected;
  for (size_t i = 0; i < names.size(); ++i)
    expected += (i == 0                  ? "\""
                 : i + 1 == names.size() ? " or \""
                                         : ", \"") +
                std::string(names.begin()[i]) + "\"";
  fail(where, "expected " + expected + ", got " + show(*value));
}

/// A key of an object that is true or false. \param otherwise  without the key
inline bool toSwitch(const Json &object, const std::string &path, const char *key, bool otherwise) {
  const auto value = object.find(key);
  if (value == object.end())
    return otherwise;
  if (!value->is_boolean())
    fail((path.empty() ? "" : path + ".") + key, "expected true or false, got " + show(*value));
  return value->get<bool>();
}

/// Calls `readItem` for every item of an array. Its paths begin at the item: the whole path is made
/// only where something is wrong.
template <typename ReadItem>
void forEach(const Json &value, const std::string &path, ReadItem readItem) {
  size_t index = 0;
  for (const Json &item : toArray(value, path)) {
    try {
      readItem(item);
    } catch (const JsonError &error) {
      fail(at(path, index) + (error.path.empty() ? "" : ".") + error.path, error.message);
    }
    ++index;
  }
}

constexpr int kMaxNesting = 64; ///< levels of lists and objects in a file

/// Parses the text and returns the result of `make`. Comments are allowed.
/// \param name  what the file contains, for messages: "the plan"
template <typename Make>
auto read(std::string_view text, const char *name, size_t maxBytes, Make make)
    -> Result<decltype(make(Json()))> {
  if (text.size() > maxBytes)
    return userError(std::string(name) + ": expected at most " + std::to_string(maxBytes >> 20) +
                     " MiB, got " + std::to_string(text.size()) + " bytes");
  if (nestsDeeper(text, kMaxNesting))
    return userError(std::string(name) + ": expected at most " + std::to_string(kMaxNesting) +
                     " nested lists and objects, got more");
  try {
    return make(Json::parse(text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true));
  } catch (const Json::parse_error &e) {
    size_t until = std::min(e.byte ? e.byte - 1 : 0, text.size());
    size_t line = 1 + std::count(text.begin(), text.begin() + until, '\n');
    size_t lineStart = text.rfind('\n', until ? until - 1 : 0);
    size_t column = until -
                    (lineStart == std::string_view::npos || until == 0 ? 0 : lineStart + 1) + 1;
    return userError("line " + std::to_string(line) + ", column " + std::to_string(column) +
                     ": not valid JSON");
  } catch (const Json::exception &e) {
    return userError(std::string(name) + ": " + e.what());
  } catch (const JsonError &error) {
    return userError((error.path.empty() ? name : error.path) + ": " + error.message);
  }
}

} // namespace zorse::fields
