// The formats of data files.
#pragma once

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/MappedFile.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A row of token ids: llm.c's .bin (a header of 256 int32 that starts with 20240520: uint16 tokens, or 20240801: uint32), nanoGPT's .bin (uint16 and
/// nothing else), any other file as bytes.
class TokenFile {
public:
  static Result<TokenFile> open(const std::string &path);
  static Result<TokenFile> parse(MappedFile file);

  uint64_t count() const { return count_; }
  int64_t at(uint64_t index) const;
  const std::string &path() const { return file_.path(); }
  const char *format() const { return format_; } ///< for messages

private:
  MappedFile file_;
  const std::byte *tokens_ = nullptr;
  uint64_t count_ = 0;
  StoredType type_ = StoredType::U8;
  const char *format_ = "";
};

/// An array of NumPy's .npy format, in C order.
class ArrayFile {
public:
  static Result<ArrayFile> open(const std::string &path);
  static Result<ArrayFile> parse(MappedFile file);

  StoredType type() const { return type_; }
  const std::vector<int64_t> &shape() const { return shape_; }
  const std::byte *data() const { return data_; }
  const std::string &path() const { return file_.path(); }

private:
  MappedFile file_;
  StoredType type_ = StoredType::F32;
  std::vector<int64_t> shape_;
  const std::byte *data_ = nullptr;
};

} // namespace zorse::runtime
