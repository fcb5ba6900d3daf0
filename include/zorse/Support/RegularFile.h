// Opening what a user names for reading: regular files alone. A FIFO would be waited for forever, a device never ends.
#pragma once

#include "zorse/Base/Status.h"

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

/// A descriptor of the regular file at `path`, which the caller closes; never waits. Messages begin with the path. `info` is what fstat says of it.
inline Result<int> openRegularFile(const std::string &path, struct stat &info) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool isSocket = descriptor < 0 && errno == ENXIO;
  if ((descriptor < 0 && !isSocket) || (isSocket ? ::stat(path.c_str(), &info) : ::fstat(descriptor, &info)) != 0) {
    const int cause = errno;
    if (descriptor >= 0)
      ::close(descriptor);
    return userError(path + ": cannot be read: " + std::strerror(cause));
  }
  if (!isSocket && S_ISREG(info.st_mode))
    return descriptor;
  if (!isSocket)
    ::close(descriptor);
  return userError(notRegular(path, info.st_mode));
}

/// The bytes of a regular file, at most `most` and one more, which tells the caller that it is longer. Messages begin with the path.
inline Result<std::string> readRegularFile(const std::string &path, size_t most) {
  struct stat info = {};
  Result<int> descriptor = openRegularFile(path, info);
  if (descriptor.failed())
    return descriptor.error();
  std::string bytes;
  char buffer[1 << 16];
  ssize_t got = 1;
  while (got != 0 && bytes.size() <= most) { // files of /proc and /sys are of size 0
    got = ::read(*descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      break;
    bytes.append(buffer, size_t(got));
  }
  const int cause = errno;
  ::close(*descriptor);
  if (got < 0)
    return userError(path + ": cannot be read: " + std::strerror(cause));
  if (bytes.size() > most)
    bytes.resize(most == SIZE_MAX ? most : most + 1);
  return bytes;
}

/// What `parse`, which returns a Result, makes of a regular file's text of at most `most` bytes and one more. Messages begin with the path.
template <typename Parse> auto parseRegularFile(const std::string &path, size_t most, Parse parse) -> decltype(parse(std::string())) {
  Result<std::string> text = readRegularFile(path, most);
  if (text.failed())
    return text.error();
  auto parsed = parse(*text);
  if (parsed.failed())
    return userError(path + ": " + parsed.message());
  return parsed;
}

} // namespace zorse
