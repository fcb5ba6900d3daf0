#include "Signals.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

using namespace zorse::runtime::launching;

namespace {

volatile int writeEnd = -1;

void handOn(int signal) {
  int before = errno;
  unsigned char byte = static_cast<unsigned char>(signal);
  ssize_t ignored = ::write(writeEnd, &byte, 1); // a full pipe already contains enough signals
  (void)ignored;
  errno = before;
}

} // namespace

Signals::Signals() {
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return;
  fd_ = ends[0];
  writeEnd = ends[1];
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCHLD, SIGPIPE}) {
    struct sigaction now, wanted;
    std::memset(&wanted, 0, sizeof wanted);
    if (::sigaction(signal, nullptr, &now) != 0)
      continue;
    bool ignored = !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN;
    if (ignored && signal != SIGCHLD) // the parent may ignore SIGCHLD, and then waiting for
                                      // children would fail
      continue;
    wanted.sa_handler = signal == SIGPIPE ? SIG_IGN : handOn;
    wanted.sa_flags = SA_RESTART;
    ::sigaction(signal, &wanted, nullptr);
    before_[signal] = now;
  }
}

Signals::~Signals() {
  for (auto &[signal, action] : before_)
    ::sigaction(signal, &action, nullptr);
  if (fd_ < 0)
    return;
  ::close(fd_);
  ::close(writeEnd);
  writeEnd = -1;
}

std::vector<int> Signals::take() {
  std::vector<int> signals;
  unsigned char byte;
  while (fd_ >= 0 && ::read(fd_, &byte, 1) == 1)
    signals.push_back(byte);
  return signals;
}
