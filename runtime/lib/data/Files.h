// Readers of the data file formats.
#pragma once

#include "DataFile.h"

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Elements.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A sequence of token ids. Supported formats:
/// - llm.c's .bin: a header of 256 int32 that starts with 20240520 (uint16 tokens) or 20240801
///   (uint32);
/// - nanoGPT's .bin: uint16 without a header, or wider integers (TokenTypes.h);
/// - any other file: its bytes, unless it is recognized as something else than text.
class TokenFile {
public:
  /// \param path  "bytes:PATH" reads any file as bytes
  static Result<TokenFile> open(const std::string &path, const TokenReading &reading);
  static Result<TokenFile> parse(DataFile file, const TokenReading &reading);

  uint64_t count() const { return count_; }
  /// Tokens [first, first + count) as int64.
  Status read(uint64_t first, uint64_t count, int64_t *tokens) const;
  const std::string &path() const { return file_.path(); }
  const char *format() const { return format_; } ///< for messages

private:
  DataFile file_;
  uint64_t start_ = 0; ///< offset of the first token in the file, in bytes
  uint64_t count_ = 0;
  StoredType type_ = StoredType::U8;
  const char *format_ = "";
};

/// The files that a path of `--data` names. If no such file exists and the path contains *, ? or
/// [...], all files that match, sorted by name. Never empty.
Result<std::vector<std::string>> filesOf(const std::string &path);

/// Removes the prefix "bytes:" of a path of `--data`.
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
  uint64_t start_ = 0; ///< offset of the elements in the file, in bytes
};

} // namespace zorse::runtime
