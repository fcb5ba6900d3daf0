// The formats of data files.
#pragma once

#include "DataFile.h"

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Elements.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A row of token ids: llm.c's .bin (a header of 256 int32 that starts with 20240520: uint16 tokens, or 20240801: uint32), nanoGPT's .bin (uint16 and
/// nothing else, or wider integers: TokenTypes.h), any other file as bytes, unless it is known to hold something else than text.
class TokenFile {
public:
  /// \param path  "bytes:PATH": as bytes, whatever it is
  static Result<TokenFile> open(const std::string &path, const TokenReading &reading);
  static Result<TokenFile> parse(DataFile file, const TokenReading &reading);

  uint64_t count() const { return count_; }
  /// Tokens [first, first + count) as int64.
  Status read(uint64_t first, uint64_t count, int64_t *tokens) const;
  const std::string &path() const { return file_.path(); }
  const char *format() const { return format_; } ///< for messages

private:
  DataFile file_;
  uint64_t start_ = 0; ///< of the first token in the file
  uint64_t count_ = 0;
  StoredType type_ = StoredType::U8;
  const char *format_ = "";
};

/// The files that a path of `--data` names: itself, or where there is no such file and it has *, ? or [...], all that match, by name. At least one.
Result<std::vector<std::string>> filesOf(const std::string &path);

/// The path of what `--data` names as tokens.
std::string withoutBytes(const std::string &path);

/// An array of NumPy's .npy format, in C order.
class ArrayFile {
public:
  static Result<ArrayFile> open(const std::string &path);
  static Result<ArrayFile> parse(DataFile file);

  StoredType type() const { return type_; }
  const std::vector<int64_t> &shape() const { return shape_; }
  /// Elements [first, first + count) of the array, as type().
  Status read(uint64_t first, uint64_t count, void *target) const {
    return file_.read(start_ + first * bytesOf(type_), target, count * bytesOf(type_));
  }
  const std::string &path() const { return file_.path(); }

private:
  DataFile file_;
  StoredType type_ = StoredType::F32;
  std::vector<int64_t> shape_;
  uint64_t start_ = 0; ///< of the elements in the file
};

} // namespace zorse::runtime
