// Command-line options of zorse-run.
#pragma once

#include "ScheduleFlags.h"

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Generation.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::run {

struct Options {
  std::vector<std::string> words; ///< the command line

  // the run
  std::string bundle, data, evaluation, initial, cluster;
  std::optional<runtime::StoredType> dataType; ///< type of token ids in files without a header
  std::vector<std::string> initialSkip;        ///< patterns of tensors of `initial` to ignore
  std::string expect;                          ///< required digest of the bundle; empty: any
  uint64_t steps = 0, simulateSteps = 4, evaluateEvery = 0, evaluationBatches = 50;
  std::optional<uint64_t> shuffle, seed;
  ScheduleFlags schedule;
  std::optional<double> clip;
  std::string nonFinite;
  bool evaluate = false; ///< no training: only the loss on `evaluation`

  // outputs
  std::string trace, metrics, tensorboard, page, checkpoint, averages, gradients, lossRows,
      memoryReport;
  /// An output file for weights, or an empty path.
  const std::string &anyWeights() const { return checkpoint.empty() ? averages : checkpoint; }
  uint64_t traceSteps = 20;
  bool quiet = false;

  // text generation
  uint64_t generateInterval = 0, maxNewTokens = 32;
  std::string prompt; ///< "1,2,3", or "text:..." for models whose tokens are bytes
  double temperature = 0;

  // snapshots
  std::string checkpointDirectory;
  uint64_t saveInterval = 0, saveTotalLimit = 2;
  uint64_t memoryInterval = 0; ///< steps between checkpoints in memory; 0: none
  std::string memoryDirectory = "/dev/shm";
  bool replicateMemory = false;
  bool resume = false, allowChange = false;

  // processes
  bool processes = false, threads = false;
  uint64_t restarts = 0;

  // elastic jobs
  bool elastic = false;
  uint64_t minDevices = 1;
  double rejoinSeconds = 60, waitSeconds = 600;
  std::string discoveryScript, startCommand;

  std::string secretFile, listen;
  uint32_t nodeConnections = 1;
  std::vector<std::string> throttle; ///< DEVICE=SHARE
  bool shareGpus = false;
  double heartbeatSeconds = 0.25, heartbeatTimeoutSeconds = 10, watchdogTimeoutSeconds = 300,
         joinSeconds = 60;

  // simulation
  bool simulate = false, simulateEvaluation = false;
  double linkTimes = 1;
  std::vector<std::string> speedTimes; ///< DEVICE=FACTOR
  std::string json;

  // debugging
  bool poison = false, poisonAfterLastUse = false, threadPerQueue = false;
  bool hostStaged = false;
};

/// Parses the command line into `options`. Returns an exit code if the program should exit: after
/// --help, or after an error, which has been printed.
std::optional<int> parseOptions(int argc, char **argv, Options &options);

/// Returns the shell command that resumes an interrupted run from its last snapshot.
/// \param isRank whether this process is a rank of a job, which another launcher may have started
std::string resumeCommand(const Options &options, bool isRank);

/// Checks before training that outputs can be written and do not overwrite inputs.
runtime::Status checkOutputs(const Options &options);

/// Opens and verifies the bundle. Checks its digest against --expect-digest, and that no output is
/// a file of its weights.
runtime::Result<runtime::Bundle> openBundle(const Options &options,
                                            runtime::BundleUse use = runtime::BundleUse::Execute);

/// Returns the bundle's training options, overridden by those of the run.
runtime::Result<bundle::TrainingOptions> trainingOptions(const Options &options,
                                                         const bundle::TrainingOptions &compiled);

/// Returns the options given by --prompt and the other --sample flags.
/// \param seed  seed of the run
runtime::Result<runtime::GenerationOptions>
generationOptions(const Options &options, const runtime::Bundle &bundle, uint64_t seed);

/// Returns, as text, all settings that must be equal on all ranks because results or the order of
/// work depend on them.
std::string runText(const Options &options, const std::string &dataFingerprint,
                    const std::string &evaluationFingerprint);

} // namespace zorse::run
