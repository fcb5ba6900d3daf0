// A file mapped for reading, or bytes that are in memory already.
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

  /// Maps a regular file; messages start with the path.
  static Result<MappedFile> open(const std::string &path);
  /// Bytes that the caller keeps while this lives, read as if they were a file called `path`.
  static MappedFile view(std::string path, const void *data, size_t size);

  const std::byte *data() const { return data_; }
  size_t size() const { return size_; }
  const std::string &path() const { return path_; }

private:
  std::string path_;
  const std::byte *data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false; ///< by open: unmapped at the end
};

/// A mapped file that shrinks, or whose disk fails, raises SIGBUS where it is read. From here on that ends the process with "error: FILE: ..." and
/// exit code 1 instead of by the signal.
void explainUnreadableMappings();

} // namespace zorse::runtime
