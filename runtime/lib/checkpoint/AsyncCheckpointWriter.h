// Writes checkpoints asynchronously. One thread per device copies the device's state to host
// memory. A writer thread writes the copies to files and commits the checkpoint.
//
//   compute thread   ... last instruction of step 10 | F B of step 11 ... | update of step 11
//   copier                                           | copy, release -----^
//   writer                                                  | write, sync, acknowledge
//
// The update waits for the release. Rank 0 writes the index after an exchange of acknowledgments,
// and when the step is reported (ReportedSteps.h). Old checkpoints are removed after another
// exchange.
#pragma once

#include "Acknowledgement.h"
#include "DeviceState.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

namespace zorse::runtime {

struct AsyncCheckpointWriterContext {
  Executor &executor;
  const Bundle &bundle;
  ProcessGroup &group;
  CheckpointOptions options;
  RunConfig runConfig;
  std::shared_ptr<CheckpointStorage> storage;
  Fence fence;
  std::function<void(uint32_t device)> release; ///< the device's state has been copied
};

/// Hashes of the current values of some devices' frozen parameters.
Result<std::map<uint32_t, uint64_t>> frozenHashes(const Executor &executor, const Bundle &bundle);

class AsyncCheckpointWriter {
public:
  static Result<std::unique_ptr<AsyncCheckpointWriter>>
  create(AsyncCheckpointWriterContext context);
  /// Discards checkpoints that have not been copied, and waits for the others.
  ~AsyncCheckpointWriter();

  /// Sets the start of the run: the resumed step, or 0 and 0. \param stored  whether a checkpoint
  /// of that step is in the directory; otherwise saveNow() writes it
  void startAt(uint64_t step, uint64_t samplesConsumed, bool stored, std::set<std::string> damaged);

  StateObserver *due(uint64_t step, bool last);
  void saveNow(uint64_t step);
  CheckpointManager::Counts counts() const;
  uint64_t memory() const;
  Status finish();

private:
  class Job;
  struct WriterHandle;
  struct DeviceCopyWorker;
  struct Outcome {
    std::optional<CheckpointError> error;
    bool jobFailed = false; ///< other components report it
  };

  explicit AsyncCheckpointWriter(AsyncCheckpointWriterContext context);
  Job *addJob(uint64_t step, bool release);
  void stateIsStill(Job &job, uint32_t device);
  void copy(DeviceCopyWorker &local);
  void write();
  Outcome writeOne(Job &job);
  Acknowledgement writeFiles(Job &job, const std::string &directory);
  void withdraw(const std::string &directory);
  std::optional<CheckpointError> commit(const Job &job, const std::string &directory,
                                        const std::vector<Acknowledgement> &acknowledgements);
  void conclude(Job &job, const Outcome &outcome, double seconds);
  void countWait(std::unique_lock<std::mutex> &lock, uint64_t step);
  void warn(const std::string &text);

  AsyncCheckpointWriterContext context_;
  std::shared_ptr<WriterHandle> hub_;
  std::vector<std::unique_ptr<DeviceCopyWorker>> locals_; ///< parallel to executor.devices()
  std::thread writer_;

  std::map<uint32_t, uint64_t> frozen_; ///< rank 0: hashes of all ranks; used only by the writer
  bool frozenSaid_ = false;
  std::optional<CheckpointIndex> layout_; ///< rank 0: computed for the first index

  mutable std::mutex mutex_; ///< guards the members below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_; ///< the first `finished_` are over; they are kept because
                                          ///< an executor may still refer to them
  size_t finished_ = 0;
  bool stopping_ = false;
  uint64_t startStep_ = 0, startSamples_ = 0, lastDue_ = 0;
  std::set<std::string> damaged_;
  std::optional<CheckpointError> lastError_, superseded_;
  bool waitWarned_ = false;
  CheckpointManager::Counts counts_;
};

} // namespace zorse::runtime
