// The first thing a program does.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace zorse::runtime {

/// Standard input, output and error are open, to /dev/null where whoever started the program closed them (`>&-`). Otherwise the next file, pipe or
/// socket that is opened gets their number, and what is meant for people is written into it, or what is read from it is taken for something else.
inline void openStandardStreams() {
  int fd;
  do
    fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0)
    ::close(fd);
}

} // namespace zorse::runtime
