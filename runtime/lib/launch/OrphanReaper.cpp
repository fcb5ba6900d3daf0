#include "OrphanReaper.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

constexpr int kEndMilliseconds = 1000; ///< time limit for the end of the guard

/// Runs in the forked process. Only system calls are allowed.
[[noreturn]] void watch(int pipe) {
  ::setsid(); // Ctrl-C must not reach it
  ::prctl(PR_SET_NAME, "zorse-guard");
  ::dup2(pipe, 0);
  ::close_range(1, ~0u, 0); // a reader of the launcher's output must not wait for the guard
  constexpr int kMax = 4096;
  static pid_t groups[kMax];
  int count = 0;
  for (;;) {
    pid_t message = 0;
    ssize_t got = ::read(0, &message, sizeof message);
    if (got < 0 && errno == EINTR)
      continue;
    if (got != ssize_t(sizeof message))
      break;
    if (message > 0 && count < kMax)
      groups[count++] = message;
    for (int i = 0; message < 0 && i < count; ++i)
      if (groups[i] == -message)
        groups[i] = groups[--count];
  }
  for (int i = 0; i < count; ++i)
    ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

} // namespace

Result<std::unique_ptr<OrphanReaper>> OrphanReaper::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return userError(std::string("cannot make a pipe: ") + std::strerror(errno));
  pid_t process = ::fork();
  if (process == 0)
    watch(ends[0]); // closes its copy of the other end
  ::close(ends[0]);
  ::fcntl(ends[1], F_SETFL,
          O_NONBLOCK); // the launcher does not wait for a stopped guard, which reads nothing
  if (process < 0) {
    std::string why = std::strerror(errno);
    ::close(ends[1]);
    return userError("cannot start a process: " + why);
  }
  return std::unique_ptr<OrphanReaper>(new OrphanReaper(process, ends[1]));
}

OrphanReaper::~OrphanReaper() {
  ::close(pipe_);
  // All ranks have ended, so the guard is no longer needed. SIGCONT wakes a guard that was stopped.
  ::kill(process_, SIGCONT);
  for (int waited = 0; waited < kEndMilliseconds; ++waited) {
    pid_t ended = ::waitpid(process_, nullptr, WNOHANG);
    if (ended == process_ || (ended < 0 && errno != EINTR))
      return;
    ::usleep(1000);
  }
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR)
    ;
}

void OrphanReaper::add(pid_t group) {
  // A write error means that the guard was killed. This matters only if the launcher is also
  // killed. (SIGPIPE is ignored while ranks run.)
  [[maybe_unused]] ssize_t written = ::write(pipe_, &group, sizeof group);
}

void OrphanReaper::remove(pid_t group) { add(-group); }
