// Parsing JSON that somebody else may have written: neither nesting nor the number of members may cost more than its bytes do.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <unordered_set>

namespace zorse {

/// Measures JSON without keeping it.
template <typename Json> class JsonShape final : public nlohmann::json_sax<Json> {
public:
  /// \param depth  of the values that are allowed: 1 is a list or mapping of plain values
  explicit JsonShape(int depth) : most_(depth) {}

  /// A key of the outermost mapping that is there twice, if there is one.
  const std::string *repeated() const { return isRepeated_ ? &repeated_ : nullptr; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
  bool number_float(typename Json::number_float_t, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(typename Json::binary_t &) override { return true; }
  bool start_object(size_t) override { return ++depth_ <= most_; }
  bool start_array(size_t) override { return ++depth_ <= most_; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool key(std::string &name) override {
    if (depth_ == 1 && !isRepeated_ && !names_.insert(name).second) {
      isRepeated_ = true;
      repeated_ = name;
    }
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) override { return false; }

private:
  int most_, depth_ = 0;
  bool isRepeated_ = false;
  std::string repeated_;
  std::unordered_set<std::string> names_;
};

/// Text of at most `depth` levels of lists and mappings; otherwise, and for what is no JSON, a discarded value. `repeated`, if given, becomes a key
/// of the outermost mapping that is there twice, or stays empty. (The library's own callbacks would look at all members of a mapping whenever one of
/// them ends.)
template <typename Json> Json parseShallow(const char *text, size_t size, int depth, std::string *repeated = nullptr) {
  JsonShape<Json> shape(depth);
  if (!Json::sax_parse(text, text + size, &shape))
    return Json(nlohmann::detail::value_t::discarded);
  if (repeated && shape.repeated())
    *repeated = *shape.repeated();
  return Json::parse(text, text + size, nullptr, /*allow_exceptions=*/false);
}

} // namespace zorse
