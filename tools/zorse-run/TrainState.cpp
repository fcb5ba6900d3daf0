// Loads the state of a run, and saves it: weight files and checkpoints.
#include "JobOutput.h"
#include "LocalTrainer.h"

#include "zorse/Summary/Summary.h"
#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Drivers.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

Status LocalTrainer::restore() {
  // If the run resumes or only evaluates, the trained parameters are in a snapshot; the model's
  // files may no longer exist.
  const bool inCheckpoint = !o.checkpointDirectory.empty() &&
                            (o.evaluate || (process.resume && hasCheckpoint()));
  if (Status status = loadInitial(inCheckpoint ? Initial::Frozen : Initial::All); status.failed())
    return status;

  training.options = *trainingOptions(o, bundle.summary.training());
  if (Status status = checkTraining(bundle, training.options); status.failed())
    return status;
  if (o.nonFinite == "skip" && commitsByGroup(bundle))
    return userError("--on-nonfinite=skip: " + o.bundle +
                     " updates every group as soon as its gradients are there "
                     "(\"optimizer_in_backward\": true in its plan), so no step can be "
                     "skipped: leave the "
                     "option out, or compile a plan with \"optimizer_in_backward\": false");
  training.steps = o.steps;
  if (o.evaluate)
    return o.checkpointDirectory.empty() ? Status::success() : restoreToEvaluate();
  runConfig.model = bundle.summary.content_hash();
  runConfig.batch = bundle.samples();
  runConfig.sequence = bundle.sequence;
  runConfig.seed = training.options.seed();
  runConfig.shuffle = o.shuffle;
  runConfig.data = process.fingerprint;
  runConfig.samplesPerEpoch = data.samplesPerEpoch();
  runConfig.training = training.options;
  runConfig.steps = o.steps;
  Result<std::string> matrices = matrixLibraries();
  if (matrices.failed())
    return matrices.error();
  runConfig.matrices = *matrices;
  if (o.checkpointDirectory.empty()) // the parameters are distributed: the checkpoint is merged
                                     // from a final snapshot
    return o.anyWeights().empty() || alone() ? Status::success() : openParts();
  CheckpointOptions options;
  options.directory = o.checkpointDirectory;
  options.every = o.saveInterval;
  options.keep = o.saveTotalLimit;
  options.memoryDirectory = o.memoryInterval > 0 ? o.memoryDirectory : "";
  options.memoryEvery = o.memoryInterval;
  options.memoryPeers = process.memoryPeers;
  options.resuming = process.resume;
  if (process.output)
    options.reported = process.output->reportedSteps();
  if (Status status = openCheckpoints(options, process.group); status.failed() || !process.resume)
    return status;
  std::string note;
  Result<std::optional<ResumePoint>> resumed = checkpoints->resume(o.allowChange, &note);
  if (resumed.failed())
    return resumed.error();
  say(note);
  if (!*resumed) {
    say(o.checkpointDirectory + ": no checkpoint found; the run starts from the beginning");
    return inCheckpoint ? loadInitial(Initial::All) : Status::success(); // the snapshot was removed
                                                                         // in the meantime
  }
  training.firstStep = (*resumed)->step + 1;
  training.firstSample = (*resumed)->consumedSamples;
  training.steps = o.steps > (*resumed)->step ? o.steps - (*resumed)->step : 0;
  stepsDone = (*resumed)->step;
  if (process.output && !o.quiet)
    printf("resumed after step %llu from %s\n", (unsigned long long)(*resumed)->step,
           (*resumed)->path.empty() ? "memory" : (*resumed)->path.c_str());
  return Status::success();
}

Status LocalTrainer::loadInitial(Initial initial) {
  std::string note;
  Status status = loadState(*executor, bundle, o.initial, &note, o.initialSkip, initial);
  if (status.succeeded())
    say(note);
  return status;
}

bool LocalTrainer::hasCheckpoint() const {
  if (o.memoryInterval > 0)
    if (const auto memory = findMemoryCheckpoints(o.memoryDirectory, o.checkpointDirectory);
        memory && memory->bytes > 0)
      return true;
  Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(o.checkpointDirectory);
  return !directories.failed() &&
         std::any_of(directories->begin(), directories->end(),
                     [](const CheckpointDirectory &directory) { return directory.complete; });
}

Status LocalTrainer::restoreToEvaluate() {
  std::string chosen = o.checkpointDirectory;
  while (chosen.size() > 1 && chosen.back() == '/')
    chosen.pop_back();
  Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(chosen);
  if (directories.failed())
    return directories.error();
  if (std::error_code ignored; !std::filesystem::exists(chosen + "/index.json", ignored)) {
    auto newest =
        std::find_if(directories->begin(), directories->end(),
                     [](const CheckpointDirectory &directory) { return directory.complete; });
    chosen = newest == directories->end() ? std::string() : chosen + "/" + newest->name;
  }
  Result<std::vector<std::string>> all =
      process.group.allGatherBytes("checkpoint to evaluate", chosen);
  if (all.failed())
    return all.error();
  if (all->front().empty())
    return userError("--checkpoint-dir " + o.checkpointDirectory +
                     ": expected a checkpoint, or a directory with complete ones, found none");
  Result<uint64_t> step = loadCheckpointParameters(all->front(), *executor, bundle);
  if (step.failed())
    return step.error();
  training.firstStep = *step + 1;
  if (process.output && !o.quiet)
    printf("parameters after step %llu from %s\n", (unsigned long long)*step, all->front().c_str());
  return Status::success();
}

Result<std::string> LocalTrainer::matrixLibraries() {
  std::set<std::string> kinds;
  for (uint32_t device : executor->devices())
    kinds.insert(bundle.devices[device].kind);
  std::vector<std::string> mine;
  for (const std::string &kind : kinds) {
    Result<const Driver *> driver = findDriver(kind, kind);
    if (driver.failed())
      return driver.error();
    Result<std::string> library = (*driver)->numerics(isHalf(productType(bundle.summary)));
    if (library.failed())
      return library;
    mine.push_back(*library);
  }
  Result<std::vector<std::string>> all =
      process.group.allGatherBytes("matrix libraries", joined(mine));
  return all.failed() ? Result<std::string>(all.error()) : joined(*all);
}

std::string LocalTrainer::joined(const std::vector<std::string> &names) {
  std::string text;
  for (auto name = names.begin(); name != names.end(); ++name)
    if (std::find(names.begin(), name, *name) == name)
      text += (text.empty() ? "" : " and ") + *name;
  return text;
}

Status LocalTrainer::openCheckpoints(CheckpointOptions options, ProcessGroup &group) {
  options.warn = [this](const std::string &text) {
    if (process.output)
      process.output->line("warning: " + text);
  };
  if (process.output && !o.quiet && !inParts)
    options.written = [this](uint64_t step, const std::string &path) {
      process.output->line("checkpoint of step " + std::to_string(step) + ": " + path);
    };
  Result<std::unique_ptr<CheckpointManager>> opened =
      CheckpointManager::open(*executor, bundle, group, options, runConfig);
  if (opened.failed())
    return opened.error();
  checkpoints = std::move(*opened);
  return Status::success();
}

Status LocalTrainer::openParts() {
  checkpoints.reset();
  inParts = true;
  std::string answer;
  parts.reset();
  if (process.output) {
    Result<bundle::DraftDirectory> draft =
        bundle::DraftDirectory::create(o.anyWeights() + ".parts.");
    answer = draft.failed() ? draft.message() : "=" + draft->path();
    if (!draft.failed())
      parts = std::move(*draft);
  }
  Result<std::vector<std::string>> made = again.allGatherBytes("directory of parts", answer);
  if (made.failed())
    return made.error();
  if (made->front().empty() || made->front()[0] != '=')
    return userError("--save-weights " + o.anyWeights() + ": " + made->front());
  partsDirectory = made->front().substr(1);
  CheckpointOptions options;
  options.directory = partsDirectory;
  options.weightsFile = o.anyWeights();
  return openCheckpoints(options, again);
}

void LocalTrainer::removeParts() {
  if (parts)
    parts->remove();
}

Status LocalTrainer::finishCheckpoints() {
  Status status = checkpoints->finish();
  partsFailed = inParts && status.failed();
  if (alone() || o.anyWeights().empty() || inParts)
    return status;
  Result<std::vector<std::string>> failed =
      process.group.allGatherBytes("last checkpoint", status.failed() ? "failed" : "");
  if (failed.failed())
    return failed.error();
  bool any = std::any_of(failed->begin(), failed->end(),
                         [](const std::string &text) { return !text.empty(); });
  if (!any || stepsDone == 0 ||
      checkFence(o.checkpointDirectory, process.group.generation()).failed())
    return status;
  Status collected = openParts();
  if (collected.succeeded()) {
    checkpoints->saveNow(stepsDone);
    collected = checkpoints->finish();
  }
  partsFailed = collected.failed();
  if (partsFailed && process.output)
    fprintf(stderr, "error: %s\n", collected.message().c_str());
  return status;
}

Status LocalTrainer::writeWeights(const std::string &path, SavedWeights which) {
  if (alone())
    return saveWeights(*executor, bundle, path, which);
  std::string directory = inParts ? partsDirectory : o.checkpointDirectory;
  Result<std::vector<CheckpointDirectory>> directories = listCheckpoints(directory);
  if (directories.failed())
    return directories.error();
  auto newest = std::find_if(directories->begin(), directories->end(),
                             [&](const CheckpointDirectory &folder) {
                               return folder.complete && folder.step == stepsDone;
                             });
  if (newest == directories->end())
    return userError(directory + ": contains no checkpoint of step " + std::to_string(stepsDone) +
                     "; expected a directory that all ranks share. Nothing was " + "written to " +
                     path);
  Result<CheckpointReader> checkpoint = CheckpointReader::open(directory + "/" + newest->name);
  if (checkpoint.failed())
    return checkpoint.error();
  if (which == SavedWeights::Averages)
    if (Status status = checkpoint->useAverages(); status.failed())
      return status;
  std::string note;
  if (Status status = mergeCheckpoint(*checkpoint, path, &note); status.failed())
    return status;
  say(note);
  return Status::success();
}
