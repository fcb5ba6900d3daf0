// Opens the standard streams, as the first action of a program.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace zorse::runtime {

/// Opens standard input, output and error to /dev/null if the parent process closed them (`>&-`).
/// Otherwise the next file, pipe or socket would get one of their descriptors, and messages would
/// be written to it or its data read as input.
inline void openStandardStreams() {
  int fd;
  do
    fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0)
    ::close(fd);
}

} // namespace zorse::runtime
