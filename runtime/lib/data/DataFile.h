// A file that is read a piece at a time. Not mapped: a file that shrinks or whose disk fails while a run reads it is an error of that read, where a
// mapping would end the process.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace zorse::runtime {

class DataFile {
public:
  DataFile() = default;
  DataFile(DataFile &&other) noexcept;
  DataFile &operator=(DataFile &&other) noexcept;
  ~DataFile();

  /// Opens a regular file; messages start with the path.
  static Result<DataFile> open(const std::string &path);

  /// Bytes in memory, which outlive it, in a file's place.
  static DataFile view(std::string path, const void *data, size_t size);

  /// Bytes [offset, offset + bytes), from any thread. An error names what cannot be read and why.
  Status read(uint64_t offset, void *target, size_t bytes) const;

  uint64_t size() const { return size_; } ///< when it was opened
  const std::string &path() const { return path_; }

private:
  std::string path_;
  int descriptor_ = -1;
  const std::byte *memory_ = nullptr; ///< of a view
  uint64_t size_ = 0;
};

} // namespace zorse::runtime
