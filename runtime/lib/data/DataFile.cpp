#include "DataFile.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

DataFile::DataFile(DataFile &&other) noexcept { *this = std::move(other); }

DataFile &DataFile::operator=(DataFile &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

DataFile::~DataFile() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

Result<DataFile> DataFile::open(const std::string &path) {
  DataFile file;
  file.path_ = path;
  // Does not wait for the writer of a FIFO.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0)
    return userError(path + ": cannot be read: " + std::strerror(errno));
  struct stat info = {};
  if (::fstat(file.descriptor_, &info) != 0 || !S_ISREG(info.st_mode))
    return userError(path + ": expects a file, found something else");
  file.size_ = uint64_t(info.st_size);
  return file;
}

DataFile DataFile::view(std::string path, const void *data, size_t size) {
  DataFile file;
  file.path_ = std::move(path);
  file.memory_ = static_cast<const std::byte *>(data);
  file.size_ = size;
  return file;
}

Status DataFile::read(uint64_t offset, void *target, size_t bytes) const {
  if (memory_ && bytes > 0 && offset <= size_ && bytes <= size_ - offset) {
    std::memcpy(target, memory_ + offset, bytes);
    return Status::success();
  }
  std::byte *at = static_cast<std::byte *>(target);
  while (bytes > 0) {
    ssize_t got = ::pread(descriptor_, at, bytes, off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return userError(path_ + ": cannot be read at byte " + std::to_string(offset) + ": " +
                       std::strerror(errno));
    if (got == 0)
      return userError(path_ + ": ends after " + std::to_string(offset) + " bytes, but had " +
                       std::to_string(size_) +
                       " when it was opened: it has been truncated or replaced since");
    at += got;
    offset += uint64_t(got);
    bytes -= size_t(got);
  }
  return Status::success();
}
