#include "NcclTransport.h"

#include "FixedOrderSum.h"
#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::nccl;

namespace {

constexpr std::chrono::milliseconds kWatch(20);

bool contains(const std::vector<uint32_t> &list, uint32_t device) {
  return std::find(list.begin(), list.end(), device) != list.end();
}

/// The devices in a list of runs, each once.
std::vector<uint32_t> devicesOf(const std::vector<Shard> &list) {
  std::vector<uint32_t> devices;
  for (const Shard &run : list)
    if (!contains(devices, run.device))
      devices.push_back(run.device);
  return devices;
}

} // namespace

NcclTransport::NcclTransport(const NcclApi &api, const DeviceTransportMember &member,
                             const DeviceTransportOptions &options)
    : api_(api), member_(member), options_(options) {
  for (const std::vector<uint32_t> &group : options.plan.groups)
    if (contains(group, member.device))
      communicators_.push_back(std::make_unique<Communicator>(api, group, member.device, failure_));
}

NcclTransport::~NcclTransport() {
  onFailure(nullptr);
  atOnce<std::unique_ptr<Communicator>>(communicators_,
                                        [](auto &communicator) { communicator.reset(); });
}

Communicator *NcclTransport::communicatorOf(const std::vector<uint32_t> &devices) {
  for (const auto &communicator : communicators_)
    if (communicator->devices().size() == devices.size() &&
        std::all_of(devices.begin(), devices.end(),
                    [&](uint32_t device) { return communicator->rankOf(device) >= 0; }))
      return communicator.get();
  return nullptr;
}

std::string NcclTransport::namesOf(const Communicator &communicator) const {
  std::string names;
  for (uint32_t device : communicator.devices())
    names += (names.empty() ? "" : ", ") + options_.names[device];
  return names;
}

Status NcclTransport::done(const Status &status) {
  if (status.failed())
    return failure_.get() ? Status(*failure_.get())
                          : Status(userError("device " + options_.names[member_.device] + ": " +
                                             status.message()));
  ++moved_;
  return Status::success();
}

Status NcclTransport::exchange(const char *what, const std::vector<Transfer> &transfers,
                               WorkStream &stream, Communicator::Clock::time_point deadline) {
  if (transfers.empty())
    return Status::success();
  Communicator &all = *communicators_.front();
  return all.group(
      what,
      [&](Comm comm) {
        for (const Transfer &transfer : transfers) {
          const int peer = all.rankOf(transfer.peer);
          const int result = transfer.sends ? api_.ncclSend(pointer(transfer.data), transfer.bytes,
                                                            kInt8, peer, comm, stream.handle())
                                            : api_.ncclRecv(pointer(transfer.data), transfer.bytes,
                                                            kInt8, peer, comm, stream.handle());
          if (result != kSuccess && result != kInProgress)
            return result;
        }
        return kSuccess;
      },
      deadline);
}

Status NcclTransport::send(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) {
  return done(exchange("ncclSend", {{true, peer, data, bytes}}, stream));
}

Status NcclTransport::receive(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) {
  return done(exchange("ncclRecv", {{false, peer, data, bytes}}, stream));
}

Status NcclTransport::gatherInGroup(Communicator &communicator, const DeviceAllGather &gather,
                                    WorkStream &stream) {
  const std::vector<Shard> &shards = gather.shards, &reads = gather.reads;
  const std::vector<uint32_t> &devices = communicator.devices();
  const size_t size = gather.elementBytes;
  bool equal = shards.size() == devices.size() && reads.size() == devices.size();
  for (size_t i = 0; i < shards.size() && equal; ++i)
    equal = shards[i].device == devices[i] && shards[i].begin == int64_t(i) * shards[0].size() &&
            shards[i].size() == shards[0].size() && reads[i].begin == 0;
  if (equal) {
    const size_t bytes = size_t(shards[0].size()) * size;
    return communicator.run("ncclAllGather", [&](Comm comm) {
      return api_.ncclAllGather(pointer(gather.shard), pointer(gather.full), bytes, kInt8, comm,
                                stream.handle());
    });
  }
  const Compact image(reads, member_.device);
  return communicator.group("ncclBroadcast", [&](Comm comm) {
    for (const Shard &shard : shards) {
      if (shard.empty())
        continue;
      void *place = pointer(gather.full + uint64_t(image.place(shard)) * size); // of the owner its
                                                                                // shard
      if (int result = api_.ncclBroadcast(place, place, size_t(shard.size()) * size, kInt8,
                                          communicator.rankOf(shard.device), comm, stream.handle());
          result != kSuccess && result != kInProgress)
        return result;
    }
    return kSuccess;
  });
}

Status NcclTransport::allGather(const DeviceAllGather &gather, WorkStream &stream) {
  const std::vector<uint32_t> readers = devicesOf(gather.reads);
  Shard all{0, INT64_MAX, 0};
  for (const Shard &shard : gather.shards)
    if (!shard.empty())
      all = {0, std::min(all.begin, shard.begin), std::max(all.end, shard.end)};
  const bool everybodyReads =
      std::all_of(gather.reads.begin(), gather.reads.end(),
                  [&](const Shard &run) { return run.has(all); }) &&
      std::all_of(gather.shards.begin(), gather.shards.end(),
                  [&](const Shard &shard) { return contains(readers, shard.device); });
  if (Communicator *own = everybodyReads ? communicatorOf(readers) : nullptr)
    return done(gatherInGroup(*own, gather, stream));
  const size_t size = gather.elementBytes;
  const Held held(Compact(gather.reads, member_.device), Compact(gather.shards, member_.device),
                  gather.shard.value - gather.full.value, size);
  std::vector<Transfer> transfers;
  Status status;
  for (const Shard &shard : gather.shards) {
    if (shard.empty() || (shard.device != member_.device && !held.whole.has(shard)))
      continue;
    const size_t bytes = size_t(shard.size()) * size;
    const DeviceAddress place = gather.full + uint64_t(held.whole.place(shard)) * size; // of who
                                                                                        // reads it
    if (shard.device != member_.device) {
      transfers.push_back({false, shard.device, place, bytes});
      continue;
    }
    const DeviceAddress mine = gather.shard + uint64_t(held.shards.place(shard)) * size;
    for (uint32_t reader : holdersOf(gather.reads, shard)) {
      if (reader != member_.device)
        transfers.push_back({true, reader, mine, bytes});
      else if (mine != place && status.succeeded())
        status = stream.copy(place, mine, bytes);
    }
  }
  return done(status.failed() ? status : exchange("all-gather", transfers, stream));
}

Status NcclTransport::reduceScatter(const DeviceReduction &reduction, WorkStream &stream) {
  // An owner's shards take turns: a round brings it terms of one of them.
  std::vector<std::vector<Shard>> turns;
  std::map<uint32_t, size_t> taken; // by owner
  for (const Shard &shard : reduction.shards) {
    const size_t turn = taken[shard.device]++;
    turns.resize(std::max(turns.size(), turn + 1));
    turns[turn].push_back(shard);
  }
  for (const std::vector<Shard> &shards : turns) {
    int64_t largest = 0;
    for (const Shard &shard : shards)
      largest = std::max(largest, shard.size());
    for (int64_t begin = 0; begin < largest; begin += reduction.chunk)
      if (Status status = reduceRound(reduction, shards, begin, stream); status.failed())
        return done(status);
  }
  return done(Status::success());
}

Status NcclTransport::reduceRound(const DeviceReduction &reduction,
                                  const std::vector<Shard> &shards, int64_t begin,
                                  WorkStream &stream) {
  const uint64_t size = bytesOf(reduction.type),
                 stride = partStride(uint64_t(reduction.chunk) * size),
                 roundedApart = roundedStride(reduction.chunk);
  const RoundedSumFunctions &functions = options_.sums.rounded;
  const Held held(Compact(reduction.terms, member_.device),
                  Compact(reduction.shards, member_.device),
                  reduction.shard.value - reduction.full.value, size);
  std::vector<Transfer> transfers;
  std::vector<uint32_t> contributors;
  DeviceAddress sum;
  int64_t elements = 0; // of it
  bool roundsSum = false;
  size_t sent = 0; // rounded terms
  Status status;
  for (const Shard &shard : shards) {
    const int64_t count = std::clamp<int64_t>(shard.size() - begin, 0, reduction.chunk);
    const std::vector<uint32_t> holders = holdersOf(reduction.terms, shard);
    const bool rounds = reduction.bf16Terms && holders.size() > 1;
    const size_t bytes = size_t(count) * (rounds ? bytesOf(NumberType::BF16) : size);
    const DeviceAddress mine = reduction.full + uint64_t(held.whole.place(shard) + begin) *
                                                    size; // of who contributes to it
    if (count == 0)
      continue;
    if (shard.device != member_.device) {
      if (!held.whole.has(shard))
        continue;
      const DeviceAddress rounded = reduction.sends + (rounds ? sent++ : 0) * roundedApart;
      if (rounds && status.succeeded())
        status = roundTerm(functions, mine, rounded, count, stream);
      transfers.push_back({true, shard.device, rounds ? rounded : mine, bytes});
      continue;
    }
    contributors = holders;
    roundsSum = rounds;
    sum = reduction.shard + uint64_t(held.shards.place(shard) + begin) * size;
    elements = count;
    for (size_t i = 0; i < contributors.size() && status.succeeded(); ++i) {
      const DeviceAddress term =
          contributors.size() == 1 ? sum : reduction.parts + i * (rounds ? roundedApart : stride);
      if (contributors[i] != member_.device)
        transfers.push_back({false, contributors[i], term, bytes});
      else if (rounds)
        status = roundTerm(functions, mine, term, count, stream);
      else if (mine != term)
        status = stream.copy(term, mine, bytes);
    }
  }
  if (status.succeeded())
    status = exchange("reduce-scatter", transfers, stream);
  if (status.succeeded() && roundsSum)
    return addRoundedTerms(functions, reduction.parts, roundedApart, contributors.size(),
                           reduction.parts + contributors.size() * roundedApart, stride, sum,
                           elements, stream);
  if (status.succeeded() && contributors.size() > 1)
    status = addTerms(options_.sums, reduction.type, reduction.parts, stride, contributors.size(),
                      sum, elements, stream);
  return status;
}

Status NcclTransport::allReduce(const DeviceSum &sum, WorkStream &stream) {
  const size_t bytes = size_t(sum.count) * sizeof(double);
  Status status;
  if (Communicator *own = communicatorOf(sum.members); own && own->devices() == sum.members) {
    status = own->run("ncclAllGather", [&](Comm comm) {
      return api_.ncclAllGather(pointer(sum.data), pointer(sum.parts), size_t(sum.count), kFloat64,
                                comm, stream.handle());
    });
  } else {
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < sum.members.size() && status.succeeded(); ++i) {
      if (sum.members[i] == member_.device) {
        status = stream.copy(sum.parts + i * bytes, sum.data, bytes);
        continue;
      }
      transfers.push_back({true, sum.members[i], sum.data, bytes});
      transfers.push_back({false, sum.members[i], sum.parts + i * bytes, bytes});
    }
    if (status.succeeded())
      status = exchange("all-reduce", transfers, stream);
  }
  if (status.succeeded())
    status = addTerms(options_.sums, NumberType::F64, sum.parts, bytes, sum.members.size(),
                      sum.data, sum.count, stream);
  return done(status);
}

void NcclTransport::onFailure(std::function<void(const Error &)> told) {
  std::unique_lock<std::mutex> lock(mutex_);
  ending_ = true;
  wake_.notify_all();
  lock.unlock();
  if (watcher_.joinable())
    watcher_.join();
  ending_ = false;
  told_ = std::move(told);
  if (told_)
    watcher_ = std::thread([this] { watch(); });
}

void NcclTransport::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kWatch, [&] { return ending_; }))
    for (const auto &communicator : communicators_)
      if (Status status = communicator->asynchronousError(); status.failed()) {
        lock.unlock();
        told_(userError("device " + options_.names[member_.device] + ": " + status.message()));
        return;
      }
}

void NcclTransport::abort(const Error &why) {
  failure_.keep(why);
  atOnce<std::unique_ptr<Communicator>>(communicators_,
                                        [](auto &communicator) { communicator->abort(); });
}
