// Copies the state to the memory of its node every few steps (MemoryStore.h).
//
//   compute thread   ... last instruction of step 10 | F B of step 11 ... | update of step 11
//   copier                                           | copy, release -----^
//   committer                                               | acknowledge, commit
//
// A step is committed when every rank has acknowledged its copies. Devices without state have
// slots, too: the slot of rank 0 is complete only when the step is reported (ReportedSteps.h). A
// copier writes into the slot that does not contain the newest committed step, and only after the
// previous copy is committed. So all ranks always have one step in common, whatever dies at any
// moment. With copies on other nodes, a step is committed when these are complete, too.
#pragma once

#include "../DeviceState.h"
#include "../StateReaders.h"
#include "MemoryPeers.h"

#include "zorse/runtime/ProcessGroup.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>

namespace zorse::runtime {

struct MemoryCheckpointContext {
  Executor &executor;
  const Bundle &bundle;
  ProcessGroup &group;
  RunConfig runConfig;
  uint64_t every = 1; ///< steps
  MemoryStore store;
  StateReaders &readers;
  CheckpointOptions::Peers peers;
  std::optional<Endpoint> buddy;                 ///< server of another node that gets copies
  std::shared_ptr<ReportedSteps> reported;       ///< CheckpointOptions::reported
  std::function<void(uint64_t step)> first;      ///< the first step of this start is committed
  std::function<void(const std::string &)> warn; ///< checkpoints in memory end; called on all ranks
};

class MemoryCheckpointWriter {
public:
  explicit MemoryCheckpointWriter(MemoryCheckpointContext context);
  /// Abandons what is not committed. If the run has failed, the group must have failed as well.
  ~MemoryCheckpointWriter();

  /// Sets the start of the run. \param restored  what it was read from, which is kept until the
  /// first commit
  void startAt(uint64_t step, uint64_t consumedSamples, std::optional<MemoryStep> restored);

  /// Returns the reader of the state after `step`, or `next` if none is due. The reader also calls
  /// `next`, if it is not null.
  StateObserver *due(uint64_t step, StateObserver *next);

  const MemoryStore &store() const { return context_.store; }
  CheckpointManager::MemoryCounts counts() const;

private:
  class Observer;
  struct Copier;

  void start();
  void stateIsStill(uint32_t device, uint64_t step);
  void openSlots(Copier &copier);
  bool lacksSlot(const Copier &copier) const;
  void copy(Copier &copier);
  Status copyInto(Copier &copier, uint64_t step);
  bool finishSlot(Copier &copier);
  Status copyToBuddy(Copier &copier);
  void commit();
  Status agree(uint64_t step, const std::string &problem);
  Status writeLayout();
  void disable(const std::string &why, bool jobFailed);
  bool isCopied(uint64_t step) const;

  MemoryCheckpointContext context_;
  std::shared_ptr<Observer> observer_;
  std::vector<std::unique_ptr<Copier>> copiers_; ///< parallel to executor.devices()
  std::thread committer_;

  mutable std::mutex mutex_; ///< guards the members below and the copiers' queues
  std::condition_variable changed_;
  std::deque<uint64_t> due_;       ///< steps that are not committed yet
  std::optional<MemoryStep> kept_; ///< what must not be overwritten
  uint64_t startStep_ = 0, startSamples_ = 0;
  bool stopping_ = false, disabled_ = false, layoutWritten_ = false;
  CheckpointManager::MemoryCounts counts_;
};

} // namespace zorse::runtime
