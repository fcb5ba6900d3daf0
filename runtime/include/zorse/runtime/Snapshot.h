// Snapshots: the whole training state at a step boundary, one safetensors file per device and an index, from which a run resumes exactly, under the
// same plan or another one (docs/snapshots.md).
//
//   DIR/generation                         the fencing token: the generation that may write here (text; replaced by rename)
//   DIR/step-00000120.g2/<index>-<device>.safetensors   flat slices: NAME@lo:hi (parameters), moment.0/NAME@lo:hi, ..., optimizer_step
//   DIR/step-00000120.g2/index.json        exists only when every file is complete, synced and acknowledged with its checksums: shapes, types,
//   slices, step,
//                                          generation, and what the order of samples and the random numbers depend on
//
// Taking one does not stop the step after it: when a device has finished the last entry of its step, its state is still until the next step's
// updates; it is copied meanwhile by a thread of its own, and written behind it.
#pragma once

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace zorse::runtime {

/// What must be the same for a resumed run to be the unbroken one; recorded in the index, compared on resume.
struct RunIdentity {
  std::string model; ///< ModelSummary.content_hash
  int64_t batch = 0, sequence = 0;
  uint64_t seed = 0;
  std::optional<uint64_t> shuffle;
  std::string data; ///< dataFingerprint
  uint64_t samplesPerEpoch = 0;
  bundle::TrainingOptions training; ///< as the run uses it
  uint64_t steps = 0;               ///< length of the run, which the schedule may depend on
  std::string
      matrices; ///< the matrix libraries of all ranks, each once: another one rounds otherwise, which is said and not refused; empty: not known
};

struct SnapshotOptions {
  std::string directory;  ///< on a file system that all ranks share
  uint64_t every = 0;     ///< steps; 0: only the last one of the run
  uint64_t keep = 2;      ///< complete ones; older ones are removed once a newer is complete. At least 1.
  bool resuming = false;  ///< snapshots that are there already are this job's; otherwise open() refuses a directory that holds some.
  std::string checkpoint; ///< not empty: nobody asked for snapshots, the state is collected for this file; messages speak of it
  std::function<void(uint64_t step, const std::string &path)> written; ///< rank 0: a snapshot is complete; called in a thread of this class
  std::function<void(const std::string &)> warn; ///< a snapshot failed or was late; on every rank with the same words, in a thread of this class.
};

struct ResumePoint {
  uint64_t step = 0;            ///< the last finished step
  std::string path;             ///< of the snapshot
  uint64_t samplesConsumed = 0; ///< by the steps before: TrainingRun.firstSample
};

class SnapshotStorage;

class Snapshots {
public:
  /// Claims the directory for `group.generation()` (rank 0 replaces the token; one there that is as new or newer is an error), and makes it where it
  /// is not. Executor, bundle and group outlive the object.
  /// \param storage  how files are reached; null: as usual. Tests stand in for failing disks.
  static Result<std::unique_ptr<Snapshots>> open(Executor &executor, const Bundle &bundle, Group &group, const SnapshotOptions &options,
                                                 const RunIdentity &identity, std::shared_ptr<SnapshotStorage> storage = nullptr);
  /// Gives up what has not been copied and waits for the rest; where the run has failed, so must the group have.
  ~Snapshots();

  /// Loads the newest snapshot that every rank finds undamaged, each rank reading only what its devices hold; nullopt when there is none. What was
  /// passed over, and why, goes to `note`. A difference that changes the mathematics is an error unless `allowChange`. Comes after loadState: frozen
  /// parameters are not in snapshots, and those loaded must be the ones that the snapshot's run had. It is an error that snapshots are there and all
  /// of them are damaged.
  Result<std::optional<ResumePoint>> resume(bool allowChange, std::string *note);

  /// For StepRequest.afterStep of a step whose state is to be kept; null for other steps. `last`: the run ends with this step. Waits while the
  /// snapshot before is being written (counted in `waits`). Steps ascending, the same on all ranks.
  StateReader *due(uint64_t step, bool last);

  /// The state after `step`, when no step is under way: for a run that ends earlier than it knew. Nothing where that snapshot has been taken.
  void takeNow(uint64_t step);

  struct Counts {
    uint64_t written = 0, failed = 0;
    uint64_t waits = 0;                       ///< snapshots that were due before the one before was written
    double copySeconds = 0, writeSeconds = 0; ///< sums over snapshots, of this rank; copying of the slowest device each
    uint64_t bytes = 0;                       ///< of files, of this rank
  };
  Counts counts() const;

  /// Bytes of this process for copies of state: as much as its devices' persistent trainable state.
  uint64_t memory() const;

  /// Waits for what is under way. An error when the last snapshot that was due is not complete, or when a newer generation has taken over; that also
  /// ends the run at once (Executor::abort).
  Status finish();

private:
  class Implementation;
  explicit Snapshots(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// Loads the parameters of one snapshot (its folder) without moments, each rank what its devices hold: to look at, not to go on from, so that nothing
/// is claimed or written. Comes after loadState, as frozen parameters are not in snapshots. Returns its step.
Result<uint64_t> loadSnapshotParameters(const std::string &path, Executor &executor, const Bundle &bundle);

/// The newest generation that `directory` knows; 0 when there is none yet.
Result<uint64_t> newestGeneration(const std::string &directory);

/// An error when a newer generation has claimed `directory` ("superseded by generation N"): asked before every write of a run.
Status checkFence(const std::string &directory, uint64_t generation);

} // namespace zorse::runtime
