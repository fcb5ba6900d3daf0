// A file mapped for reading.
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

  const std::byte *data() const { return data_; }
  size_t size() const { return size_; }
  const std::string &path() const { return path_; }

private:
  std::string path_;
  const std::byte *data_ = nullptr;
  size_t size_ = 0;
};

} // namespace zorse::runtime
