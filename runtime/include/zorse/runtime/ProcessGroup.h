// The process group of a job. Training data is sent through a Transport; a Group carries rare
// messages: addresses, hardware, the snapshot to resume from, acknowledgments.
//
// - rank: a process of the job. A single process that executes all devices is a group of one;
//   otherwise rank r executes device r
// - generation: counts the starts of a job. Messages and writes of ranks of an older generation are
//   rejected
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

class ProcessGroup {
public:
  virtual ~ProcessGroup() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  virtual uint64_t generation() const = 0;

  /// All-gather of bytes: every rank contributes `mine` under the same name and receives all
  /// contributions in rank order. Blocks until all ranks have contributed; fails if the job fails
  /// first. A name can be used once per generation. May be called from any thread; exchanges with
  /// different names may run concurrently.
  virtual Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                          const std::string &mine) = 0;
};

/// Creates the group of a single process with the given generation.
std::unique_ptr<ProcessGroup> makeSingleProcessGroup(uint64_t generation = 0);

/// Coordinates the early stop of a run: no rank stops before work that another rank has begun. Work
/// is counted in turns, 1, 2, .... A turn is a step or an evaluation, in the order in which all
/// ranks submit them.
class StopCoordinator {
public:
  virtual ~StopCoordinator() = default;
  /// Called before a turn is submitted, with ascending turns. Blocks while the ranks agree. Returns
  /// false if this turn and all later ones are not to be done.
  virtual bool beginIteration(uint64_t iteration) = 0;
  /// Ends the run after the turns that some rank has entered. May be called from any thread (not
  /// from a signal handler) and repeatedly.
  virtual void requestStop() = 0;
};

std::unique_ptr<StopCoordinator> makeLocalStopCoordinator();

} // namespace zorse::runtime
