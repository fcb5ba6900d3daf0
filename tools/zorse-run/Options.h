// What zorse-run is told.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Sampling.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::run {

struct Options {
  std::vector<std::string> words; ///< the command line

  // the run
  std::string bundle, data, evaluation, initial, cluster;
  std::optional<runtime::StoredType> dataType; ///< of numbers in token files without a header
  std::vector<std::string> initialSkip;        ///< patterns of tensors of `initial`
  std::string expect;                          ///< digest that the bundle must have; empty: any
  uint64_t steps = 0, evaluateEvery = 0, evaluationBatches = 50;
  std::optional<uint64_t> shuffle, seed;
  std::optional<double> learningRate, clip, finalRatio;
  std::optional<int64_t> warmup, totalSteps;
  std::string schedule, nonFinite;
  bool evaluate = false; ///< no training: the loss on `evaluation`

  // outputs
  std::string trace, metrics, tensorboard, page, checkpoint, gradients, lossRows, memoryReport;
  uint64_t traceSteps = 20;
  bool quiet = false;

  // text
  uint64_t sampleEvery = 0, sampleTokens = 32;
  std::string samplePrompt; ///< "1,2,3", or "text:..." of models whose tokens are bytes
  double sampleTemperature = 0;

  // snapshots
  std::string snapshots;
  uint64_t snapshotEvery = 0, keepSnapshots = 2;
  bool resume = false, allowChange = false;

  // processes
  bool processes = false, threads = false;
  uint64_t restarts = 0;
  std::string secretFile, listen;
  uint32_t nodeConnections = 1;
  std::vector<std::string> throttle; ///< DEVICE=SHARE
  bool shareGpus = false;
  double heartbeatSeconds = 0.25, deadlineSeconds = 10, stallSeconds = 300, joinSeconds = 60;

  // simulation
  bool simulate = false, simulateEvaluation = false;
  double linkTimes = 1;
  std::vector<std::string> speedTimes; ///< DEVICE=FACTOR
  std::string json;

  // for looking inside
  bool poison = false, spoil = false, threadPerQueue = false;
  bool staged = false;
};

/// Reads the command line into `options`; an exit code when the program is to end at once (help, or a mistake, which has been printed).
std::optional<int> parseOptions(int argc, char **argv, Options &options);

/// What a shell is told to go on with an interrupted run from its last snapshot.
/// \param isRank  of a job, which another launcher may have started
std::string resumeCommand(const Options &options, bool isRank);

/// Outputs are refused before training, not after it: where they cannot be written, or would overwrite what is read.
runtime::Status checkOutputs(const Options &options);

/// The bundle, checked, and the one that --expect names; no output is a file of its weights.
runtime::Result<runtime::Bundle> openBundle(const Options &options, runtime::BundleUse use = runtime::BundleUse::Execute);

/// The bundle's training options with those of the run in their place.
bundle::TrainingOptions trainingOptions(const Options &options, const bundle::TrainingOptions &compiled);

/// What --sample-prompt and its like say. \param seed  of the run
runtime::Result<runtime::SamplingOptions> samplingOptions(const Options &options, const runtime::Bundle &bundle, uint64_t seed);

/// What must be equal on all ranks, as text: what the mathematics and the order of work depend on.
std::string runText(const Options &options, const std::string &dataFingerprint, const std::string &evaluationFingerprint);

} // namespace zorse::run
