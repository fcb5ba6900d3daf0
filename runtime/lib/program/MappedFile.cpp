#include "zorse/runtime/MappedFile.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

MappedFile::MappedFile(MappedFile &&other) noexcept { *this = std::move(other); }

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

MappedFile::~MappedFile() {
  if (mapped_)
    ::munmap(const_cast<std::byte *>(data_), size_);
}

MappedFile MappedFile::view(std::string path, const void *data, size_t size) {
  MappedFile file;
  file.path_ = std::move(path);
  file.data_ = static_cast<const std::byte *>(data);
  file.size_ = size;
  return file;
}

Result<MappedFile> MappedFile::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return userError(path + ": cannot be read: " + std::strerror(errno));
  struct stat info = {};
  MappedFile file;
  file.path_ = path;
  std::optional<Error> problem;
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    problem = userError(path + ": expects a file, found something else");
  } else if (info.st_size > 0) {
    void *address = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      problem = userError(path + ": cannot be read: " + std::strerror(errno));
    } else {
      file.data_ = static_cast<const std::byte *>(address);
      file.size_ = info.st_size;
      file.mapped_ = true;
    }
  }
  ::close(descriptor);
  if (problem)
    return *problem;
  return file;
}
