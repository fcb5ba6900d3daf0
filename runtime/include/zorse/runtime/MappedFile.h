// A file mapped for reading, or a view of bytes that are already in memory.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <string>

namespace zorse::runtime {

class MappedFile {
public:
  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  /// Maps a regular file. Error messages start with the path.
  static Result<MappedFile> open(const std::string &path);
  /// Makes bytes readable as a file with the path `path`. The caller must keep them while this
  /// object exists.
  static MappedFile view(std::string path, const void *data, size_t size);

  const std::byte *data() const { return data_; }
  size_t size() const { return size_; }
  const std::string &path() const { return path_; }

private:
  std::string path_;
  const std::byte *data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false; ///< mapped by open; unmapped by the destructor
};

/// Installs a handler for SIGBUS, which a read of a mapped file raises if the file has shrunk or
/// its disk fails. The process then ends with "error: FILE: ..." and exit code 1 instead of by the
/// signal.
void explainUnreadableMappings();

} // namespace zorse::runtime
