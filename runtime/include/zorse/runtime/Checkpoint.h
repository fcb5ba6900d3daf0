// Checkpoints of the whole training state after a step: one safetensors file per device and an
// index. A run resumes from it exactly, with the same plan or another one
// (docs/reference/checkpoints.md).
//
// - DIR/claims/00000002: the claim of generation 2. The newest one may write here
// - DIR/step-00000120.g2/<index>-<device>.safetensors: flat slices NAME@lo:hi (parameters),
//   moment.0/NAME@lo:hi, ..., optimizer_step
// - DIR/step-00000120.g2/index.json: exists only if every file is complete, synced and acknowledged
//   with its checksums. It contains shapes, types, slices, step, generation, and the values that
//   determine the order of samples and the random numbers
//
// Checkpointing does not stop the next step. A device's state does not change between the last
// instruction of a step and the first update of the next one. A dedicated thread copies the state
// in this interval; another thread writes the copy.
#pragma once

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/ProcessGroup.h"
#include "zorse/runtime/ReportedSteps.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace zorse::runtime {

/// The values that must be equal for a resumed run to continue exactly. They are recorded in the
/// index and compared on resume.
struct RunConfig {
  std::string model; ///< ModelSummary.content_hash
  int64_t batch = 0, sequence = 0;
  uint64_t seed = 0;
  std::optional<uint64_t> shuffle;
  std::string data; ///< dataFingerprint
  uint64_t samplesPerEpoch = 0;
  bundle::TrainingOptions training; ///< options that the run uses
  uint64_t steps = 0;   ///< length of the run, which the learning-rate schedule may depend on
  std::string matrices; ///< matrix libraries of all ranks, without duplicates; a different one is
                        ///< reported, not refused; empty: unknown
};

struct CheckpointOptions {
  std::string directory; ///< on a file system that all ranks share
  uint64_t every = 0;    ///< steps; 0: only after the last step of the run
  uint64_t keep = 2;     ///< complete snapshots to keep, at least 1; older ones are removed when a
                         ///< newer one is complete
  /// Folder on a memory file system of each node, such as /dev/shm, for checkpoints in memory. They
  /// outlive the processes of the run but not the node. Empty: none.
  std::string memoryDirectory;
  uint64_t memoryEvery = 1; ///< steps
  /// How ranks of other nodes reach the checkpoints in memory of this one.
  struct Peers {
    std::string listenAddress;  ///< empty: they cannot
    std::string secret;         ///< of the job
    double timeoutSeconds = 10; ///< for a peer that does not answer
    bool copies = false;        ///< also copy the state to a second node
  } memoryPeers;
  bool resuming = false;   ///< existing snapshots belong to this job; otherwise open() refuses a
                           ///< directory with snapshots
  std::string weightsFile; ///< not empty: the state is collected only for this weights export;
                           ///< messages refer to it
  /// On rank 0: a snapshot is complete; called in a thread of this class.
  std::function<void(uint64_t step, const std::string &path)> written;
  /// On the rank that writes the outputs of the job: a checkpoint counts only when its steps are
  /// reported. Null: checkpoints do not wait for reports. Closed by the destructor.
  std::shared_ptr<ReportedSteps> reported;
  std::function<void(const std::string &)> warn; ///< a snapshot failed or was late; the same text
                                                 ///< on every rank; called in a thread of this
                                                 ///< class
};

struct ResumePoint {
  uint64_t step = 0;            ///< last finished step
  std::string path;             ///< path of the snapshot; empty: it was in memory
  uint64_t consumedSamples = 0; ///< samples of the previous steps: TrainingRun.firstSample
};

class CheckpointStorage;

class CheckpointManager {
public:
  /// Claims the directory for `group.generation()` and creates it if it does not exist. An equal or
  /// newer claim is an error. Executor, bundle and group
  /// must outlive the object.
  /// \param storage  file access; null: the default. Tests use it to simulate failing disks.
  static Result<std::unique_ptr<CheckpointManager>>
  open(Executor &executor, const Bundle &bundle, ProcessGroup &group,
       const CheckpointOptions &options, const RunConfig &runConfig,
       std::shared_ptr<CheckpointStorage> storage = nullptr);
  /// Abandons state that has not been copied and waits for the rest. If the run has failed, the
  /// group must have failed as well.
  ~CheckpointManager();

  /// Loads the newest snapshot, in memory or in storage, that every rank finds undamaged. Each rank
  /// reads only the state of its devices. Returns nullopt if there is no snapshot. `note` receives
  /// the snapshots that were skipped, with the reasons. A difference that changes the mathematics
  /// is an error unless `allowChange`. Call it after loadState: snapshots do not contain frozen
  /// parameters, and the loaded ones must equal those of the snapshot's run. It is an error if
  /// there are snapshots and all of them are damaged.
  Result<std::optional<ResumePoint>> resume(bool allowChange, std::string *note);

  /// Returns the reader for StepRequest.afterStep if the state after `step` is to be saved,
  /// otherwise null. `last`: the run ends with this step. Waits while the previous snapshot is
  /// being written (counted in `waits`). Call it with ascending steps, equal on all ranks.
  StateObserver *beginIfDue(uint64_t step, bool last);

  /// Saves the state after `step` if no step is in progress, for a run that ends early. Does
  /// nothing if that snapshot has been taken already.
  void saveNow(uint64_t step);

  struct Counts {
    uint64_t written = 0, failed = 0;
    uint64_t waits = 0; ///< snapshots that were due before the previous one was written
    double copySeconds = 0,
           writeSeconds = 0; ///< sums over the snapshots of this rank; copySeconds: of the slowest
                             ///< device each
    uint64_t bytes = 0;      ///< bytes of the files of this rank
  };
  Counts counts() const;

  /// Checkpoints in memory.
  struct MemoryCounts {
    uint64_t copies = 0; ///< of devices of this rank
    uint64_t committed = 0;
    uint64_t waits = 0;     ///< times that an update waited until the previous one was committed
    double copySeconds = 0; ///< of all devices of this rank
  };
  MemoryCounts memoryCounts() const;

  /// Removes the checkpoints in memory of this node, after the run has ended and its result is
  /// saved.
  void removeMemory();

  /// Returns the bytes of this process for copies of state: the bytes of its devices' persistent
  /// trainable state.
  uint64_t memory() const;

  /// Waits for snapshots in progress. Returns an error if the last snapshot that was due is not
  /// complete, or if a newer generation has claimed the directory; the latter also aborts the run
  /// (Executor::abort).
  Status finish();

private:
  class Implementation;
  explicit CheckpointManager(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// Loads the parameters of one snapshot, given its directory, without optimizer states. Each rank
/// loads the parameters of its devices. It is for inspection, not for resuming: nothing is claimed
/// or written. Call it after loadState, because snapshots do not contain frozen parameters. Returns
/// the step of the snapshot.
Result<uint64_t> loadCheckpointParameters(const std::string &path, Executor &executor,
                                          const Bundle &bundle);

/// Returns the newest generation recorded in `directory`; 0 if there is none yet.
Result<uint64_t> newestGeneration(const std::string &directory);

/// Returns an error if a newer generation has claimed `directory` ("superseded by generation N"). A
/// run calls it before every write.
Status checkFence(const std::string &directory, uint64_t generation);

} // namespace zorse::runtime
