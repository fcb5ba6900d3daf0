// Opens files named by users for reading. Only regular files are allowed: opening a FIFO may block
// forever, and a device may never end.
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

/// Name of a file type other than a regular file, for messages.
inline const char *kindOfFile(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a FIFO (named pipe)"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/// Returns "NAME: cannot be read: expected a regular file, found a FIFO (named pipe)" and how to
/// fix it.
inline std::string notRegular(const std::string &path, mode_t mode) {
  return path + ": cannot be read: expected a regular file, found " + kindOfFile(mode) +
         (S_ISDIR(mode) ? "; name a file" : "; copy its contents to a file and pass that file");
}

/// Opens the regular file at `path` without blocking. The caller closes the descriptor. Errors
/// begin with the path. `info` receives the result of fstat.
inline Result<int> openRegularFile(const std::string &path, struct stat &info) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool isSocket = descriptor < 0 && errno == ENXIO;
  if ((descriptor < 0 && !isSocket) ||
      (isSocket ? ::stat(path.c_str(), &info) : ::fstat(descriptor, &info)) != 0) {
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

/// Reads at most `max` + 1 bytes of a regular file; if the result has more than `max` bytes, the
/// file is too long. Errors begin with the path.
inline Result<std::string> readRegularFile(const std::string &path, size_t max) {
  struct stat info = {};
  Result<int> descriptor = openRegularFile(path, info);
  if (descriptor.failed())
    return descriptor.error();
  std::string bytes;
  char buffer[1 << 16];
  ssize_t got = 1;
  while (got != 0 && bytes.size() <= max) { // files in /proc and /sys have size 0
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
  if (bytes.size() > max)
    bytes.resize(max == SIZE_MAX ? max : max + 1);
  return bytes;
}

/// Applies `parse`, which returns a Result, to at most `max` + 1 bytes of a regular file. Errors
/// begin with the path.
template <typename Parse>
auto parseRegularFile(const std::string &path, size_t max, Parse parse)
    -> decltype(parse(std::string())) {
  Result<std::string> text = readRegularFile(path, max);
  if (text.failed())
    return text.error();
  auto parsed = parse(*text);
  if (parsed.failed())
    return userError(path + ": " + parsed.message());
  return parsed;
}

} // namespace zorse
