// Parses untrusted JSON: neither nesting nor the number of members may cost more than proportional
// to the size of the text.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

namespace zorse {

/// Whether lists and objects are nested deeper than `levels`, without parsing: parsers, copies and
/// destructors of JSON values recurse. Skips strings and comments.
inline bool nestsDeeper(std::string_view text, int levels) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && text.substr(i, 2) == "//")
      i = std::min(text.find('\n', i), text.size());
    else if (!quoted && text.substr(i, 2) == "/*")
      i = std::min(text.find("*/", i + 2), text.size());
    else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > levels)
      return true;
    else if (!quoted && (text[i] == ']' || text[i] == '}'))
      --depth;
  }
  return false;
}

/// Checks the shape of JSON without storing it.
template <typename Json> class JsonShape final : public nlohmann::json_sax<Json> {
public:
  /// \param depth  maximum depth of values; 1 is a list or mapping of plain values
  explicit JsonShape(int depth) : max_(depth) {}

  /// Returns a key that occurs twice in the outermost mapping; null if there is none.
  const std::string *repeated() const { return isRepeated_ ? &repeated_ : nullptr; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
  bool number_float(typename Json::number_float_t, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(typename Json::binary_t &) override { return true; }
  bool start_object(size_t) override { return ++depth_ <= max_; }
  bool start_array(size_t) override { return ++depth_ <= max_; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool key(std::string &name) override {
    if (depth_ == 1 && !isRepeated_ && !names_.insert(name).second) {
      isRepeated_ = true;
      repeated_ = name;
    }
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) override {
    return false;
  }

private:
  int max_, depth_ = 0;
  bool isRepeated_ = false;
  std::string repeated_;
  std::unordered_set<std::string> names_;
};

/// Parses text with at most `depth` levels of lists and mappings. Returns a discarded value for
/// deeper or invalid JSON. If `repeated` is given, it is set to a key that occurs twice in the
/// outermost mapping, or left empty. (The library's own callbacks would visit all members of a
/// mapping whenever one of them ends.)
template <typename Json>
Json parseShallow(const char *text, size_t size, int depth, std::string *repeated = nullptr) {
  JsonShape<Json> shape(depth);
  if (!Json::sax_parse(text, text + size, &shape))
    return Json(nlohmann::detail::value_t::discarded);
  if (repeated && shape.repeated())
    *repeated = *shape.repeated();
  return Json::parse(text, text + size, nullptr, /*allow_exceptions=*/false);
}

} // namespace zorse
