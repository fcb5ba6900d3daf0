// A small process that outlives a killed launcher by a moment and kills what it left. The kernel kills the ranks themselves with their launcher
// (PR_SET_PDEATHSIG), but not what ranks started.
#pragma once

#include "zorse/runtime/Status.h"

#include <memory>

#include <sys/types.h>

namespace zorse::runtime::launching {

class Guard {
public:
  static Result<std::unique_ptr<Guard>> start();
  /// Ends the guard, which kills the groups that are still registered.
  ~Guard();

  void add(pid_t group);
  void remove(pid_t group);

private:
  Guard(pid_t process, int pipe) : process_(process), pipe_(pipe) {}

  pid_t process_;
  int pipe_; ///< its end tells the guard that the launcher is gone.
};

} // namespace zorse::runtime::launching
