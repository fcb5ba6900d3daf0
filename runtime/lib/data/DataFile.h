// A file that is read in chunks. It is not mapped to memory: if a file is truncated or its disk
// fails during a run, the read returns an error; a mapping would terminate the process.
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

  /// Opens a regular file. Error messages start with the path.
  static Result<DataFile> open(const std::string &path);

  /// A file whose content is in memory. The memory must outlive the object.
  static DataFile view(std::string path, const void *data, size_t size);

  /// Reads bytes [offset, offset + bytes). Thread-safe. The error names the file and the cause.
  Status read(uint64_t offset, void *target, size_t bytes) const;

  uint64_t size() const { return size_; } ///< bytes when the file was opened
  const std::string &path() const { return path_; }

private:
  std::string path_;
  int descriptor_ = -1;
  const std::byte *memory_ = nullptr; ///< content of a view
  uint64_t size_ = 0;
};

} // namespace zorse::runtime
