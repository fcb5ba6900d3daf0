// The processes of a job, as far as they agree on something. Bytes of training go through a Transport; this is for everything said once or seldom:
// addresses, hardware, which snapshot to resume from, acknowledgements.
//
//   rank        a process of the job. One process executing all devices is a group of one; otherwise rank r executes device r.
//   generation  counts the starts of a job. What a rank of an older generation says or writes does not count.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

class Group {
public:
  virtual ~Group() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  virtual uint64_t generation() const = 0;

  /// Every rank contributes `mine` under the same name and gets everyone's contribution, in rank order. Blocks until all have contributed; fails when
  /// the job fails first. A name serves once per generation. From any thread; exchanges of different names may be under way at once.
  virtual Result<std::vector<std::string>> exchange(const std::string &name, const std::string &mine) = 0;
};

/// A group of this process alone: generation as given.
std::unique_ptr<Group> makeSoloGroup(uint64_t generation = 0);

/// Agrees on where a run ends that is told to stop early: no rank stops before work that another has begun. Work is counted in turns, 1, 2, ...: a
/// step or an evaluation, in the order in which all ranks submit them.
class StepGate {
public:
  virtual ~StepGate() = default;
  /// Before a turn is submitted, turns ascending. Blocks while the ranks agree. False: this turn and all later ones are not done any more.
  virtual bool enter(uint64_t turn) = 0;
  /// Ends the run after the turns that some rank has entered. From any thread (not from a signal handler); more than once is as good as once.
  virtual void requestStop() = 0;
};

std::unique_ptr<StepGate> makeSoloGate();

} // namespace zorse::runtime
