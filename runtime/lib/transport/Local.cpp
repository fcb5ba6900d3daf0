// Transport between devices that are threads of one process. The participants of an operation meet
// and exchange addresses, and each receiver copies.
//
//   open --all have arrived--> working --all have left--> open
//
// A participant whose memory others read leaves last: its call returns when all others have left.
#include "Reduce.h"
#include "zorse/runtime/Transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_map>

using namespace zorse::runtime;

namespace {

struct Part {
  uint32_t device;
  const void *data;    ///< what it shows
  size_t bytes;        ///< of data, for checks
  Compact places = {}; ///< of elements in data

  const std::byte *at(const Shard &shard, size_t elementBytes) const {
    return static_cast<const std::byte *>(data) + size_t(places.place(shard)) * elementBytes;
  }
};

/// Meeting of the participants of one instruction.
struct Rendezvous {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Part> parts; ///< participants that have arrived
  uint64_t step = 0;
  uint64_t generation = 0; ///< operations completed
  uint32_t left = 0;
  bool working = false;
  std::vector<std::byte> sum; ///< result of an all-reduce
};

class LocalHub {
public:
  Rendezvous &rendezvous(uint32_t instruction) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Rendezvous> &slot = rendezvous_[instruction];
    if (!slot)
      slot = std::make_unique<Rendezvous>();
    return *slot;
  }

  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  Status failure() {
    std::lock_guard<std::mutex> lock(mutex_);
    return Status(why_);
  }

  void abort(const Error &why) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted()) {
      why_ = why;
      aborted_.store(true, std::memory_order_release);
    }
    for (auto &[instruction, rendezvous] : rendezvous_) {
      std::lock_guard<std::mutex> inside(rendezvous->mutex); // no thread is between its test and
                                                             // its wait
      rendezvous->changed.notify_all();
    }
  }

private:
  std::mutex mutex_;
  std::unordered_map<uint32_t, std::unique_ptr<Rendezvous>> rendezvous_;
  std::atomic<bool> aborted_{false};
  Error why_;
};

class LocalTransport final : public Transport {
public:
  LocalTransport(std::shared_ptr<LocalHub> hub, uint32_t device)
      : hub_(std::move(hub)), device_(device) {}

  Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) override {
    return meet(operation, 2, {device_, data, bytes}, /*isRead=*/true, nullptr,
                [](const Rendezvous &) { return Status::success(); });
  }

  Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    return meet(operation, 2, {device_, nullptr, bytes}, /*isRead=*/false, nullptr,
                [&](const Rendezvous &rendezvous) -> Status {
                  const Part *sender = find(rendezvous, peer);
                  if (!sender || !sender->data || sender->bytes != bytes)
                    return internalError(
                        "a receive of " + std::to_string(bytes) + " bytes from device " +
                        std::to_string(peer) + " meets " +
                        (sender ? "a transfer of " + std::to_string(sender->bytes) + " bytes"
                                : "another device"));
                  if (bytes)
                    std::memcpy(data, sender->data, bytes);
                  return Status::success();
                });
  }

  Status allGather(Operation operation, const AllGatherArguments &a) override {
    const Held held = heldBy(device_, a);
    auto copy = [&](const Rendezvous &rendezvous) -> Status {
      for (const Shard &shard : a.shards) {
        if (shard.empty() || !held.whole.has(shard))
          continue;
        const Part *owner = find(rendezvous, shard.device);
        if (!owner || !owner->data)
          return internalError("device " + std::to_string(shard.device) +
                               " does not show its shard");
        std::byte *place = static_cast<std::byte *>(a.full) +
                           size_t(held.whole.place(shard)) * a.elementBytes;
        if (const std::byte *from = owner->at(shard, a.elementBytes); place != from)
          std::memcpy(place, from, size_t(shard.size()) * a.elementBytes);
      }
      return Status::success();
    };
    return meet(operation, countOf(a.reads, a.shards), {device_, a.shard, 0, held.shards},
                /*isRead=*/a.shard != nullptr, nullptr, copy);
  }

  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override {
    const size_t element = bytesOf(a.type);
    const Held held = heldBy(device_, a);
    auto add = [&](const Rendezvous &rendezvous) -> Status {
      for (const Shard &shard : a.shards) {
        if (shard.device != device_ || shard.empty())
          continue;
        std::vector<const void *> sources;
        for (uint32_t contributor : holdersOf(a.terms, shard)) {
          const Part *part = find(rendezvous, contributor);
          if (!part || !part->data)
            return internalError("device " + std::to_string(contributor) +
                                 " does not show its sums");
          sources.push_back(part->at(shard, element));
        }
        std::byte *target = static_cast<std::byte *>(a.shard) +
                            size_t(held.shards.place(shard)) * element;
        if (!roundsTerms(a, sources.size())) {
          rankedSum(a.type, target, sources, shard.size());
          continue;
        }
        std::vector<RoundedTerm> terms;
        terms.reserve(sources.size());
        for (const void *source : sources)
          terms.push_back({source, /*isBf16=*/false});
        sumOfRounded(reinterpret_cast<float *>(target), terms, shard.size());
      }
      return Status::success();
    };
    return meet(operation, countOf(a.terms, a.shards), {device_, a.full, 0, held.whole},
                /*isRead=*/a.full != nullptr, nullptr, add);
  }

  Status allReduce(Operation operation, const AllReduceArguments &a) override {
    size_t bytes = size_t(a.count) * bytesOf(a.type);
    // The last participant to arrive adds, before any participant overwrites its numbers.
    auto add = [&](Rendezvous &rendezvous) -> Status {
      std::vector<const void *> sources;
      for (uint32_t member : a.members) {
        const Part *part = find(rendezvous, member);
        if (!part || part->bytes != bytes)
          return internalError("device " + std::to_string(member) + " does not provide " +
                               std::to_string(bytes) + " bytes of sums");
        sources.push_back(part->data);
      }
      rendezvous.sum.resize(std::max(rendezvous.sum.size(), bytes));
      rankedSum(a.type, rendezvous.sum.data(), sources, a.count);
      return Status::success();
    };
    return meet(operation, a.members.size(), {device_, a.data, bytes}, /*isRead=*/false, add,
                [&](const Rendezvous &rendezvous) {
                  if (bytes) // of none there may be no memory
                    std::memcpy(a.data, rendezvous.sum.data(), bytes);
                  return Status::success();
                });
  }

  uint64_t moved() const override { return moved_.load(std::memory_order_relaxed); }
  void abort(const Error &why) override { hub_->abort(why); }

private:
  static const Part *find(const Rendezvous &rendezvous, uint32_t device) {
    for (const Part &part : rendezvous.parts)
      if (part.device == device)
        return &part;
    return nullptr;
  }

  /// Devices of two lists.
  static size_t countOf(const std::vector<Shard> &some, const std::vector<Shard> &others) {
    std::vector<uint32_t> devices;
    for (const std::vector<Shard> *list : {&some, &others})
      for (const Shard &run : *list)
        devices.push_back(run.device);
    std::sort(devices.begin(), devices.end());
    return size_t(std::unique(devices.begin(), devices.end()) - devices.begin());
  }

  /// Waits until `participants` devices have arrived. The last one runs `whenComplete` once; then
  /// all run `work`.
  template <typename Complete, typename Work>
  Status meet(Operation operation, size_t participants, Part mine, bool isRead,
              Complete whenComplete, Work &&work) {
    Rendezvous &rendezvous = hub_->rendezvous(operation.instruction);
    std::unique_lock<std::mutex> lock(rendezvous.mutex);
    auto waitFor = [&](auto &&condition) {
      rendezvous.changed.wait(lock, [&] { return hub_->aborted() || condition(); });
    };

    waitFor([&] { return !rendezvous.working; }); // others may still be leaving the previous step
    if (hub_->aborted())
      return leaveAborted(lock);
    if (!rendezvous.parts.empty() && rendezvous.step != operation.step) {
      lock.unlock();
      return internalError("two steps meet in instruction " +
                           std::to_string(operation.instruction));
    }
    rendezvous.step = operation.step;
    rendezvous.parts.push_back(std::move(mine));
    uint64_t generation = rendezvous.generation;
    if (rendezvous.parts.size() == participants) {
      if constexpr (!std::is_same_v<Complete, std::nullptr_t>)
        if (Status status = whenComplete(rendezvous); status.failed())
          return status;
      rendezvous.working = true;
      rendezvous.changed.notify_all();
    } else {
      waitFor([&] { return rendezvous.generation != generation || rendezvous.working; });
      if (hub_->aborted())
        return leaveAborted(lock);
    }

    lock.unlock();
    Status status = work(rendezvous);
    moved_.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
    if (status.failed())
      return status;

    if (++rendezvous.left == participants) {
      rendezvous.parts.clear();
      rendezvous.left = 0;
      rendezvous.working = false;
      ++rendezvous.generation;
      rendezvous.changed.notify_all();
    } else if (isRead) {
      waitFor([&] { return rendezvous.generation != generation; });
      if (rendezvous.generation == generation)
        return leaveAborted(lock);
    }
    return Status::success();
  }

  Status leaveAborted(std::unique_lock<std::mutex> &lock) {
    lock.unlock(); // abort() takes the locks in the opposite order
    return hub_->failure();
  }

  std::shared_ptr<LocalHub> hub_;
  uint32_t device_;
  std::atomic<uint64_t> moved_{0};
};

} // namespace

std::vector<std::unique_ptr<Transport>> zorse::runtime::makeLocalTransports(uint32_t devices) {
  auto hub = std::make_shared<LocalHub>();
  std::vector<std::unique_ptr<Transport>> transports;
  for (uint32_t device = 0; device < devices; ++device)
    transports.push_back(std::make_unique<LocalTransport>(hub, device));
  return transports;
}
