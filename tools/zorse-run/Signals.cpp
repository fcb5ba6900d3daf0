#include "Signals.h"

#include "zorse/runtime/Launch.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace {

int signalPipe[2];

using Clock = std::chrono::steady_clock;

/// Waits for a signal. If there was a `first` one, waits for a second request at least
/// kOneRequestSeconds later. Returns its number.
int awaitSignal(std::optional<Clock::time_point> first) {
  char byte = 0;
  for (;;)
    if (::read(signalPipe[0], &byte, 1) == 1) {
      if (!first ||
          (byte != SIGUSR1 && std::chrono::duration<double>(Clock::now() - *first).count() >=
                                  zorse::runtime::kOneRequestSeconds))
        return byte;
    } else if (errno != EINTR) {
      ::pause();
    }
}

} // namespace

void zorse::run::onSignals(std::function<void(int)> first) {
  std::signal(SIGPIPE, SIG_IGN);
  if (::pipe2(signalPipe, O_CLOEXEC) != 0)
    return; // signals keep their default actions
  for (int signal : {SIGINT, SIGTERM, SIGUSR1})
    std::signal(signal, [](int number) {
      int before = errno;
      char byte = char(number);
      if (::write(signalPipe[1], &byte, 1) != 1)
        ::_exit(130);
      errno = before;
    });
  std::thread([first = std::move(first)] {
    const int signal = awaitSignal(std::nullopt);
    Clock::time_point since = Clock::now();
    first(signal);
    awaitSignal(since);
    ::_exit(130);
  }).detach();
}
