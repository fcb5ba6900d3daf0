// Snapshots: the whole training state at a step boundary, one safetensors file per device and an index, from which a run resumes exactly, under the same plan
// or another one (docs/snapshots.md).
//
//   DIR/generation                         the fencing token: the generation that may write here (text; replaced by rename)
//   DIR/step-00000120.g2/<device>.safetensors   flat slices: NAME@lo:hi (parameters), moment.0/NAME@lo:hi, ..., optimizer_step
//   DIR/step-00000120.g2/index.json        exists only when every file is complete, synced and acknowledged with its checksums: shapes, types, slices, step,
//                                          generation, and what the order of samples and the random numbers depend on
//
// Taking one does not stop the step after it: when a device has finished the last entry of its step, its state is still until the next step's updates; it is
// copied meanwhile by a thread of its own, and written behind it.
#pragma once

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"

#include <memory>
#include <optional>
#include <string>

namespace zorse::runtime {

/// What must be the same for a resumed run to be the unbroken one; recorded in the index, compared on resume.
struct RunIdentity {
  std::string model;         ///< ModelSummary.content_hash
  int64_t batch = 0, sequence = 0;
  uint64_t seed = 0;
  std::optional<uint64_t> shuffle;
  std::string data;          ///< fingerprint of the training data (sizes and sampled contents)
  uint64_t samplesPerEpoch = 0;
  bundle::TrainingOptions training; ///< as the run uses it
  uint64_t steps = 0;        ///< length of the run, which the schedule may depend on
};

struct SnapshotOptions {
  std::string directory;     ///< on a file system that all ranks share
  uint64_t every = 0;        ///< steps; 0: only the last one of the run
  uint64_t keep = 2;         ///< complete ones; older ones are removed once a newer is complete.
};

struct ResumePoint {
  uint64_t step = 0;         ///< the last finished step
  std::string path;          ///< of the snapshot
  uint64_t samplesConsumed = 0;
};

class Snapshots {
public:
  /// Claims the directory for `group.generation()` (rank 0 replaces the token; a newer one there is an error).
  static Result<std::unique_ptr<Snapshots>> open(Executor &executor, const Bundle &bundle, Group &group, const SnapshotOptions &options, const RunIdentity &identity);
  ~Snapshots();

  /// Loads the newest snapshot that every rank finds undamaged, each rank reading only what its devices hold; nullopt when there is none. What was passed over,
  /// and why, goes to `note`. A difference that changes the mathematics is an error unless `allowChange`.
  Result<std::optional<ResumePoint>> resume(bool allowChange, std::string *note);

  /// For StepRequest.afterStep of a step whose state is to be kept; null for other steps. `last`: the run ends with this step.
  StateReader *due(uint64_t step, bool last);

  struct Counts {
    uint64_t written = 0, failed = 0;
    double copySeconds = 0, writeSeconds = 0;   ///< sums over snapshots, of this rank
    uint64_t bytes = 0;
  };
  Counts counts() const;

  /// Waits for what is under way. An error when the last snapshot that was due is not complete.
  Status finish();

private:
  class Implementation;
  explicit Snapshots(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// The newest generation that `directory` knows; 0 when there is none yet.
Result<uint64_t> newestGeneration(const std::string &directory);

/// An error when a newer generation has claimed `directory`: asked before every write of a run.
Status checkFence(const std::string &directory, uint64_t generation);

} // namespace zorse::runtime
