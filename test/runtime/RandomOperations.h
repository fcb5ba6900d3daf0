// Random lists of operations that devices perform in every step, on several threads each. The
// results of a transport are compared bit by bit with plain loops over the numbers of all devices.
#pragma once

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/Transport.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace zorse::runtime::test {

struct RandomOperation {
  enum Kind { Transfer, Gather, Scatter, Sum } kind;
  uint32_t instruction, queue;
  NumberType type;
  std::vector<uint32_t> members; ///< transfer: from, to; otherwise readers, contributors or
                                 ///< members, in summation order
  std::vector<Shard> runs;       ///< runs of readers or contributors
  std::vector<Shard> shards;
  int64_t count; ///< elements
  bool inPlace;
  bool bf16Terms = false; ///< see ReduceScatterArguments
};

struct RandomProgram {
  uint32_t devices, queues;
  uint64_t seed;
  std::vector<RandomOperation> operations;
};

/// Adds shards and runs. Owners of `op.shards` need not be members; shards may be empty. In half of
/// these operations a device has up to four runs, and the contributors and their order differ by
/// shard.
inline void addRuns(RandomOperation &op, uint32_t devices, std::mt19937_64 &random) {
  auto upTo = [&](uint64_t n) { return random() % (n + 1); };
  std::vector<uint32_t> owners;
  for (uint32_t d = 0; d < devices; ++d)
    if (upTo(2) != 0)
      owners.push_back(d);
  if (owners.empty())
    owners.push_back(uint32_t(upTo(devices - 1)));
  const bool several = upTo(1);
  for (size_t o = 0, first = owners.size(); several && o < first; ++o)
    owners.insert(owners.end(), upTo(3), owners[o]);
  std::shuffle(owners.begin(), owners.end(), random);
  std::vector<int64_t> borders{0, op.count};
  for (size_t o = 1; o < owners.size(); ++o)
    borders.push_back(upTo(3) == 0 ? 0 : int64_t(upTo(op.count)));
  std::sort(borders.begin(), borders.end());
  for (size_t o = 0; o < owners.size(); ++o)
    op.shards.push_back({owners[o], borders[o], borders[o + 1]});
  for (uint32_t member : op.members) {
    const size_t before = op.runs.size();
    for (size_t o = 0;
         several && member != op.members[0] && o < owners.size() && op.runs.size() < before + 4;
         ++o) {
      const size_t end = std::min<size_t>(owners.size(), o + 1 + upTo(owners.size() / 2));
      if (upTo(1) && borders[o] < borders[end])
        op.runs.push_back({member, borders[o], borders[end]});
      o = end; // the next run leaves out at least one shard
    }
    if (op.runs.size() == before) // one member has the whole range, so that every shard has a
                                  // contributor
      op.runs.push_back({member, 0, several && member != op.members[0] && upTo(1) ? 0 : op.count});
  }
  if (upTo(1))
    std::stable_sort(op.runs.begin(), op.runs.end(),
                     [](const Shard &a, const Shard &b) { return a.begin < b.begin; });
  if (upTo(1))
    std::stable_sort(op.shards.begin(), op.shards.end(),
                     [](const Shard &a, const Shard &b) { return a.device < b.device; });
}

inline RandomProgram randomProgram(uint64_t seed, uint32_t devices, uint32_t queues,
                                   size_t operations, int64_t maxCount) {
  std::mt19937_64 random(seed);
  auto upTo = [&](uint64_t n) { return random() % (n + 1); };
  RandomProgram program{devices, queues, seed, {}};
  for (size_t i = 0; i < operations; ++i) {
    RandomOperation op;
    op.kind = RandomOperation::Kind(upTo(3));
    op.instruction = uint32_t(3 * i + upTo(2));
    op.queue = uint32_t(upTo(queues - 1));
    op.type = NumberType(upTo(3));
    op.inPlace = upTo(1);
    // Sizes of every magnitude, often near powers of two.
    op.count = int64_t(1) << upTo(63 - __builtin_clzll(maxCount | 1));
    op.count = std::min<int64_t>(maxCount, std::max<int64_t>(0, op.count + int64_t(upTo(4)) - 2));
    for (uint32_t d = 0; d < devices; ++d)
      op.members.push_back(d);
    std::shuffle(op.members.begin(), op.members.end(), random);
    size_t members = op.kind == RandomOperation::Transfer ? 2 : 1 + upTo(devices - 1);
    op.members.resize(std::min<size_t>(members, devices));
    if (op.kind == RandomOperation::Gather || op.kind == RandomOperation::Scatter)
      addRuns(op, devices, random);
    op.bf16Terms = op.kind == RandomOperation::Scatter && op.type == NumberType::F32 && upTo(1);
    program.operations.push_back(std::move(op));
  }
  return program;
}

inline void fillNumbers(NumberType type, std::byte *to, int64_t count, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    // Magnitudes differ, so that the bits of a sum depend on its order.
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

/// The numbers of all elements on a device at the beginning of an operation.
inline Bytes numbersOf(const RandomProgram &program, const RandomOperation &op, uint32_t device,
                       uint64_t step) {
  Bytes numbers;
  numbers.reserve(size_t(op.count) * bytesOf(op.type) + 1); // a valid address even without elements
  numbers.resize(size_t(op.count) * bytesOf(op.type));
  fillNumbers(op.type, numbers.data(), op.count,
              program.seed ^ (uint64_t(op.instruction) << 32) ^ (step << 8) ^ device);
  return numbers;
}

/// A device's data of a gather or a reduction. `full` contains its runs. Its shards lie at `places`
/// relative to `shard`, inside `full` or separately.
struct RandomPart {
  RandomPart(const RandomOperation &op, uint32_t device, const Bytes &numbers)
      : element(bytesOf(op.type)), held(op.runs, device), own(op.shards, device),
        places(own.inside(held)) {
    full.reserve(numbers.size() + 1);
    auto append = [&](Bytes &to, const Compact &runs) {
      for (const Compact::Run &run : runs.runs())
        to.insert(to.end(), numbers.begin() + run.begin * int64_t(element),
                  numbers.begin() + run.end * int64_t(element));
    };
    append(full, held);
    if (op.inPlace && !places.empty()) {
      shard = at(full, held, own.runs()[0]);
      return;
    }
    places = own;
    append(apart, own);
    shard = apart.data();
    for (const Compact::Run &run : own.runs()) // separate shards must be copied there by the gather
      if (op.kind == RandomOperation::Gather && held.place(run.begin, run.end) >= 0)
        std::memset(at(full, held, run), 0x7f, size_t(run.end - run.begin) * element);
  }
  std::byte *at(Bytes &memory, const Compact &runs, const Compact::Run &run) const {
    return memory.data() + runs.place(run.begin, run.end) * int64_t(element);
  }
  Bytes result() const {
    Bytes all = full;
    all.insert(all.end(), apart.begin(), apart.end());
    return all;
  }

  size_t element;
  Compact held, own, places;
  Bytes full, apart;
  std::byte *shard = nullptr;
};

inline bool isIn(const std::vector<uint32_t> &devices, uint32_t device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}
inline bool owns(const RandomOperation &op, uint32_t device) {
  return std::any_of(op.shards.begin(), op.shards.end(),
                     [&](const Shard &shard) { return shard.device == device; });
}

/// Performs one operation on one device; `result` receives the final data.
inline Status perform(const RandomProgram &program, const RandomOperation &op, uint32_t device,
                      uint64_t step, Transport &transport, Bytes &result) {
  const Operation operation{op.instruction, step};
  const bool member = isIn(op.members, device),
             moves = op.kind == RandomOperation::Gather || op.kind == RandomOperation::Scatter;
  if (!member && !(moves && owns(op, device)))
    return Status::success();
  Bytes numbers = numbersOf(program, op, device, step);
  Status status;
  if (op.kind == RandomOperation::Transfer) {
    if (op.members.size() < 2)
      return Status::success();
    status = device == op.members[0]
                 ? transport.send(operation, op.members[1], numbers.data(), numbers.size())
                 : transport.receive(operation, op.members[0], numbers.data(), numbers.size());
  } else if (op.kind == RandomOperation::Sum) {
    AllReduceArguments a;
    a.type = op.type;
    a.members = op.members;
    a.data = numbers.data();
    a.count = op.count;
    status = transport.allReduce(operation, a);
  } else {
    RandomPart part(op, device, numbers);
    if (op.kind == RandomOperation::Gather) {
      AllGatherArguments a{part.element, op.shards, op.runs, member ? part.full.data() : nullptr,
                           owns(op, device) ? part.shard : nullptr};
      status = transport.allGather(operation, a);
    } else {
      ReduceScatterArguments a{op.type,
                               op.runs,
                               op.shards,
                               member ? part.full.data() : nullptr,
                               owns(op, device) ? part.shard : nullptr,
                               op.bf16Terms};
      status = transport.reduceScatter(operation, a);
    }
    numbers = part.result();
  }
  result = std::move(numbers);
  return status;
}

/// Sums element by element in the order of `terms`, half types in f32.
inline void addPlainly(NumberType type, std::byte *to, const std::vector<const std::byte *> &terms,
                       int64_t count) {
  const size_t element = bytesOf(type);
  for (int64_t i = 0; i < count; ++i) {
    double wide = 0;
    float narrow = 0;
    for (size_t t = 0; t < terms.size(); ++t) {
      double one;
      float single;
      uint16_t half;
      std::memcpy(type == NumberType::F64   ? static_cast<void *>(&one)
                  : type == NumberType::F32 ? static_cast<void *>(&single)
                                            : &half,
                  terms[t] + size_t(i) * element, element);
      if (type == NumberType::BF16 || type == NumberType::F16)
        single = type == NumberType::BF16 ? bf16ToFloat(half) : f16ToFloat(half);
      if (type == NumberType::F64)
        wide = t == 0 ? one : wide + one;
      else
        narrow = t == 0 ? single : narrow + single;
    }
    const uint16_t half = type == NumberType::BF16 ? floatToBf16(narrow) : floatToF16(narrow);
    std::memcpy(to + size_t(i) * element,
                type == NumberType::F64   ? static_cast<const void *>(&wide)
                : type == NumberType::F32 ? static_cast<const void *>(&narrow)
                                          : &half,
                element);
  }
}

/// Returns the nearest bf16 number, the even one of two. Uses no bits of x.
inline float roundedToBf16(float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 8); // of the 8th digit
  return float(std::nearbyint(double(x) / unit) * unit);
}

/// Sums f32 terms rounded to bf16, in the order of `terms`. \param exact  a term that is not
/// rounded; -1: none
inline void addRounded(std::byte *to, const std::vector<const std::byte *> &terms, int64_t count,
                       int exact = -1) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0, term = 0;
    for (size_t t = 0; t < terms.size(); ++t) {
      std::memcpy(&term, terms[t] + size_t(i) * sizeof term, sizeof term);
      term = int(t) == exact ? term : roundedToBf16(term);
      sum = t == 0 ? term : sum + term;
    }
    std::memcpy(to + size_t(i) * sizeof sum, &sum, sizeof sum);
  }
}

/// The final data of all devices after one operation.
/// \param ownersAreExact  a fault: only terms that travel are rounded
inline std::vector<Bytes> plainResults(const RandomProgram &program, const RandomOperation &op,
                                       uint64_t step, bool ownersAreExact = false) {
  std::vector<Bytes> numbers, results(program.devices);
  for (uint32_t device = 0; device < program.devices; ++device)
    numbers.push_back(numbersOf(program, op, device, step));
  if (op.kind == RandomOperation::Transfer) {
    for (uint32_t device : op.members)
      if (op.members.size() == 2)
        results[device] = numbers[op.members[0]];
    return results;
  }
  if (op.kind == RandomOperation::Sum) {
    std::vector<const std::byte *> terms;
    for (uint32_t member : op.members)
      terms.push_back(numbers[member].data());
    Bytes sum(numbers[0].size());
    addPlainly(op.type, sum.data(), terms, op.count);
    for (uint32_t member : op.members)
      results[member] = sum;
    return results;
  }
  for (uint32_t device = 0; device < program.devices; ++device) {
    if (!isIn(op.members, device) && !owns(op, device))
      continue;
    RandomPart part(op, device, numbers[device]);
    for (const Shard &shard : op.shards) {
      const int64_t first = shard.begin * int64_t(part.element),
                    bytes = shard.size() * int64_t(part.element);
      if (op.kind == RandomOperation::Gather && !shard.empty() && part.held.has(shard))
        std::memcpy(part.full.data() + part.held.place(shard) * int64_t(part.element),
                    numbers[shard.device].data() + first, size_t(bytes));
      if (op.kind == RandomOperation::Gather || shard.device != device || shard.empty())
        continue;
      std::vector<const std::byte *> terms;
      int own = -1;
      for (const Shard &run : op.runs)
        if (run.begin <= shard.begin && shard.end <= run.end) {
          own = run.device == device ? int(terms.size()) : own;
          terms.push_back(numbers[run.device].data() + first);
        }
      std::byte *to = part.shard + part.places.place(shard) * int64_t(part.element);
      if (op.bf16Terms && terms.size() > 1)
        addRounded(to, terms, shard.size(), ownersAreExact ? own : -1);
      else
        addPlainly(op.type, to, terms, shard.size());
    }
    results[device] = part.result();
  }
  return results;
}

/// The final data of one device for every operation of every step. The first error is returned.
inline Result<std::vector<Bytes>> perform(const RandomProgram &program, uint32_t device,
                                          uint64_t steps, Transport &transport) {
  size_t operations = program.operations.size();
  std::vector<Bytes> results(operations * steps);
  std::vector<Status> statuses(program.queues);
  std::vector<std::thread> threads;
  for (uint32_t queue = 0; queue < program.queues; ++queue)
    threads.emplace_back([&, queue] {
      for (uint64_t step = 0; step < steps; ++step)
        for (size_t i = 0; i < operations; ++i)
          if (program.operations[i].queue == queue && statuses[queue].succeeded()) {
            statuses[queue] = perform(program, program.operations[i], device, step, transport,
                                      results[step * operations + i]);
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

inline std::vector<Result<std::vector<Bytes>>>
performAll(const RandomProgram &program, uint64_t steps,
           std::vector<std::unique_ptr<Transport>> transports) {
  std::vector<Result<std::vector<Bytes>>> results(
      program.devices, Result<std::vector<Bytes>>(internalError("did not run")));
  std::vector<std::thread> threads;
  for (uint32_t device = 0; device < program.devices; ++device)
    threads.emplace_back([&, device] {
      results[device] = perform(program, device, steps, *transports[device]);
      transports[device].reset(); // leaves while others may still be working
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

} // namespace zorse::runtime::test
