// The signals of a launcher as something to wait for.
#pragma once

#include "zorse/runtime/Status.h"

#include <csignal>
#include <map>
#include <vector>

namespace zorse::runtime::launching {

/// Catches SIGINT, SIGTERM, SIGHUP and SIGUSR1 (those that were not ignored, as nohup does), SIGTSTP and SIGCHLD, and ignores SIGPIPE, until it is
/// destroyed. One at a time. By handlers that write to a pipe: blocking signals and reading a signalfd would miss threads that libraries start before
/// main, which do not block them.
class Signals {
public:
  Signals();
  ~Signals();

  int fd() const { return fd_; }
  /// What has come. SIGCHLD among them only means: look.
  std::vector<int> take();
  /// As it was before: for new processes.
  const sigset_t &maskBefore() const { return mask_; }

private:
  int fd_ = -1;
  sigset_t mask_;
  std::map<int, struct sigaction> before_;
};

} // namespace zorse::runtime::launching
