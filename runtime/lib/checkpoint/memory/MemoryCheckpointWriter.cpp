#include "MemoryCheckpointWriter.h"

#include "../AsyncCheckpointWriter.h"
#include "../Json.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <new>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kWaitsToReport = 10;

std::string namedStep(uint64_t step) { return "memory checkpoint " + std::to_string(step); }

} // namespace

/// Outlives the writer: after a failure an executor may still report that state is quiescent.
class MemoryCheckpointWriter::Observer final : public StateObserver {
public:
  void onStateQuiescent(uint32_t device, uint64_t step) override {
    std::lock_guard<std::mutex> lock(mutex);
    if (!writer)
      return;
    StateObserver *other = nullptr;
    if (const auto found = next.find(step); found != next.end())
      other = found->second;
    if (other) {
      writer->context_.readers.add(device);
      other->onStateQuiescent(device, step);
    }
    writer->stateIsStill(device, step);
  }

  std::mutex mutex;
  MemoryCheckpointWriter *writer = nullptr;
  std::map<uint64_t, StateObserver *> next; ///< by step
};

struct MemoryCheckpointWriter::Copier {
  uint32_t device = 0;
  DeviceLayout layout;
  std::array<std::optional<MemorySlot>, 2> slots;
  std::deque<uint64_t> still;     ///< steps with quiescent state that is not copied yet
  std::optional<uint64_t> copied; ///< last step that was copied
  std::string problem;
  MemorySlot *newest = nullptr; ///< slot of the last copy; complete after finishSlot()
  SlotHeader header;            ///< its header
  std::unique_ptr<MemoryPeer> buddy;
  std::thread thread;
};

MemoryCheckpointWriter::MemoryCheckpointWriter(MemoryCheckpointContext context)
    : context_(std::move(context)), observer_(std::make_shared<Observer>()) {
  observer_->writer = this;
}

MemoryCheckpointWriter::~MemoryCheckpointWriter() {
  {
    std::lock_guard<std::mutex> lock(observer_->mutex);
    observer_->writer = nullptr;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto &copier : copiers_)
    copier->thread.join();
  if (committer_.joinable())
    committer_.join();
  // An executor may still refer to it.
  static std::mutex keptMutex;
  static auto *kept = new (std::nothrow) std::list<std::shared_ptr<Observer>>;
  std::lock_guard<std::mutex> lock(keptMutex);
  if (kept)
    kept->push_back(std::move(observer_));
}

void MemoryCheckpointWriter::startAt(uint64_t step, uint64_t consumedSamples,
                                     std::optional<MemoryStep> restored) {
  std::lock_guard<std::mutex> lock(mutex_);
  startStep_ = step;
  startSamples_ = consumedSamples;
  kept_ = restored;
}

void MemoryCheckpointWriter::start() {
  for (uint32_t device : context_.executor.devices()) {
    copiers_.push_back(std::make_unique<Copier>());
    copiers_.back()->device = device;
    copiers_.back()->layout = layoutOf(context_.bundle, device);
  }
  for (auto &copier : copiers_)
    copier->thread = std::thread([this, c = copier.get()] { copy(*c); });
  committer_ = std::thread([this] { commit(); });
}

StateObserver *MemoryCheckpointWriter::due(uint64_t step, StateObserver *next) {
  if (step % context_.every != 0)
    return next;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (disabled_)
      return next;
    due_.push_back(step);
  }
  {
    std::lock_guard<std::mutex> lock(observer_->mutex);
    constexpr size_t kSteps = 16; // more than are ever in progress
    if (next)
      observer_->next[step] = next;
    while (observer_->next.size() > kSteps)
      observer_->next.erase(observer_->next.begin());
  }
  if (copiers_.empty())
    start();
  return observer_.get();
}

void MemoryCheckpointWriter::stateIsStill(uint32_t device, uint64_t step) {
  const std::vector<uint32_t> &devices = context_.executor.devices();
  const auto place = std::lower_bound(devices.begin(), devices.end(), device);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    copiers_[size_t(place - devices.begin())]->still.push_back(step);
  }
  changed_.notify_all();
}

/// Opens the slots of a device, except the one with the state from which the run has resumed. That
/// one is opened after the first commit.
void MemoryCheckpointWriter::openSlots(Copier &copier) {
  std::optional<MemoryStep> kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kept = kept_;
  }
  const std::string &name = context_.bundle.devices[copier.device].name;
  std::string problem;
  for (int which = 0; which < 2; ++which) {
    const std::string path = context_.store.slotPath(name, which);
    if (copier.slots[which] || (kept && MemoryStore::contentOf(path) == kept))
      continue;
    Result<MemorySlot> slot = context_.store.openSlot(name, which, copier.layout.stateBytes);
    if (slot.failed())
      problem = slot.message();
    else
      copier.slots[which].emplace(std::move(*slot));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (copier.problem.empty())
    copier.problem = problem;
}

/// Whether a slot can be opened: the one from which the run has resumed is free after the first
/// commit.
bool MemoryCheckpointWriter::lacksSlot(const Copier &copier) const {
  return copier.problem.empty() && !disabled_ && kept_ &&
         kept_->generation == context_.group.generation() && !(copier.slots[0] && copier.slots[1]);
}

/// The thread of one device.
void MemoryCheckpointWriter::copy(Copier &copier) {
  openSlots(copier);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !copier.still.empty() || lacksSlot(copier); });
    if (!stopping_ && lacksSlot(copier)) {
      lock.unlock();
      openSlots(copier);
      lock.lock();
      continue;
    }
    if (copier.still.empty())
      return;
    const uint64_t step = copier.still.front();
    copier.still.pop_front();
    auto isFree = [&] { // the previous copy is committed
      return stopping_ || disabled_ || !copier.copied ||
             kept_ == MemoryStep{context_.group.generation(), *copier.copied};
    };
    if (!isFree() && ++counts_.waits == kWaitsToReport) {
      lock.unlock();
      if (context_.warn)
        context_.warn("training waits for checkpoints in memory: the copies take longer than "
                      "--memory-checkpoint-interval steps. Give a larger interval (reported once)");
      lock.lock();
    }
    changed_.wait(lock, isFree);
    if (lacksSlot(copier)) {
      lock.unlock();
      openSlots(copier);
      lock.lock();
    }
    const bool copies = !disabled_ && !stopping_ && copier.problem.empty();
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    bool complete = false;
    if (copies) {
      const Status status = copyInto(copier, step);
      complete = status.succeeded();
      if (!complete)
        context_.executor.abort(status.error()); // memory that cannot be read cannot be used for
                                                 // training
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    context_.readers.release(copier.device);
    complete = complete && finishSlot(copier);
    const Status sent = complete ? copyToBuddy(copier) : Status::success();
    lock.lock();
    if (sent.failed() && copier.problem.empty())
      copier.problem = sent.message();
    if (complete || !copies)
      copier.copied = step;
    counts_.copySeconds += seconds;
    counts_.copies += copies;
    changed_.notify_all();
  }
}

/// Copies the slot that was written last to the buddy.
Status MemoryCheckpointWriter::copyToBuddy(Copier &copier) {
  if (!context_.buddy)
    return Status::success();
  if (!copier.buddy) {
    Result<std::unique_ptr<MemoryPeer>> connected =
        MemoryPeer::connect(*context_.buddy, context_.peers);
    if (connected.failed())
      return connected.error();
    copier.buddy = std::move(*connected);
  }
  std::optional<MemoryStep> kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kept = kept_;
  }
  return copier.buddy->write(context_.bundle.devices[copier.device].name, kept, copier.header,
                             copier.newest->state());
}

Status MemoryCheckpointWriter::copyInto(Copier &copier, uint64_t step) {
  std::optional<MemoryStep> kept;
  SlotHeader header;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kept = kept_;
    header.consumedSamples = startSamples_ +
                             (step - startStep_) * uint64_t(context_.bundle.samples());
  }
  std::optional<MemorySlot> *chosen = nullptr;
  for (std::optional<MemorySlot> &slot : copier.slots)
    if (slot && !(kept && slot->content() == kept))
      chosen = &slot;
  if (!chosen)
    return internalError("checkpoints in memory: no slot is free");
  MemorySlot &slot = **chosen;
  slot.begin();
  header.of = {context_.group.generation(), step};
  header.stateBytes = copier.layout.stateBytes;
  header.hasOptimizerStep = copier.layout.optimizerStep.has_value();
  std::strncpy(header.file, copier.layout.name.c_str(), sizeof header.file - 1);
  if (Status status =
          copyDeviceState(context_.executor, copier.layout, slot.state(), header.optimizerStep);
      status.failed())
    return status;
  copier.newest = &slot;
  copier.header = header;
  return Status::success();
}

/// Completes the slot of the last copy when its step is reported. Returns false if that is too
/// late: the run is over.
bool MemoryCheckpointWriter::finishSlot(Copier &copier) {
  if (context_.reported && !context_.reported->await(copier.header.of.step))
    return false;
  copier.newest->finish(copier.header);
  return true;
}

bool MemoryCheckpointWriter::isCopied(uint64_t step) const {
  return std::all_of(copiers_.begin(), copiers_.end(),
                     [&](const auto &copier) { return copier->copied && *copier->copied >= step; });
}

/// The committer thread.
void MemoryCheckpointWriter::commit() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(
        lock, [&] { return stopping_ || disabled_ || (!due_.empty() && isCopied(due_.front())); });
    if (stopping_ || disabled_)
      return;
    const uint64_t step = due_.front();
    due_.pop_front();
    std::string problem;
    for (const auto &copier : copiers_)
      if (problem.empty())
        problem = copier->problem;
    lock.unlock();
    const Status status = agree(step, problem);
    lock.lock();
    if (status.failed())
      return;
    const bool first = counts_.committed++ == 0;
    kept_ = MemoryStep{context_.group.generation(), step};
    changed_.notify_all();
    if (!first)
      continue;
    lock.unlock();
    std::vector<std::string> devices;
    devices.reserve(context_.bundle.devices.size());
    for (const BundleDevice &device : context_.bundle.devices)
      devices.push_back(device.name);
    context_.store.removeBefore(context_.group.generation(), devices);
    if (context_.first)
      context_.first(step);
    lock.lock();
  }
}

/// Acknowledges the copies of a step and waits for all ranks. If one has failed, checkpoints in
/// memory end.
Status MemoryCheckpointWriter::agree(uint64_t step, const std::string &problem) {
  std::string mine = problem;
  if (!layoutWritten_) {
    layoutWritten_ = true;
    if (Status status = writeLayout(); status.failed() && mine.empty())
      mine = status.message();
  }
  Result<std::vector<std::string>> said = context_.group.allGatherBytes(namedStep(step), mine);
  if (said.failed()) {
    disable("", /*jobFailed=*/true);
    return said.error();
  }
  for (uint32_t rank = 0; rank < said->size(); ++rank)
    if (const std::string &theirs = (*said)[rank]; !theirs.empty()) {
      disable("rank " + std::to_string(rank) + ": " + theirs, /*jobFailed=*/false);
      return userError(theirs);
    }
  return Status::success();
}

/// Exchanges the hashes of frozen parameters, and writes the layout of this generation.
Status MemoryCheckpointWriter::writeLayout() {
  Result<std::map<uint32_t, uint64_t>> hashes = frozenHashes(context_.executor, context_.bundle);
  if (hashes.failed())
    return hashes.error();
  json mine = json::object();
  for (const auto &[parameter, hash] : *hashes)
    mine[std::to_string(parameter)] = hash;
  Result<std::vector<std::string>> all =
      context_.group.allGatherBytes("memory checkpoint: frozen parameters", mine.dump());
  if (all.failed())
    return all.error();
  CheckpointIndex index = indexOf(context_.bundle, context_.runConfig, /*allDevices=*/true);
  index.generation = context_.group.generation();
  for (const std::string &text : *all) {
    const json theirs = json::parse(text, nullptr, false);
    if (!theirs.is_object())
      continue;
    for (const auto &[parameter, hash] : theirs.items())
      if (const size_t p = std::strtoull(parameter.c_str(), nullptr, 10);
          p < index.parameters.size() && hash.is_number_unsigned())
        index.parameters[p].hash = hash.get<uint64_t>();
  }
  return context_.store.writeLayout(index.generation, writeCheckpointIndex(index));
}

void MemoryCheckpointWriter::disable(const std::string &why, bool jobFailed) {
  if (!jobFailed && context_.warn)
    context_.warn("checkpoints in memory end: " + why +
                  ". Give another --memory-checkpoint-dir on a memory file system with enough "
                  "space, or --memory-checkpoint-interval 0. Checkpoints in storage go on");
  {
    std::lock_guard<std::mutex> lock(mutex_);
    disabled_ = true;
  }
  changed_.notify_all();
}

CheckpointManager::MemoryCounts MemoryCheckpointWriter::counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}
