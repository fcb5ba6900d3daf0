#include "Storage.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

CheckpointStorage::~CheckpointStorage() = default;

int CheckpointStorage::makeDirectory(const std::string &path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1))
    if (::mkdir(path.substr(0, slash).c_str(), 0777) != 0 && errno != EEXIST && errno != EROFS &&
        errno != EACCES)
      return errno;
  if (::mkdir(path.c_str(), 0777) == 0)
    return 0;
  int cause = errno;
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0)
    return cause;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

int CheckpointStorage::create(const std::string &path, int &handle, bool direct) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  handle = ::open(path.c_str(), kFlags | (direct ? O_DIRECT : 0), 0666);
  if (handle < 0 && direct && errno == EINVAL)
    handle = ::open(path.c_str(), kFlags, 0666);
  return handle < 0 ? errno : 0;
}

int CheckpointStorage::createExclusive(const std::string &path, int &handle) {
  handle = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return handle < 0 ? errno : 0;
}

int CheckpointStorage::reserve(int handle, uint64_t bytes) {
  if (::fallocate(handle, 0, 0, off_t(bytes)) == 0)
    return 0;
  // Other errors are reported by the write.
  return errno == ENOSPC || errno == EFBIG || errno == EDQUOT || errno == EIO ? errno : 0;
}

int CheckpointStorage::write(int handle, const std::byte *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = ::write(handle, data, std::min<size_t>(bytes, 1u << 30));
    if (written < 0 && errno == EINTR)
      continue;
    // The end of a file is not a whole block, and some file systems accept O_DIRECT but fail later.
    if (int flags = ::fcntl(handle, F_GETFL); written < 0 && errno == EINVAL && flags >= 0 &&
                                              (flags & O_DIRECT) &&
                                              ::fcntl(handle, F_SETFL, flags & ~O_DIRECT) == 0)
      continue;
    if (written <= 0)
      return written < 0 ? errno : ENOSPC;
    data += written;
    bytes -= size_t(written);
  }
  return 0;
}

void CheckpointStorage::startSync(int handle, uint64_t from, uint64_t bytes) {
  (void)::sync_file_range(handle, off64_t(from), off64_t(bytes), SYNC_FILE_RANGE_WRITE);
}

int CheckpointStorage::sync(int handle) { return ::fsync(handle) == 0 ? 0 : errno; }

int CheckpointStorage::close(int handle) {
  return ::close(handle) == 0 || errno == EINTR ? 0 : errno;
}

int CheckpointStorage::rename(const std::string &from, const std::string &to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int CheckpointStorage::syncDirectory(const std::string &path) {
  int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    return errno;
  int cause = ::fsync(handle) == 0 || errno == EINVAL ? 0 : errno; // EINVAL: file systems that do
                                                                   // not sync folders
  ::close(handle);
  return cause;
}

int CheckpointStorage::remove(const std::string &path) {
  return ::unlink(path.c_str()) == 0 ? 0 : errno;
}

int CheckpointStorage::removeDirectory(const std::string &path) {
  return ::rmdir(path.c_str()) == 0 ? 0 : errno;
}

int CheckpointStorage::open(const std::string &path, int &handle) {
  handle = ::open(path.c_str(),
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO in place of a file must not block
  if (handle < 0)
    return errno;
  struct stat info = {};
  int cause = ::fstat(handle, &info) != 0 ? errno
              : S_ISREG(info.st_mode)     ? 0
              : S_ISDIR(info.st_mode)     ? EISDIR
                                          : EINVAL;
  if (cause) {
    ::close(handle);
    handle = -1;
  }
  return cause;
}

int CheckpointStorage::size(int handle, uint64_t &bytes) {
  struct stat info = {};
  if (::fstat(handle, &info) != 0)
    return errno;
  bytes = uint64_t(info.st_size);
  return 0;
}

int CheckpointStorage::read(int handle, uint64_t offset, std::byte *target, size_t bytes) {
  while (bytes > 0) {
    ssize_t got = ::pread(handle, target, std::min<size_t>(bytes, 1u << 30), off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? errno : ENODATA;
    target += got;
    offset += uint64_t(got);
    bytes -= size_t(got);
  }
  return 0;
}

int CheckpointStorage::list(const std::string &path, std::vector<std::string> &names) {
  DIR *directory = ::opendir(path.c_str());
  if (!directory)
    return errno;
  errno = 0;
  while (dirent *entry = ::readdir(directory)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..")
      names.push_back(std::move(name));
    errno = 0;
  }
  int cause = errno;
  ::closedir(directory);
  return cause;
}

std::shared_ptr<CheckpointStorage> zorse::runtime::makePosixStorage() {
  return std::make_shared<CheckpointStorage>();
}

std::string zorse::runtime::cannot(const std::string &path, const char *done, int error) {
  return path + ": cannot be " + done + ": " +
         (error == ENODATA ? "it ends early" : std::strerror(error));
}

int zorse::runtime::readWhole(CheckpointStorage &storage, const std::string &path, size_t limit,
                              std::string &text) {
  int handle = -1;
  if (int cause = storage.open(path, handle))
    return cause;
  uint64_t bytes = 0;
  int cause = storage.size(handle, bytes);
  if (!cause && bytes > limit)
    cause = EFBIG;
  if (!cause) {
    text.resize(bytes);
    cause = storage.read(handle, 0, reinterpret_cast<std::byte *>(text.data()), bytes);
  }
  storage.close(handle);
  return cause;
}
