// The programs of a bundle as flat arrays: entries of all devices, tasks (an entry of one device, or all halves of a transfer or collective),
// threads.
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
struct FlatEntry {
  uint32_t task;
  uint32_t queue; ///< index in Tasks.queues
  uint32_t server;
  uint32_t waits; ///< first of its waits; they end where those of the next entry begin
  uint32_t indexInProgram : 31;
  uint32_t inEvaluation : 1;
};

struct Task {
  uint32_t id;        ///< place in the global list
  uint32_t device;    ///< of one of its halves
  uint32_t firstHalf; ///< in Tasks.halves
  uint32_t halves;
  const bundle::Entry *entry; ///< one of its halves: of a transfer the sender's
  double seconds;             ///< planned
  Activity activity;
};

struct FlatQueue {
  uint32_t firstEntry; ///< in Tasks.queueEntries
  uint32_t length;
};

/// A thread: the entries of some queues of one device, in list order.
struct Server {
  uint32_t device;
  bool computes;
  std::vector<uint32_t> entries;
};

struct Tasks {
  /// `bundle` stays where it is. Its programs have passed checkPrograms.
  Tasks(const Bundle &bundle, const SimulationOptions &options);

  const Bundle &bundle;
  std::vector<FlatEntry> entries; ///< and one more, whose waits end the last one's
  std::vector<FlatWait> waits;
  std::vector<Task> tasks;      ///< ascending id
  std::vector<uint32_t> halves; ///< entries
  std::vector<FlatQueue> queues;
  std::vector<uint32_t> queueEntries;
  std::vector<Server> servers;
  std::vector<uint32_t> serversOf; ///< first server of each device, and one more

  uint32_t device(const FlatEntry &entry) const { return servers[entry.server].device; }
  const bundle::Entry &source(uint32_t entry) const { return bundle.programs[device(entries[entry])].entries(int(entries[entry].indexInProgram)); }
};

} // namespace zorse::runtime::simulation
