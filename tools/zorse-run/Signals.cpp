#include "Signals.h"

#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace {

int signalPipe[2];

void awaitSignal() {
  char byte;
  while (::read(signalPipe[0], &byte, 1) != 1)
    if (errno != EINTR)
      ::pause();
}

} // namespace

void zorse::run::onSignals(std::function<void()> first) {
  std::signal(SIGPIPE, SIG_IGN);
  if (::pipe2(signalPipe, O_CLOEXEC) != 0)
    return; // signals then do what they do by default.
  for (int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int) {
      int before = errno;
      if (::write(signalPipe[1], "", 1) != 1)
        ::_exit(130);
      errno = before;
    });
  std::thread([first = std::move(first)] {
    awaitSignal();
    first();
    awaitSignal();
    ::_exit(130);
  }).detach();
}
