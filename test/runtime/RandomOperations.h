// Random lists of operations that devices perform step after step on several threads each, and everything they end up with, to compare transports to
// the bit.
#pragma once

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/Transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace zorse::runtime::test {

struct RandomOperation {
  enum Kind { Transfer, Gather, Scatter, Sum } kind;
  uint32_t entry, queue;
  NumberType type;
  std::vector<uint32_t> members; ///< of a transfer: from, to; otherwise readers or contributors, in the order of summation.
  std::vector<Shard> shards;
  int64_t count; ///< elements
  bool inPlace;
};

struct RandomProgram {
  uint32_t devices, queues;
  uint64_t seed;
  std::vector<RandomOperation> operations;
};

inline RandomProgram randomProgram(uint64_t seed, uint32_t devices, uint32_t queues, size_t operations, int64_t maxCount) {
  std::mt19937_64 random(seed);
  auto upTo = [&](uint64_t n) { return random() % (n + 1); };
  RandomProgram program{devices, queues, seed, {}};
  for (size_t i = 0; i < operations; ++i) {
    RandomOperation op;
    op.kind = RandomOperation::Kind(upTo(3));
    op.entry = uint32_t(3 * i + upTo(2));
    op.queue = uint32_t(upTo(queues - 1));
    op.type = NumberType(upTo(3));
    op.inPlace = upTo(1);
    // Sizes of every magnitude, often around borders of powers of two.
    op.count = int64_t(1) << upTo(63 - __builtin_clzll(maxCount | 1));
    op.count = std::min<int64_t>(maxCount, std::max<int64_t>(0, op.count + int64_t(upTo(4)) - 2));
    for (uint32_t d = 0; d < devices; ++d)
      op.members.push_back(d);
    std::shuffle(op.members.begin(), op.members.end(), random);
    size_t members = op.kind == RandomOperation::Transfer ? 2 : 1 + upTo(devices - 1);
    op.members.resize(std::min<size_t>(members, devices));
    if (op.kind == RandomOperation::Gather || op.kind == RandomOperation::Scatter) {
      // Owners need not be members; shards may be empty.
      std::vector<uint32_t> owners;
      for (uint32_t d = 0; d < devices; ++d)
        if (upTo(2) != 0)
          owners.push_back(d);
      if (owners.empty())
        owners.push_back(uint32_t(upTo(devices - 1)));
      std::shuffle(owners.begin(), owners.end(), random);
      std::vector<int64_t> borders{0, op.count};
      for (size_t o = 1; o < owners.size(); ++o)
        borders.push_back(upTo(3) == 0 ? 0 : int64_t(upTo(op.count)));
      std::sort(borders.begin(), borders.end());
      for (size_t o = 0; o < owners.size(); ++o)
        op.shards.push_back({owners[o], borders[o], borders[o + 1]});
    }
    program.operations.push_back(std::move(op));
  }
  return program;
}

inline void fillNumbers(NumberType type, std::byte *to, int64_t count, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    // Magnitudes differ, so that the order of a sum shows in its bits.
    double value = (double(int64_t(state >> 11)) * 0x1p-52 - 1) * double(1 << (state % 11));
    float narrow = float(value);
    uint16_t half = type == NumberType::BF16 ? floatToBf16(narrow) : floatToF16(narrow);
    const void *from = type == NumberType::F64   ? static_cast<const void *>(&value)
                       : type == NumberType::F32 ? static_cast<const void *>(&narrow)
                                                 : &half;
    std::memcpy(to + i * bytesOf(type), from, bytesOf(type));
  }
}

using Bytes = std::vector<std::byte>;

/// One device's part of one operation; `result` gets what it ends up with.
inline Status perform(const RandomProgram &program, const RandomOperation &op, uint32_t device, uint64_t step, Transport &transport, Bytes &result) {
  size_t element = bytesOf(op.type);
  Operation operation{op.entry, step};
  auto isMember = [&](uint32_t d) { return std::find(op.members.begin(), op.members.end(), d) != op.members.end(); };
  auto mine = std::find_if(op.shards.begin(), op.shards.end(), [&](const Shard &shard) { return shard.device == device; });
  bool owner = mine != op.shards.end();
  Bytes whole, apart;
  whole.reserve(size_t(op.count) * element + 1); // an address even for no elements
  whole.resize(size_t(op.count) * element);
  fillNumbers(op.type, whole.data(), op.count, program.seed ^ (uint64_t(op.entry) << 32) ^ (step << 8) ^ device);
  Status status;
  switch (op.kind) {
  case RandomOperation::Transfer:
    if (op.members.size() < 2 || !isMember(device))
      return Status::success();
    status = device == op.members[0] ? transport.send(operation, op.members[1], whole.data(), whole.size())
                                     : transport.receive(operation, op.members[0], whole.data(), whole.size());
    break;
  case RandomOperation::Gather: {
    if (!isMember(device) && !owner)
      return Status::success();
    AllGatherArguments a;
    a.elementBytes = element;
    a.shards = op.shards;
    a.readers = op.members;
    if (isMember(device))
      a.full = whole.data();
    if (owner) {
      std::byte *place = whole.data() + mine->begin * int64_t(element);
      apart.assign(place, place + (mine->end - mine->begin) * int64_t(element));
      a.shard = op.inPlace && a.full ? place : apart.data();
    }
    status = transport.allGather(operation, a);
    break;
  }
  case RandomOperation::Scatter: {
    if (!isMember(device) && !owner)
      return Status::success();
    ReduceScatterArguments a;
    a.type = op.type;
    a.contributors = op.members;
    a.shards = op.shards;
    if (isMember(device))
      a.full = whole.data();
    if (owner) {
      apart.resize(size_t(mine->end - mine->begin) * element);
      a.shard = op.inPlace && a.full ? whole.data() + mine->begin * int64_t(element) : apart.data();
    }
    status = transport.reduceScatter(operation, a);
    break;
  }
  case RandomOperation::Sum: {
    if (!isMember(device))
      return Status::success();
    AllReduceArguments a;
    a.type = op.type;
    a.members = op.members;
    a.data = whole.data();
    a.count = op.count;
    status = transport.allReduce(operation, a);
    break;
  }
  }
  result = std::move(whole);
  result.insert(result.end(), apart.begin(), apart.end());
  return status;
}

/// What one device ends up with, operation by operation and step after step. An error fails it.
inline Result<std::vector<Bytes>> perform(const RandomProgram &program, uint32_t device, uint64_t steps, Transport &transport) {
  size_t operations = program.operations.size();
  std::vector<Bytes> results(operations * steps);
  std::vector<Status> statuses(program.queues);
  std::vector<std::thread> threads;
  for (uint32_t queue = 0; queue < program.queues; ++queue)
    threads.emplace_back([&, queue] {
      for (uint64_t step = 0; step < steps; ++step)
        for (size_t i = 0; i < operations; ++i)
          if (program.operations[i].queue == queue && statuses[queue].succeeded()) {
            statuses[queue] = perform(program, program.operations[i], device, step, transport, results[step * operations + i]);
            if (statuses[queue].failed())
              transport.abort(statuses[queue].error());
          }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &status : statuses)
    if (status.failed())
      return status;
  return results;
}

inline std::vector<Result<std::vector<Bytes>>> performAll(const RandomProgram &program, uint64_t steps,
                                                          std::vector<std::unique_ptr<Transport>> transports) {
  std::vector<Result<std::vector<Bytes>>> results(program.devices, Result<std::vector<Bytes>>(internalError("did not run")));
  std::vector<std::thread> threads;
  for (uint32_t device = 0; device < program.devices; ++device)
    threads.emplace_back([&, device] {
      results[device] = perform(program, device, steps, *transports[device]);
      transports[device].reset(); // leaves while others may still be at it.
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

} // namespace zorse::runtime::test
