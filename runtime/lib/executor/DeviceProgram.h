// A program made ready to run on its device: addresses instead of regions, lists instead of messages.
#pragma once

#include "zorse/runtime/Executor.h"

#include <vector>

namespace zorse::runtime {

class DeviceProgram;
struct PreparedEntry;

struct PreparedWait {
  uint32_t queue;
  uint64_t position;
  bool previousStep;
};

/// Who does what the host does for an entry.
class EntryRunner {
public:
  virtual Status run(DeviceProgram &program, PreparedEntry &entry, uint64_t step, size_t call) = 0;
  /// Of an entry on a queue of kind DIRECT.
  virtual Status put(DeviceProgram &program, PreparedEntry &entry, WorkStream &stream) = 0;

protected:
  ~EntryRunner() = default;
};

struct PreparedEntry final : HostTask, StreamTask {
  const bundle::Entry *entry;
  uint32_t index; ///< in the program
  uint32_t place; ///< among the entries of its worker
  uint32_t placeInQueue;
  bool inEvaluation;
  bool changesState; ///< once it has begun, persistent state is no longer what the step before left
  bool firstOfQueue = false, lastOfQueue = false;
  uint64_t expectedStep = UINT64_MAX; ///< a receive: the last step in which it was announced
  std::vector<PreparedWait> waits;
  std::vector<BodyCall> calls; ///< of a compute entry; they point into the next two.
  std::vector<DeviceAddress> slots;
  std::vector<uint8_t> overwrite;
  bool direct = false;       ///< on a queue of kind DIRECT
  bool beside = false;       ///< calls that the host's processor runs for the device
  void *data = nullptr;      ///< of a transfer, as the transport reaches it
  AllGatherArguments gather; ///< of that collective
  ReduceScatterArguments reduction;
  AllReduceArguments sum;
  DeviceAddress directData; ///< of a direct transfer; likewise
  DirectGather directGather;
  DirectReduction directReduction;
  DirectSum directSum;
  DeviceProgram *program = nullptr;

  Status run(uint64_t step, size_t call) override;
  Status put(uint64_t step, WorkStream &stream) override;
};

class DeviceProgram {
public:
  /// \param transport  its name. \param threadPerQueue  for all queues but those of computing
  static Result<std::unique_ptr<DeviceProgram>> create(const Bundle &bundle, uint32_t index, QueuedDevice &device, const std::string &transport,
                                                       bool threadPerQueue, bool poison);

  DeviceAddress address(const bundle::Region &region) const {
    return region.bytes() == 0 ? DeviceAddress() : arenas_[region.arena()]->base() + region.offset();
  }

  /// When the entry that a wait names is done, for a wait in `step`.
  Event event(const PreparedWait &wait, uint64_t step) const {
    return {wait.queue, (wait.previousStep ? step - 1 : step) * queueEntries[wait.queue].size() + wait.position + 1};
  }

  /// Whether entries that an entry waits for are done.
  bool isReady(const PreparedEntry &entry, uint64_t step) const;

  const Bundle &bundle;
  uint32_t index;
  QueuedDevice &device;
  EntryRunner *runner = nullptr;
  const bundle::Program &program;
  std::vector<PreparedEntry> entries;
  std::vector<std::vector<PreparedEntry *>> queueEntries; ///< by queue
  std::vector<uint32_t> workers;                          ///< by queue: 0 computes
  std::vector<uint32_t> threads;                          ///< by queue: those that serve them on the device
  std::vector<std::vector<PreparedEntry *>> workerEntries;
  std::vector<uint8_t> queueChangesState; ///< by queue: some entry does
  size_t queuesInUse = 0, changingQueues = 0;

  Result<Executor::MemoryUse> memoryUse(bool poisoned) const;

  /// Warms the device up for its calls (QueuedDevice::warmUp). Its memory is as it was allocated before and after.
  Status warmUp(bool poison);

private:
  DeviceProgram(const Bundle &bundle, uint32_t index, QueuedDevice &device);
  Status prepare(PreparedEntry &prepared, const std::string &transport);
  void prepareDirect(PreparedEntry &prepared);
  void prepareCalls(PreparedEntry &prepared);

  std::vector<std::unique_ptr<DeviceMemory>> arenas_;
};

} // namespace zorse::runtime
