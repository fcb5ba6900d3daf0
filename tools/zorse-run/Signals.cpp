#include "Signals.h"

#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace {

int signalPipe[2];

/// Waits for a signal; for one that may end the process at once if `insists`.
void awaitSignal(bool insists) {
  char byte = 0;
  for (;;)
    if (::read(signalPipe[0], &byte, 1) == 1) {
      if (byte != SIGUSR1 || !insists)
        return;
    } else if (errno != EINTR) {
      ::pause();
    }
}

} // namespace

void zorse::run::onSignals(std::function<void()> first) {
  std::signal(SIGPIPE, SIG_IGN);
  if (::pipe2(signalPipe, O_CLOEXEC) != 0)
    return; // signals then do what they do by default.
  for (int signal : {SIGINT, SIGTERM, SIGUSR1})
    std::signal(signal, [](int number) {
      int before = errno;
      char byte = char(number);
      if (::write(signalPipe[1], &byte, 1) != 1)
        ::_exit(130);
      errno = before;
    });
  std::thread([first = std::move(first)] {
    awaitSignal(false);
    first();
    awaitSignal(true);
    ::_exit(130);
  }).detach();
}
