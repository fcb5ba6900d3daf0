// Strict JSON access: a missing field or a field of a wrong type sets a message instead of throwing
// an exception.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Reads the fields of one object, which must outlive this one. Keeps the first problem.
class JsonFields {
public:
  JsonFields(const nlohmann::json &object, std::string where, std::string &problem)
      : object_(object), where_(std::move(where)), problem_(problem) {
    if (!object.is_object())
      fail("expects an object");
  }

  bool good() const { return problem_.empty(); }

  const nlohmann::json *find(const char *name) {
    if (!good())
      return nullptr;
    auto found = object_.find(name);
    if (found == object_.end()) {
      fail(std::string("has no '") + name + "'");
      return nullptr;
    }
    return &*found;
  }
  bool has(const char *name) const { return good() && object_.contains(name); }

  void number(const char *name, uint64_t &out, uint64_t max = UINT64_MAX) {
    if (const nlohmann::json *value = find(name)) {
      if (!value->is_number_unsigned() || value->get<uint64_t>() > max)
        return fail(std::string("'") + name + "' is no number that is expected");
      out = value->get<uint64_t>();
    }
  }
  template <typename T> void signedNumber(const char *name, T &out, int64_t min, int64_t max) {
    if (const nlohmann::json *value = find(name)) {
      bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= uint64_t(INT64_MAX)
                                              : value->is_number_integer();
      if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max)
        return fail(std::string("'") + name + "' is no number that is expected");
      out = T(value->get<int64_t>());
    }
  }
  void real(const char *name, double &out) {
    if (const nlohmann::json *value = find(name)) {
      if (!value->is_number())
        return fail(std::string("'") + name + "' is no number");
      out = value->get<double>();
    }
  }
  void truth(const char *name, bool &out) {
    if (const nlohmann::json *value = find(name)) {
      if (!value->is_boolean())
        return fail(std::string("'") + name + "' is neither true nor false");
      out = value->get<bool>();
    }
  }
  void text(const char *name, std::string &out) {
    if (const nlohmann::json *value = find(name)) {
      if (!value->is_string())
        return fail(std::string("'") + name + "' is no text");
      out = value->get<std::string>();
    }
  }
  /// Reads 16 hexadecimal digits.
  void hash(const char *name, uint64_t &out);
  void dimensions(const char *name, std::vector<int64_t> &out) {
    if (const nlohmann::json *value = list(name))
      for (const nlohmann::json &element : *value) {
        if (!element.is_number_unsigned() || element.get<uint64_t>() > uint64_t(1) << 62)
          return fail(std::string("'") + name + "' holds something that is no dimension");
        out.push_back(element.get<int64_t>());
      }
  }
  const nlohmann::json *list(const char *name) {
    const nlohmann::json *value = find(name);
    if (value && !value->is_array()) {
      fail(std::string("'") + name + "' is no list");
      return nullptr;
    }
    return value;
  }

  void fail(const std::string &what) {
    if (problem_.empty())
      problem_ = where_ + ": " + what;
  }

private:
  const nlohmann::json &object_;
  std::string where_;
  std::string &problem_;
};

inline std::string hexadecimal(uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  return text;
}

inline std::optional<uint64_t> parseHexadecimal(const std::string &text) {
  if (text.size() != 16)
    return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0)
      return std::nullopt;
    value = value << 4 | uint64_t(digit);
  }
  return value;
}

inline void JsonFields::hash(const char *name, uint64_t &out) {
  std::string digits;
  text(name, digits);
  if (!good())
    return;
  if (std::optional<uint64_t> value = parseHexadecimal(digits))
    out = *value;
  else
    fail(std::string("'") + name + "' is no checksum");
}

} // namespace zorse::runtime
