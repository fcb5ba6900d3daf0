// The signals of a launcher as something to wait for.
#pragma once

#include "zorse/runtime/Status.h"

#include <csignal>
#include <vector>

namespace zorse::runtime::launching {

/// Blocks SIGINT, SIGTERM and SIGHUP (those that were not ignored, as nohup does), SIGTSTP and SIGCHLD, and ignores SIGPIPE, until it is destroyed.
class Signals {
public:
  Signals();
  ~Signals();

  int fd() const { return fd_; }
  /// What has come. SIGCHLD among them only means: look.
  std::vector<int> take();
  /// As it was before: for new processes.
  const sigset_t &maskBefore() const { return before_; }

private:
  int fd_ = -1;
  sigset_t before_;
  struct sigaction child_, pipe_;
};

} // namespace zorse::runtime::launching
