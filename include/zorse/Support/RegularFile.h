// Opening what a user names for reading: regular files alone. A FIFO would be waited for forever, a device never ends.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zorse {

/// What lies at a path that is no regular file, for messages.
inline const char *kindOfFile(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO (named pipe)" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/// "NAME: cannot be read: expected a regular file, found a FIFO (named pipe)", with the remedy.
inline std::string notRegular(const std::string &path, mode_t mode) {
  return path + ": cannot be read: expected a regular file, found " + kindOfFile(mode) +
         (S_ISDIR(mode) ? "; name a file" : "; write its contents to a file and name that");
}

/// A descriptor of the regular file at `path`, which the caller closes; never waits. -1: `error` says what is wrong, beginning with the path. `info`
/// is what fstat says of it.
inline int openRegularFile(const std::string &path, struct stat &info, std::string &error) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0 && errno != ENXIO) { // ENXIO: a socket
    error = path + ": cannot be read: " + std::strerror(errno);
    return -1;
  }
  if (descriptor < 0 ? ::stat(path.c_str(), &info) != 0 : ::fstat(descriptor, &info) != 0) {
    error = path + ": cannot be read: " + std::strerror(errno);
  } else if (!S_ISREG(info.st_mode)) {
    error = notRegular(path, info.st_mode);
  } else {
    return descriptor;
  }
  if (descriptor >= 0)
    ::close(descriptor);
  return -1;
}

/// Reads a regular file into `bytes`, at most `most` and one more, which tells the caller that it is longer. False: `error` begins with the path.
inline bool readRegularFile(const std::string &path, size_t most, std::string &bytes, std::string &error) {
  struct stat info = {};
  bytes.clear();
  int descriptor = openRegularFile(path, info, error);
  if (descriptor < 0)
    return false;
  char buffer[1 << 16];
  ssize_t got = 1;
  while (got != 0 && bytes.size() <= most) { // files of /proc and /sys are of size 0
    got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      break;
    bytes.append(buffer, size_t(got));
  }
  if (got < 0)
    error = path + ": cannot be read: " + std::strerror(errno);
  ::close(descriptor);
  if (bytes.size() > most)
    bytes.resize(most == SIZE_MAX ? most : most + 1);
  return got >= 0;
}

} // namespace zorse
