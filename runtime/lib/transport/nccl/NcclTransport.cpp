#include "NcclTransport.h"

#include "RankedSum.h"
#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::nccl;

namespace {

constexpr std::chrono::milliseconds kWatch(20);

/// Returns the shard of a device, or an empty shard if it has none.
Shard shardOf(const std::vector<Shard> &shards, uint32_t device) {
  for (const Shard &shard : shards)
    if (shard.device == device)
      return shard;
  return {device, 0, 0};
}

bool contains(const std::vector<uint32_t> &list, uint32_t device) { return std::find(list.begin(), list.end(), device) != list.end(); }

} // namespace

NcclTransport::NcclTransport(const NcclApi &api, const DirectMember &member, const DirectOptions &options)
    : api_(api), member_(member), options_(options) {
  for (const std::vector<uint32_t> &group : options.plan.groups)
    if (contains(group, member.device))
      communicators_.push_back(std::make_unique<Communicator>(api, group, member.device, failure_));
}

NcclTransport::~NcclTransport() {
  onFailure(nullptr);
  atOnce<std::unique_ptr<Communicator>>(communicators_, [](auto &communicator) { communicator.reset(); });
}

Communicator *NcclTransport::communicatorOf(std::vector<uint32_t> devices) {
  std::sort(devices.begin(), devices.end());
  for (const auto &communicator : communicators_)
    if (communicator->devices() == devices)
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
    return failure_.get() ? Status(*failure_.get()) : Status(userError("device " + options_.names[member_.device] + ": " + status.message()));
  ++moved_;
  return Status::success();
}

Status NcclTransport::exchange(const char *what, const std::vector<Transfer> &transfers, WorkStream &stream,
                               Communicator::Clock::time_point deadline) {
  if (transfers.empty())
    return Status::success();
  Communicator &all = *communicators_.front();
  return all.group(
      what,
      [&](Comm comm) {
        for (const Transfer &transfer : transfers) {
          const int peer = all.rankOf(transfer.peer);
          const int result = transfer.sends ? api_.ncclSend(pointer(transfer.data), transfer.bytes, kInt8, peer, comm, stream.handle())
                                            : api_.ncclRecv(pointer(transfer.data), transfer.bytes, kInt8, peer, comm, stream.handle());
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

Status NcclTransport::gatherInGroup(Communicator &communicator, const DirectGather &gather, WorkStream &stream) {
  const std::vector<Shard> &shards = gather.shards;
  const size_t size = gather.elementBytes;
  bool equal = shards.size() == communicator.devices().size();
  for (size_t i = 0; i < shards.size() && equal; ++i)
    equal = shards[i].device == communicator.devices()[i] && shards[i].begin == int64_t(i) * (shards[0].end - shards[0].begin) &&
            shards[i].end - shards[i].begin == shards[0].end - shards[0].begin;
  if (equal) {
    const size_t bytes = size_t(shards[0].end - shards[0].begin) * size;
    return communicator.run("ncclAllGather", [&](Comm comm) {
      return api_.ncclAllGather(pointer(gather.shard), pointer(gather.full), bytes, kInt8, comm, stream.handle());
    });
  }
  return communicator.group("ncclBroadcast", [&](Comm comm) {
    for (const Shard &shard : shards) {
      if (shard.begin == shard.end)
        continue;
      void *place = pointer(gather.full + uint64_t(shard.begin) * size); // destination of the shard of each owner
      if (int result = api_.ncclBroadcast(place, place, size_t(shard.end - shard.begin) * size, kInt8, communicator.rankOf(shard.device), comm,
                                          stream.handle());
          result != kSuccess && result != kInProgress)
        return result;
    }
    return kSuccess;
  });
}

Status NcclTransport::allGather(const DirectGather &gather, WorkStream &stream) {
  const bool everybodyReads =
      std::all_of(gather.shards.begin(), gather.shards.end(), [&](const Shard &shard) { return contains(gather.readers, shard.device); });
  if (Communicator *own = everybodyReads ? communicatorOf(gather.readers) : nullptr)
    return done(gatherInGroup(*own, gather, stream));
  const size_t size = gather.elementBytes;
  std::vector<Transfer> transfers;
  for (const Shard &shard : gather.shards) {
    const size_t bytes = size_t(shard.end - shard.begin) * size;
    for (uint32_t reader : gather.readers) {
      if (bytes == 0 || reader == shard.device)
        continue;
      if (shard.device == member_.device)
        transfers.push_back({true, reader, gather.shard, bytes});
      if (reader == member_.device)
        transfers.push_back({false, shard.device, gather.full + uint64_t(shard.begin) * size, bytes});
    }
  }
  return done(exchange("all-gather", transfers, stream));
}

Status NcclTransport::reduceScatter(const DirectReduction &reduction, WorkStream &stream) {
  const uint64_t size = bytesOf(reduction.type);
  const uint64_t stride = partStride(uint64_t(reduction.chunk) * size);
  const bool one = reduction.contributors.size() == 1, contributes = contains(reduction.contributors, member_.device);
  const Shard own = shardOf(reduction.shards, member_.device);
  int64_t largest = 0;
  for (const Shard &shard : reduction.shards)
    largest = std::max(largest, shard.end - shard.begin);
  auto run = [&](int64_t begin) {
    auto count = [&](const Shard &shard) { return std::clamp<int64_t>(shard.end - shard.begin - begin, 0, reduction.chunk); };
    auto inFull = [&](const Shard &shard) { return reduction.full + uint64_t(shard.begin + begin) * size; };
    const DeviceAddress sum = reduction.shard + uint64_t(begin) * size;
    std::vector<Transfer> transfers;
    for (const Shard &shard : reduction.shards)
      if (contributes && shard.device != member_.device && count(shard) > 0)
        transfers.push_back({true, shard.device, inFull(shard), size_t(count(shard)) * size});
    const size_t bytes = size_t(count(own)) * size;
    Status status;
    for (size_t i = 0; i < reduction.contributors.size() && bytes > 0 && status.succeeded(); ++i) {
      const DeviceAddress term = one ? sum : reduction.parts + i * stride;
      if (reduction.contributors[i] != member_.device)
        transfers.push_back({false, reduction.contributors[i], term, bytes});
      else if (inFull(own) != term)
        status = stream.copy(term, inFull(own), bytes);
    }
    if (status.succeeded())
      status = exchange("reduce-scatter", transfers, stream);
    if (status.succeeded() && bytes > 0 && !one)
      status = addTerms(options_.sums, reduction.type, reduction.parts, stride, reduction.contributors.size(), sum, count(own), stream);
    return status;
  };
  for (int64_t begin = 0; begin < largest; begin += reduction.chunk)
    if (Status status = run(begin); status.failed())
      return done(status);
  return done(Status::success());
}

Status NcclTransport::allReduce(const DirectSum &sum, WorkStream &stream) {
  const size_t bytes = size_t(sum.count) * sizeof(double);
  Status status;
  Communicator *own = std::is_sorted(sum.members.begin(), sum.members.end()) ? communicatorOf(sum.members) : nullptr;
  if (own) {
    status = own->run("ncclAllGather", [&](Comm comm) {
      return api_.ncclAllGather(pointer(sum.data), pointer(sum.parts), size_t(sum.count), kFloat64, comm, stream.handle());
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
    status = addTerms(options_.sums, NumberType::F64, sum.parts, bytes, sum.members.size(), sum.data, sum.count, stream);
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
  atOnce<std::unique_ptr<Communicator>>(communicators_, [](auto &communicator) { communicator->abort(); });
}
