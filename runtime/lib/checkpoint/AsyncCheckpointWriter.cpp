#include "AsyncCheckpointWriter.h"

#include "Directories.h"
#include "Identity.h"
#include "Layout.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>

using namespace zorse;
using namespace zorse::runtime;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string at(uint64_t step) { return "checkpoint of step " + std::to_string(step); }

std::string describe(const abi::OptimizerStep &step) {
  std::string text = std::to_string(uint64_t(step.updates)) + " updates";
  return step.lossScale > 0
             ? text + " and a scale of " + std::to_string(step.lossScale) + " after " +
                   std::to_string(uint64_t(step.goodSteps)) + " good steps and " +
                   std::to_string(uint64_t(step.overflows)) + " overflows"
             : text;
}

constexpr size_t kKeptJobs = 16;

} // namespace

/// Outlives the checkpoints: after a failure an executor may still report that state is quiescent.
struct AsyncCheckpointWriter::WriterHandle {
  std::mutex mutex;
  AsyncCheckpointWriter *writer = nullptr;
};

class AsyncCheckpointWriter::Job final : public StateObserver {
public:
  Job(std::shared_ptr<WriterHandle> hub, uint64_t step, bool release, size_t devices)
      : hub(std::move(hub)), step(step), release(release), copied(devices, false) {}

  void onStateQuiescent(uint32_t device, uint64_t) override {
    std::lock_guard<std::mutex> lock(hub->mutex);
    if (hub->writer)
      hub->writer->stateIsStill(*this, device);
  }

  std::shared_ptr<WriterHandle> hub;
  const uint64_t step;
  const bool release;       ///< the executor waits for releaseState
  std::vector<char> copied; ///< by device of this process
  size_t signalled = 0;
  bool waited = false;    ///< the wait has been counted
  double copySeconds = 0; ///< seconds of the slowest device
};

struct AsyncCheckpointWriter::DeviceCopyWorker {
  explicit DeviceCopyWorker(DeviceState state) : state(std::move(state)) {}
  DeviceState state;
  size_t position = 0;
  std::deque<Job *> still; ///< jobs with quiescent state that is not copied yet
  bool free = true;        ///< the copy may be overwritten
  std::thread thread;
};

Result<std::map<uint32_t, uint64_t>> zorse::runtime::frozenHashes(const Executor &executor,
                                                                  const Bundle &bundle) {
  std::map<uint32_t, uint64_t> out;
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t *)> hash(XXH64_createState(),
                                                                          XXH64_freeState);
  std::vector<std::byte> part;
  for (const FrozenParameter &frozen : frozenParameters(bundle, executor.devices())) {
    XXH64_reset(hash.get(), 0);
    for (uint64_t at = 0; at < frozen.region.bytes(); at += part.size()) {
      part.resize(std::min<uint64_t>(frozen.region.bytes() - at, 1 << 20));
      if (Status status = executor.read(frozen.device, frozen.region, at, part.data(), part.size());
          status.failed())
        return status;
      XXH64_update(hash.get(), part.data(), part.size());
    }
    out[frozen.parameter] = XXH64_digest(hash.get());
  }
  return out;
}

AsyncCheckpointWriter::AsyncCheckpointWriter(AsyncCheckpointWriterContext context)
    : context_(std::move(context)), hub_(std::make_shared<WriterHandle>()) {
  hub_->writer = this;
}

Result<std::unique_ptr<AsyncCheckpointWriter>>
AsyncCheckpointWriter::create(AsyncCheckpointWriterContext context) {
  std::unique_ptr<AsyncCheckpointWriter> writer(new AsyncCheckpointWriter(std::move(context)));
  for (uint32_t device : writer->context_.executor.devices()) {
    Result<DeviceState> state =
        DeviceState::create(writer->context_.executor, layoutOf(writer->context_.bundle, device));
    if (state.failed())
      return state.error();
    writer->locals_.push_back(std::make_unique<DeviceCopyWorker>(std::move(*state)));
    writer->locals_.back()->position = writer->locals_.size() - 1;
  }
  for (auto &local : writer->locals_)
    local->thread = std::thread([owner = writer.get(), l = local.get()] { owner->copy(*l); });
  writer->writer_ = std::thread([owner = writer.get()] { owner->write(); });
  return writer;
}

AsyncCheckpointWriter::~AsyncCheckpointWriter() {
  {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->writer = nullptr;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto &local : locals_)
    if (local->thread.joinable())
      local->thread.join();
  if (writer_.joinable())
    writer_.join();
  // Jobs that an executor may still refer to live until the process ends.
  static std::mutex keptMutex;
  static std::list<std::unique_ptr<Job>> *kept = new std::list<std::unique_ptr<Job>>;
  for (auto &job : jobs_)
    if (job->signalled < locals_.size()) {
      std::lock_guard<std::mutex> lock(keptMutex);
      kept->push_back(std::move(job));
    }
}

void AsyncCheckpointWriter::startAt(uint64_t step, uint64_t samplesConsumed, bool stored,
                                    std::set<std::string> damaged) {
  std::lock_guard<std::mutex> lock(mutex_);
  startStep_ = step;
  lastDue_ = stored || step == 0 ? step : step - 1;
  startSamples_ = samplesConsumed;
  damaged_ = std::move(damaged);
}

void AsyncCheckpointWriter::warn(const std::string &text) {
  if (context_.options.warn)
    context_.options.warn(text);
}

AsyncCheckpointWriter::Job *AsyncCheckpointWriter::addJob(uint64_t step, bool release) {
  while (finished_ > kKeptJobs) {
    jobs_.pop_front();
    --finished_;
  }
  lastDue_ = step;
  jobs_.push_back(std::make_unique<Job>(hub_, step, release, locals_.size()));
  return jobs_.back().get();
}

StateObserver *AsyncCheckpointWriter::due(uint64_t step, bool last) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (superseded_ || step <= lastDue_ ||
      !(last || (context_.options.every > 0 && step % context_.options.every == 0)))
    return nullptr;
  // A checkpoint that is copied completes without further steps. One that is not copied depends on
  // steps in progress; its copier waits instead.
  bool waits =
      finished_ < jobs_.size() &&
      std::all_of(
          jobs_.back()->copied.begin(), jobs_.back()->copied.end(), [](char done) { return done; });
  if (waits) {
    countWait(lock, step);
    changed_.wait(lock, [&] { return finished_ == jobs_.size(); });
  }
  Job *job = addJob(step, /*release=*/true);
  job->waited = waits;
  return job;
}

void AsyncCheckpointWriter::countWait(std::unique_lock<std::mutex> &lock, uint64_t step) {
  ++counts_.waits;
  if (waitWarned_)
    return;
  waitWarned_ = true;
  lock.unlock();
  warn("the " + at(step) +
       " and training wait until the previous one is written: the disk is too slow for checkpoints "
       "this often (reported once)");
  lock.lock();
}

void AsyncCheckpointWriter::saveNow(uint64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (superseded_ || step <= lastDue_)
    return;
  Job *job = addJob(step, /*release=*/false);
  for (auto &local : locals_)
    local->still.push_back(job);
  job->signalled = locals_.size();
  changed_.notify_all();
}

void AsyncCheckpointWriter::stateIsStill(Job &job, uint32_t device) {
  const std::vector<uint32_t> &devices = context_.executor.devices();
  size_t position =
      size_t(std::lower_bound(devices.begin(), devices.end(), device) - devices.begin());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    locals_[position]->still.push_back(&job);
    ++job.signalled;
  }
  changed_.notify_all();
}

/// The thread of one device. It copies the device's state when it is quiescent and the previous
/// copy has been written.
void AsyncCheckpointWriter::copy(DeviceCopyWorker &local) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !local.still.empty(); });
    if (local.still.empty())
      return;
    Job *job = local.still.front();
    local.still.pop_front();
    if (!local.free && job->release && !job->waited) {
      job->waited = true;
      countWait(lock, job->step);
    }
    changed_.wait(lock, [&] { return local.free; }); // ends: the writer always finishes
    local.free = false;
    lock.unlock();
    Clock::time_point begin = Clock::now();
    if (Status status = local.state.copy(); status.failed())
      context_.executor.abort(status.error()); // memory that cannot be read cannot be used for
                                               // training
    double seconds = secondsSince(begin);
    if (job->release)
      context_.release(local.state.layout().device);
    lock.lock();
    job->copied[local.position] = true;
    job->copySeconds = std::max(job->copySeconds, seconds);
    changed_.notify_all();
  }
}

/// The writer thread: writes one checkpoint at a time.
void AsyncCheckpointWriter::write() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || finished_ < jobs_.size(); });
    if (finished_ == jobs_.size())
      return;
    Job &job = *jobs_[finished_];
    // A checkpoint is begun only if all devices will be copied.
    changed_.wait(lock, [&] { return job.signalled == locals_.size() || stopping_; });
    if (job.signalled < locals_.size()) {
      for (auto &local : locals_)
        local->free = true;
      changed_.notify_all();
      return;
    }
    lock.unlock();
    Clock::time_point begin = Clock::now();
    Outcome outcome = writeOne(job);
    conclude(job, outcome, secondsSince(begin));
    lock.lock();
  }
}

Acknowledgement AsyncCheckpointWriter::writeFiles(Job &job, const std::string &directory) {
  Acknowledgement out;
  if ((out.error = context_.fence.check())) {
  } else if (int cause = context_.storage->makeDirectory(directory)) {
    out.error = CheckpointError{cannot(directory, "made", cause)};
  }
  for (auto &local : locals_) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return job.copied[local->position]; });
    }
    const DeviceLayout &layout = local->state.layout();
    if (!out.error && (!layout.slices.empty() || layout.optimizerStep)) {
      Acknowledgement::File file;
      file.device = layout.device;
      if (layout.optimizerStep)
        file.optimizerStep = local->state.optimizerStep();
      if (!layout.slices.empty())
        out.error = writeDeviceFile(context_.fence, directory, layout, local->state.data(),
                                    local->state.optimizerStep().updates, file.sums);
      if (!out.error && !layout.slices.empty()) {
        std::lock_guard<std::mutex> lock(mutex_);
        counts_.bytes += layout.fileBytes;
      }
      out.files.push_back(std::move(file));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    local->free = true;
    changed_.notify_all();
  }
  if (!out.error)
    if (int cause = context_.storage->syncDirectory(directory))
      out.error = CheckpointError{cannot(directory, "written", cause)};
  if (!out.error && !frozenSaid_) {
    Result<std::map<uint32_t, uint64_t>> hashes = frozenHashes(context_.executor, context_.bundle);
    if (hashes.failed())
      out.error = CheckpointError{hashes.message()};
    else
      out.frozen = std::move(*hashes);
    frozenSaid_ = true;
  }
  if (!out.error)
    out.error = context_.fence.check();
  if (out.error && out.error->newer)
    withdraw(directory);
  return out;
}

/// Removes this rank's files. They may have been written late, after a newer run cleaned up. No
/// rank makes a checkpoint of the folder before this rank has acknowledged its files.
void AsyncCheckpointWriter::withdraw(const std::string &directory) {
  for (auto &local : locals_)
    context_.storage->remove(directory + "/" + local->state.layout().name);
  context_.storage->removeDirectory(directory); // fails if another rank's files are in it
}

/// Rank 0: writes the index after all files are complete.
std::optional<CheckpointError>
AsyncCheckpointWriter::commit(const Job &job, const std::string &directory,
                              const std::vector<Acknowledgement> &acknowledgements) {
  if (!layout_)
    layout_ = indexOf(context_.bundle, context_.runConfig);
  CheckpointIndex index = *layout_;
  index.step = job.step;
  index.generation = context_.fence.generation();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    index.consumedSamples = startSamples_ +
                            (job.step - startStep_) * uint64_t(context_.bundle.samples());
  }

  std::map<std::string, const Acknowledgement::File *> files; // by device
  std::optional<abi::OptimizerStep> optimizerStep;
  for (const Acknowledgement &acknowledgement : acknowledgements) {
    for (const Acknowledgement::File &file : acknowledgement.files) {
      if (file.optimizerStep && optimizerStep && !(*optimizerStep == *file.optimizerStep))
        return CheckpointError{"devices disagree about the updates applied and the loss scale: " +
                               describe(*optimizerStep) + ", and " + describe(*file.optimizerStep)};
      if (file.optimizerStep)
        optimizerStep = file.optimizerStep;
      if (file.device < context_.bundle.devices.size())
        files[context_.bundle.devices[file.device].name] = &file;
    }
    for (const auto &[parameter, hash] : acknowledgement.frozen)
      if (auto [known, isNew] = frozen_.emplace(parameter, hash);
          !isNew && known->second != hash && parameter < index.parameters.size())
        return CheckpointError{"devices hold different numbers of the frozen parameter '" +
                               index.parameters[parameter].name + "'"};
  }
  index.optimizerStep = optimizerStep.value_or(abi::OptimizerStep());
  for (const auto &[parameter, hash] : frozen_)
    if (parameter < index.parameters.size())
      index.parameters[parameter].hash = hash;

  for (CheckpointFile &file : index.files) {
    auto found = files.find(file.device);
    if (found == files.end() || found->second->sums.slices.size() != file.shards.size())
      return CheckpointError{"no rank has acknowledged the file of device " + file.device};
    file.headerHash = found->second->sums.header;
    for (size_t s = 0; s < file.shards.size(); ++s)
      file.shards[s].hash = found->second->sums.slices[s];
    // The files of other ranks must be visible on rank 0.
    std::string path = directory + "/" + file.name;
    int handle = -1;
    uint64_t bytes = 0;
    int cause = context_.storage->open(path, handle);
    if (!cause) {
      cause = context_.storage->size(handle, bytes);
      context_.storage->close(handle);
    }
    if (cause || bytes != file.bytes)
      return CheckpointError{cause ? cannot(path, "seen by rank 0", cause) +
                                         "; expected a directory that all ranks share"
                                   : path + ": rank 0 sees " + std::to_string(bytes) +
                                         " bytes of " + std::to_string(file.bytes)};
  }

  std::string text = writeCheckpointIndex(index), path = directory + "/" + kIndexName;
  if (Result<CheckpointIndex> check = parseCheckpointIndex(path, text.data(), text.size());
      check.failed())
    return CheckpointError{"internal error: " + check.message()};
  if (auto error = writeIndexFile(context_.fence, directory, text))
    return error;
  for (const std::string &synced : {directory, context_.fence.directory()})
    if (int cause = context_.storage->syncDirectory(synced))
      return CheckpointError{cannot(synced, "written", cause)};
  return std::nullopt;
}

AsyncCheckpointWriter::Outcome AsyncCheckpointWriter::writeOne(Job &job) {
  std::string name = directoryName(job.step, context_.fence.generation()),
              directory = context_.fence.directory() + "/" + name;
  ProcessGroup &group = context_.group;
  Acknowledgement mine = writeFiles(job, directory);
  Result<std::vector<std::string>> said = group.allGatherBytes(
      "checkpoint " + std::to_string(job.step) + " files", writeAcknowledgement(mine));
  if (said.failed())
    return {CheckpointError{said.message()}, /*jobFailed=*/true};

  std::vector<Acknowledgement> acknowledgements;
  CheckpointError error;
  for (uint32_t rank = 0; rank < said->size(); ++rank) {
    acknowledgements.push_back(parseAcknowledgement((*said)[rank], rank));
    if (const auto &theirs = acknowledgements.back().error) {
      error.text +=
          (error.text.empty() ? "" : "; ") +
          (group.size() > 1
               ? "rank " + std::to_string(rank) + " (" +
                     context_.bundle
                         .devices[std::min<size_t>(rank, context_.bundle.devices.size() - 1)]
                         .name +
                     "): "
               : "") +
          theirs->text;
      error.superseded |= theirs->superseded;
    }
  }
  bool failed = !error.text.empty();
  if (!failed) {
    std::string verdict;
    if (const auto &reported = context_.options.reported; reported && !reported->await(job.step))
      return {CheckpointError{"the run is over"}, /*jobFailed=*/true};
    if (group.rank() == 0)
      if (auto problem = commit(job, directory, acknowledgements))
        verdict = (problem->superseded ? "superseded " : "failed ") + problem->text;
    said = group.allGatherBytes("checkpoint " + std::to_string(job.step) + " index", verdict);
    if (said.failed())
      return {CheckpointError{said.message()}, /*jobFailed=*/true};
    if (const std::string &text = (*said)[0]; !text.empty()) {
      failed = true;
      error.superseded = text.rfind("superseded ", 0) == 0;
      error.text = (group.size() > 1 ? "rank 0: " : "") + text.substr(text.find(' ') + 1);
    }
  }
  if (failed) {
    // No rank writes to the folder any more. Remaining files are removed with the next complete
    // checkpoint.
    if (group.rank() == 0 && !error.superseded)
      (void)removeCheckpoint(context_.fence, name);
    return {error, /*jobFailed=*/false};
  }
  if (group.rank() == 0) {
    std::set<std::string> damaged;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      damaged = damaged_;
    }
    if (auto problem = removeOldCheckpoints(context_.fence, name, context_.options.keep, damaged))
      warn("old checkpoints: " + problem->text);
  }
  return {std::nullopt, /*jobFailed=*/false};
}

void AsyncCheckpointWriter::conclude(Job &job, const Outcome &outcome, double seconds) {
  bool superseded = outcome.error && outcome.error->superseded;
  if (superseded)
    context_.executor.abort(userError(outcome.error->text));
  // Else finish() reports it.
  else if (outcome.error && !outcome.jobFailed && context_.options.weightsFile.empty())
    warn("the " + at(job.step) +
         " failed; training continues and older checkpoints are kept: " + outcome.error->text);
  else if (!outcome.error && context_.group.rank() == 0 && context_.options.written)
    context_.options.written(job.step, context_.fence.directory() + "/" +
                                           directoryName(job.step, context_.fence.generation()));
  std::lock_guard<std::mutex> lock(mutex_);
  outcome.error ? ++counts_.failed : ++counts_.written;
  counts_.copySeconds += job.copySeconds;
  counts_.writeSeconds += seconds;
  lastError_ = outcome.error;
  if (superseded)
    superseded_ = outcome.error;
  ++finished_;
  changed_.notify_all();
}

CheckpointManager::Counts AsyncCheckpointWriter::counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

uint64_t AsyncCheckpointWriter::memory() const {
  uint64_t bytes = 0;
  for (const auto &local : locals_)
    bytes += local->state.layout().stateBytes;
  return bytes;
}

Status AsyncCheckpointWriter::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A checkpoint of a step that was aborted never becomes complete.
  changed_.wait(lock, [&] {
    return finished_ == jobs_.size() || jobs_[finished_]->signalled < locals_.size();
  });
  if (superseded_)
    return userError(superseded_->text);
  if (finished_ < jobs_.size())
    return userError("the " + at(jobs_.back()->step) + " was not taken: its step did not end");
  if (const std::string &file = context_.options.weightsFile; lastError_ && !file.empty())
    return userError(file + ": not written: the parameters after step " + std::to_string(lastDue_) +
                     " could not be collected in a file next to it: " + lastError_->text);
  if (lastError_)
    return userError("the last checkpoint, of step " + std::to_string(lastDue_) +
                     ", is not complete: " + lastError_->text + "; older checkpoints in " +
                     context_.fence.directory() + " are kept");
  return Status::success();
}
