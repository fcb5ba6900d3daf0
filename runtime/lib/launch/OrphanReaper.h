// A small process that outlives a killed launcher briefly and kills the processes that the ranks
// started. The kernel kills only the ranks themselves together with their launcher
// (PR_SET_PDEATHSIG).
#pragma once

#include "zorse/runtime/Status.h"

#include <memory>

#include <sys/types.h>

namespace zorse::runtime::launching {

class OrphanReaper {
public:
  static Result<std::unique_ptr<OrphanReaper>> start();
  /// Ends the guard, which kills the process groups that are still registered.
  ~OrphanReaper();

  void add(pid_t group);
  void remove(pid_t group);

private:
  OrphanReaper(pid_t process, int pipe) : process_(process), pipe_(pipe) {}

  pid_t process_;
  int pipe_; ///< the guard detects the launcher's end by the end of this pipe
};

} // namespace zorse::runtime::launching
