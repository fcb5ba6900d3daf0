// The programs of a bundle as flat arrays: instructions of all devices, tasks and threads. A task
// is an instruction of one device, or all halves of a transfer or collective.
#pragma once

#include "zorse/runtime/Simulation.h"

#include "zorse/Simulation/Network.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime::simulation {

struct FlatWait {
  uint32_t queue; ///< index in Tasks.queues
  uint32_t position : 31;
  uint32_t previousStep : 1;
};

/// One device's half of a task.
struct FlatInstruction {
  uint32_t task;
  uint32_t queue; ///< index in Tasks.queues
  uint32_t server;
  uint32_t waits; ///< index of its first wait; the next instruction's first wait is the end
  uint32_t indexInProgram : 31;
  uint32_t inEvaluation : 1;
};

struct Task {
  uint32_t id;               ///< position in the global list
  uint32_t device;           ///< device of one of its halves
  uint32_t firstInstruction; ///< index in Tasks.halves
  uint32_t numInstructions;
  const bundle::Instruction *instruction; ///< one of its halves; for a transfer the sender's
  double seconds;                         ///< planned duration
  Activity activity;
};

struct FlatQueue {
  uint32_t firstInstruction; ///< index in Tasks.queueEntries
  uint32_t length;
};

/// A thread. It executes the instructions of some queues of one device in list order.
struct Server {
  uint32_t device;
  bool computes;
  std::vector<uint32_t> instructions;
};

struct Tasks {
  /// `bundle` must outlive this object. Its programs must have passed checkPrograms.
  Tasks(const Bundle &bundle, const SimulationOptions &options);

  const Bundle &bundle;
  std::vector<FlatInstruction> instructions; ///< with one additional element, whose `waits` is the
                                             ///< end of the last instruction's
  std::vector<FlatWait> waits;
  std::vector<Task> tasks;                ///< by ascending id
  std::vector<uint32_t> taskInstructions; ///< indices of instructions
  std::vector<FlatQueue> queues;
  std::vector<uint32_t> queueInstructions;
  std::vector<Server> servers;
  std::vector<uint32_t> serversOf; ///< first server of each device, with one additional element

  uint32_t device(const FlatInstruction &instruction) const {
    return servers[instruction.server].device;
  }
  const bundle::Instruction &source(uint32_t instruction) const {
    return bundle.programs[device(instructions[instruction])].instructions(
        int(instructions[instruction].indexInProgram));
  }
};

} // namespace zorse::runtime::simulation
