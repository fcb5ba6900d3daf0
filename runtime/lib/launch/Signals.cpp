#include "Signals.h"

#include <cstring>
#include <sys/signalfd.h>
#include <unistd.h>

using namespace zorse::runtime::launching;

Signals::Signals() {
  struct sigaction plain;
  std::memset(&plain, 0, sizeof plain);
  plain.sa_handler = SIG_DFL; // who starts us may ignore it, and then there is nothing to wait for.
  ::sigaction(SIGCHLD, &plain, &child_);
  plain.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &plain, &pipe_);

  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    struct sigaction now;
    if (::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO || now.sa_handler != SIG_IGN))
      ::sigaddset(&wanted, signal);
  }
  ::sigaddset(&wanted, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  fd_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

Signals::~Signals() {
  if (fd_ >= 0)
    ::close(fd_);
  ::sigaction(SIGCHLD, &child_, nullptr);
  ::sigaction(SIGPIPE, &pipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> Signals::take() {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (fd_ >= 0 && ::read(fd_, &info, sizeof info) == ssize_t(sizeof info))
    signals.push_back(int(info.ssi_signo));
  return signals;
}
