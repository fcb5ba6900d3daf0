// Delivers the launcher's signals through a file descriptor.
#pragma once

#include "zorse/runtime/Status.h"

#include <csignal>
#include <map>
#include <vector>

namespace zorse::runtime::launching {

/// Catches SIGINT, SIGTERM, SIGHUP and SIGUSR1 (unless they were ignored, as nohup does), SIGTSTP
/// and SIGCHLD, and ignores SIGPIPE, until the object is destroyed. Only one object may exist. The
/// handlers write to a pipe. A signalfd would require that all threads block the signals, but
/// threads that libraries start before main do not.
class Signals {
public:
  Signals();
  ~Signals();

  int fd() const { return fd_; }
  /// Returns the received signals. SIGCHLD means that some child may have ended.
  std::vector<int> take();
  /// The previous signal mask, for new processes.
  const sigset_t &maskBefore() const { return mask_; }

private:
  int fd_ = -1;
  sigset_t mask_;
  std::map<int, struct sigaction> before_;
};

} // namespace zorse::runtime::launching
