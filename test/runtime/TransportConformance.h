// The contract of every transport (zorse/runtime/Transport.h), as tests of a driver. Instantiate
// them with a function that makes the transports of n devices.
#pragma once

#include "LevelSums.h"
#include "RandomOperations.h"

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/Transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace zorse::runtime::test {

using MakeTransports = std::vector<std::unique_ptr<Transport>> (*)(uint32_t devices);

class TransportConformance : public ::testing::TestWithParam<MakeTransports> {
protected:
  /// Runs `function` on one thread per device and expects success on all devices.
  void onAll(uint32_t devices, const std::function<Status(uint32_t, Transport &)> &function) {
    auto transports = GetParam()(devices);
    std::vector<std::thread> threads;
    std::vector<Status> results(devices);
    for (uint32_t d = 0; d < devices; ++d)
      threads.emplace_back([&, d] { results[d] = function(d, *transports[d]); });
    for (std::thread &thread : threads)
      thread.join();
    for (uint32_t d = 0; d < devices; ++d)
      EXPECT_FALSE(results[d].failed()) << "device " << d << ": " << results[d].message();
  }
};

#define ZORSE_RETURN_IF_FAILED(expression)                                                         \
  do {                                                                                             \
    if (Status zorseStatus = (expression); zorseStatus.failed())                                   \
      return zorseStatus;                                                                          \
  } while (false)

TEST_P(TransportConformance, TransfersArriveInEveryStep) {
  constexpr uint64_t kSteps = 50;
  std::vector<double> got(kSteps);
  onAll(2, [&](uint32_t device, Transport &transport) -> Status {
    for (uint64_t step = 0; step < kSteps; ++step) {
      double value = 3.0 * double(step);
      if (device == 0)
        ZORSE_RETURN_IF_FAILED(transport.send({7, step}, 1, &value, sizeof value));
      else
        ZORSE_RETURN_IF_FAILED(transport.receive({7, step}, 0, &got[step], sizeof got[step]));
      value = NAN; // the send has ended: its buffer may be reused
    }
    return Status::success();
  });
  for (uint64_t step = 0; step < kSteps; ++step)
    EXPECT_EQ(got[step], 3.0 * double(step));
}

TEST_P(TransportConformance, OperationsOfSeveralThreadsDoNotMix) {
  // Two threads per device, each with separate instructions; one of them starts late.
  onAll(2, [&](uint32_t device, Transport &transport) -> Status {
    Status other;
    auto exchange = [&](uint32_t instruction, uint64_t step) -> Status {
      uint64_t mine = instruction * 1000 + step, theirs = 0;
      if ((device == 0) == (instruction % 2 == 0))
        return transport.send({instruction, step}, 1 - device, &mine, sizeof mine);
      ZORSE_RETURN_IF_FAILED(
          transport.receive({instruction, step}, 1 - device, &theirs, sizeof theirs));
      return theirs == mine ? Status::success()
                            : Status(internalError("got the bytes of another operation"));
    };
    std::thread second([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5 * device));
      for (uint64_t step = 0; step < 20 && other.succeeded(); ++step)
        for (uint32_t instruction : {2u, 5u})
          if (other.succeeded())
            other = exchange(instruction, step);
    });
    Status first;
    for (uint64_t step = 0; step < 20 && first.succeeded(); ++step)
      for (uint32_t instruction : {1u, 4u})
        if (first.succeeded())
          first = exchange(instruction, step);
    second.join();
    return first.failed() ? first : other;
  });
}

TEST_P(TransportConformance, AllGatherIsUnevenAndInPlace) {
  // Device 2 owns nothing, device 0 does not read, device 1 holds its shard in place.
  std::vector<std::vector<float>> full(3, std::vector<float>(10, -1.0f));
  onAll(3, [&](uint32_t device, Transport &transport) -> Status {
    for (uint64_t step = 0; step < 3; ++step) {
      std::vector<float> apart{0, 1, 2, 3, 4, 5, 6};
      AllGatherArguments a;
      a.shards = {{0, 0, 7}, {1, 7, 10}, {2, 10, 10}};
      a.reads = {{2, 0, 10}, {1, 0, 10}};
      if (device == 0)
        a.shard = apart.data();
      else
        a.full = full[device].data();
      if (device == 1) {
        a.shard = full[1].data() + 7;
        std::iota(full[1].begin() + 7, full[1].end(), 7.0f);
      }
      ZORSE_RETURN_IF_FAILED(transport.allGather({3, step}, a));
    }
    return Status::success();
  });
  std::vector<float> expected(10);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(full[1], expected);
  EXPECT_EQ(full[2], expected);
  EXPECT_EQ(full[0], std::vector<float>(10, -1.0f));
}

TEST_P(TransportConformance, ReduceScatterSumsInRankOrder) {
  // A 1 added between 1e8 and -1e8 is lost, so the result depends on the order. Device 3 owns a
  // shard without contributing.
  std::vector<std::vector<float>> full = {
      {1e8f, 1e8f, 1, 2}, {1, 1, 10, 20}, {-1e8f, -1e8f, 100, 200}};
  std::vector<float> alone(2, -1.0f);
  onAll(4, [&](uint32_t device, Transport &transport) -> Status {
    ReduceScatterArguments a;
    a.terms = {{0, 0, 4}, {2, 0, 4}, {1, 0, 4}};
    a.shards = {{0, 0, 1}, {3, 1, 3}, {2, 3, 4}};
    if (device < 3)
      a.full = full[device].data();
    if (device == 0)
      a.shard = full[0].data(); // in place
    if (device == 2)
      a.shard = full[2].data() + 3;
    if (device == 3)
      a.shard = alone.data();
    return transport.reduceScatter({1, 0}, a);
  });
  EXPECT_EQ(full[0][0], 1.0f);
  EXPECT_EQ(alone, (std::vector<float>{1.0f, 111.0f}));
  EXPECT_EQ(full[2][3], 222.0f);
  EXPECT_EQ(full[1], (std::vector<float>{1, 1, 10, 20}));
}

TEST_P(TransportConformance, AllGatherOfSeveralRuns) {
  // Devices 0 and 1 own alternating shards. Device 0 reads all of them, with its own shards in
  // place. Device 1 reads three runs, with separate shards. Device 2 reads only the last run.
  std::vector<std::vector<float>> full{std::vector<float>(12, -1.0f), std::vector<float>(8, -1.0f),
                                       std::vector<float>(3, -1.0f)};
  onAll(3, [&](uint32_t device, Transport &transport) -> Status {
    for (uint64_t step = 0; step < 3; ++step) {
      std::vector<float> apart{3, 4, 9, 10, 11};
      AllGatherArguments a;
      a.shards = {{0, 0, 3}, {1, 3, 5}, {0, 5, 9}, {1, 9, 12}};
      a.reads = {{0, 0, 12}, {1, 0, 3}, {1, 3, 5}, {1, 9, 12}, {2, 9, 12}};
      a.full = full[device].data();
      a.shard = device == 0 ? full[0].data() : device == 1 ? apart.data() : nullptr;
      if (device == 0) {
        std::iota(full[0].begin(), full[0].begin() + 3, 0.0f);
        std::iota(full[0].begin() + 5, full[0].begin() + 9, 5.0f);
      }
      ZORSE_RETURN_IF_FAILED(transport.allGather({3, step}, a));
    }
    return Status::success();
  });
  std::vector<float> expected(12);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(full[0], expected);
  EXPECT_EQ(full[1], (std::vector<float>{0, 1, 2, 3, 4, 9, 10, 11}));
  EXPECT_EQ(full[2], (std::vector<float>{9, 10, 11}));
}

TEST_P(TransportConformance, ContributorsDifferByShard) {
  // The result depends on the order, as above. Device 0 holds its sums in place. Device 3 holds
  // them separately and contributes nothing.
  std::vector<std::vector<float>> full = {{1e8f, 1, 1e8f}, {1, 1}, {-1e8f, 5, -1e8f}};
  std::vector<float> alone(2, -1.0f);
  onAll(4, [&](uint32_t device, Transport &transport) -> Status {
    ReduceScatterArguments a;
    a.terms = {{0, 0, 1}, {2, 0, 2}, {1, 0, 1}, {0, 2, 4}, {1, 3, 4}, {2, 3, 4}};
    a.shards = {{0, 0, 1}, {3, 1, 2}, {0, 2, 3}, {3, 3, 4}};
    if (device < 3)
      a.full = full[device].data();
    a.shard = device == 0 ? full[0].data() : device == 3 ? alone.data() : nullptr;
    return transport.reduceScatter({1, 0}, a);
  });
  EXPECT_EQ(full[0], (std::vector<float>{1.0f, 1.0f, 1e8f})); // (1e8 - 1e8) + 1; 1, from device 0
                                                              // only
  EXPECT_EQ(alone, (std::vector<float>{5.0f, 0.0f}));         // from device 2 only; (1e8 + 1) - 1e8
  EXPECT_EQ(full[1], (std::vector<float>{1, 1}));
}

TEST_P(TransportConformance, ReduceScatterOfLargeArraysInEveryType) {
  constexpr int64_t kCount = 5000;
  for (NumberType type : {NumberType::F32, NumberType::F64, NumberType::BF16, NumberType::F16}) {
    std::vector<std::vector<std::byte>> full(3, std::vector<std::byte>(kCount * bytesOf(type)));
    auto store = [&](std::byte *base, int64_t i, float value) {
      double wide = value;
      uint16_t half = type == NumberType::BF16 ? floatToBf16(value) : floatToF16(value);
      const void *from = type == NumberType::F32   ? static_cast<const void *>(&value)
                         : type == NumberType::F64 ? static_cast<const void *>(&wide)
                                                   : &half;
      std::memcpy(base + i * bytesOf(type), from, bytesOf(type));
    };
    auto load = [&](const std::byte *base, int64_t i) -> double {
      float value;
      double wide;
      uint16_t half;
      switch (type) {
      case NumberType::F32:
        std::memcpy(&value, base + i * 4, 4);
        return value;
      case NumberType::F64:
        std::memcpy(&wide, base + i * 8, 8);
        return wide;
      default:
        std::memcpy(&half, base + i * 2, 2);
        return type == NumberType::BF16 ? bf16ToFloat(half) : f16ToFloat(half);
      }
    };
    for (int d = 0; d < 3; ++d)
      for (int64_t i = 0; i < kCount; ++i)
        store(full[d].data(), i, float((i * (d + 1)) % 32));
    onAll(3, [&](uint32_t device, Transport &transport) -> Status {
      ReduceScatterArguments a;
      a.type = type;
      a.terms = {{0, 0, kCount}, {1, 0, kCount}, {2, 0, kCount}};
      a.shards = {{0, 0, 1700}, {1, 1700, 1700}, {2, 1700, kCount}};
      a.full = full[device].data();
      a.shard = full[device].data() + a.shards[device].begin * bytesOf(type);
      return transport.reduceScatter({1, 0}, a);
    });
    for (int64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(load(full[i < 1700 ? 0 : 2].data(), i),
                double(i % 32 + (i * 2) % 32 + (i * 3) % 32))
          << i;
  }
}

TEST_P(TransportConformance, AllReduceGivesEveryoneTheSameBits) {
  std::vector<std::vector<double>> data(3);
  onAll(3, [&](uint32_t device, Transport &transport) -> Status {
    for (uint64_t step = 0; step < 30; ++step) {
      data[device] = {0.1 * (device + 1), std::pow(1e16, 1 - int(device)), 1.0};
      AllReduceArguments a;
      a.members = {0, 1, 2};
      a.data = data[device].data();
      a.count = 3;
      ZORSE_RETURN_IF_FAILED(transport.allReduce({9, step}, a));
    }
    return Status::success();
  });
  EXPECT_EQ(data[0], data[1]);
  EXPECT_EQ(data[0], data[2]);
  EXPECT_EQ(data[0][0], 0.1 + 0.2 + 0.1 * 3);
  EXPECT_EQ(data[0][2], 3.0);
}

TEST_P(TransportConformance, AbortWakesWaitersAndStays) {
  auto transports = GetParam()(3);
  std::vector<Status> results(2);
  std::thread receiver([&] {
    int value;
    results[0] = transports[0]->receive({1, 0}, 2, &value, sizeof value);
  });
  std::thread reducer([&] {
    double value = 1;
    AllReduceArguments a;
    a.members = {0, 1, 2};
    a.data = &value;
    a.count = 1;
    results[1] = transports[1]->allReduce({2, 0}, a);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  transports[2]->abort(userError("root cause"));
  transports[2]->abort(userError("second cause"));
  receiver.join();
  reducer.join();
  for (const Status &result : results) {
    ASSERT_TRUE(result.failed());
    EXPECT_EQ(result.message(), "root cause");
  }
  int value = 0;
  EXPECT_TRUE(transports[0]->send({5, 1}, 1, &value, sizeof value).failed());
}

TEST_P(TransportConformance, UnequalSizesAreAnError) {
  auto transports = GetParam()(2);
  int64_t from = 1, to = 0;
  std::thread sender([&] { (void)transports[0]->send({1, 0}, 1, &from, 8); });
  Status status = transports[1]->receive({1, 0}, 0, &to, 4);
  EXPECT_TRUE(status.failed());
  transports[1]->abort(internalError("sizes differ"));
  sender.join();
}

TEST_P(TransportConformance, UnequalSizesOfLargeTransfersAreAnError) {
  for (auto [sent, expected] : {std::pair<size_t, size_t>{100 << 10, 8},
                                {8, 100 << 10},
                                {3 << 20, (3 << 20) - 4},
                                {1 << 20, 3 << 20}}) {
    auto transports = GetParam()(2);
    std::vector<std::byte> from(sent), to(expected);
    std::thread sender([&] { (void)transports[0]->send({1, 0}, 1, from.data(), from.size()); });
    EXPECT_TRUE(transports[1]->receive({1, 0}, 0, to.data(), to.size()).failed());
    transports[1]->abort(internalError("sizes differ"));
    sender.join();
  }
}

TEST_P(TransportConformance, NothingIsBuffered) {
  // A send returns only after its receive has begun, even for a small message.
  std::atomic<bool> begun{false};
  bool waited = false;
  onAll(2, [&](uint32_t device, Transport &transport) -> Status {
    int value = 1;
    if (device == 0) {
      ZORSE_RETURN_IF_FAILED(transport.send({1, 0}, 1, &value, sizeof value));
      waited = begun;
      return Status::success();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    begun = true;
    return transport.receive({1, 0}, 0, &value, sizeof value);
  });
  EXPECT_TRUE(waited);
}

TEST_P(TransportConformance, ExpectedReceivesAreReceives) {
  // Some receives are announced long before they are called, out of order; one is never called.
  constexpr uint32_t kInstructions = 12;
  std::vector<std::vector<uint32_t>> got(kInstructions);
  onAll(2, [&](uint32_t device, Transport &transport) -> Status {
    for (uint64_t step = 0; step < 2; ++step) {
      for (uint32_t instruction = kInstructions; device == 1 && instruction-- > 0;) {
        got[instruction].assign(instruction % 3 == 0 ? 1 : 300000, 0);
        if (instruction % 4 != 1)
          transport.postReceive({instruction, step}, 0, got[instruction].data(),
                                got[instruction].size() * 4);
      }
      for (uint32_t instruction = 0; instruction + 1 < kInstructions; ++instruction) {
        std::vector<uint32_t> data(instruction % 3 == 0 ? 1 : 300000,
                                   uint32_t(instruction + 100 * step));
        ZORSE_RETURN_IF_FAILED(
            device == 0 ? transport.send({instruction, step}, 1, data.data(), data.size() * 4)
                        : transport.receive({instruction, step}, 0, got[instruction].data(),
                                            got[instruction].size() * 4));
        if (device == 1 && got[instruction] != data)
          return internalError("instruction " + std::to_string(instruction) + " got other bytes");
      }
    }
    return Status::success();
  });
}

TEST_P(TransportConformance, AbortEndsALongTransfer) {
  // The sender waits for its receiver, the receiver of another transfer for its sender, and a sum
  // for a member that does not take part.
  auto transports = GetParam()(3);
  std::vector<std::byte> data(8 << 20), other(8 << 20);
  std::vector<Status> results(3);
  std::vector<double> numbers(100000);
  std::thread sender(
      [&] { results[0] = transports[0]->send({1, 0}, 1, data.data(), data.size()); });
  std::thread receiver(
      [&] { results[1] = transports[1]->receive({2, 0}, 0, other.data(), other.size()); });
  std::thread reducer([&] {
    AllReduceArguments a;
    a.members = {2, 1, 0};
    a.data = numbers.data();
    a.count = int64_t(numbers.size());
    results[2] = transports[2]->allReduce({3, 0}, a);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  transports[0]->abort(userError("enough"));
  for (std::thread *thread : {&sender, &receiver, &reducer})
    thread->join();
  for (const Status &result : results) {
    ASSERT_TRUE(result.failed());
    EXPECT_EQ(result.message(), "enough");
  }
}

TEST_P(TransportConformance, RoundedTermsOfTheOwnerToo) {
  // 1 + 2^-9 becomes 1, with the owner or without; sums are not rounded; who alone has a shard
  // passes it on unchanged.
  const float x = 1 + 0x1p-9f;
  std::vector<std::vector<float>> full = {{x, x, x}, {0x1p-9f, x, 5}, {2, 2, 2}};
  std::vector<float> sums(3, -1.0f);
  onAll(3, [&](uint32_t device, Transport &transport) -> Status {
    ReduceScatterArguments a;
    a.terms = {{0, 0, 3}, {1, 0, 2}};
    a.shards = {{0, 0, 1}, {2, 1, 2}, {1, 2, 3}};
    a.full = device < 2 ? full[device].data() : nullptr;
    a.shard = device == 0 ? static_cast<void *>(full[0].data()) : &sums[device];
    a.bf16Terms = true;
    return transport.reduceScatter({1, 0}, a);
  });
  EXPECT_EQ(full[0][0], 1 + 0x1p-9f); // 1 + 2^-9, of rounded terms
  EXPECT_EQ(sums[2], 2.0f);           // 1 + 1
  EXPECT_EQ(sums[1], x);              // of device 0 alone
}

TEST_P(TransportConformance, RoundedTermsInManyParts) {
  // More parts than are in flight, of several owners, each with two shards.
  constexpr int64_t kPart = 3 << 20, kCount = 6 * kPart;
  std::vector<std::vector<float>> full(3, std::vector<float>(kCount));
  for (uint32_t d = 0; d < 3; ++d)
    for (int64_t i = 0; i < kCount; ++i)
      full[d][size_t(i)] = float((i * 7919 + d * 104729) % 65537) * 0x1p-7f;
  std::vector<float> expected(kCount);
  addRounded(reinterpret_cast<std::byte *>(expected.data()),
             {reinterpret_cast<const std::byte *>(full[2].data()),
              reinterpret_cast<const std::byte *>(full[0].data()),
              reinterpret_cast<const std::byte *>(full[1].data())},
             kCount);
  onAll(3, [&](uint32_t device, Transport &transport) -> Status {
    ReduceScatterArguments a;
    a.terms = {{2, 0, kCount}, {0, 0, kCount}, {1, 0, kCount}};
    for (uint32_t s = 0; s < 6; ++s)
      a.shards.push_back({s % 3, s * kPart, (s + 1) * kPart});
    a.full = full[device].data();
    a.shard = full[device].data() + device * kPart;
    a.bf16Terms = true;
    return transport.reduceScatter({1, 0}, a);
  });
  for (uint32_t s = 0; s < 6; ++s)
    ASSERT_EQ(std::memcmp(full[s % 3].data() + s * kPart, expected.data() + s * kPart,
                          size_t(kPart) * sizeof(float)),
              0)
        << "shard " << s;
}

TEST_P(TransportConformance, RandomSumsOfRoundedTerms) {
  size_t sums = 0, found = 0; // found: sums with other bits if owners did not round
  for (uint64_t seed : {101, 102, 103}) {
    RandomProgram program = randomProgram(seed, 4, 2, 60, 30000);
    auto &operations = program.operations;
    operations.erase(std::remove_if(operations.begin(), operations.end(),
                                    [](const RandomOperation &op) {
                                      return op.kind != RandomOperation::Scatter;
                                    }),
                     operations.end());
    for (RandomOperation &op : operations) {
      op.type = NumberType::F32;
      op.bf16Terms = true;
    }
    auto results = performAll(program, 1, GetParam()(program.devices));
    for (size_t i = 0; i < operations.size(); ++i) {
      const std::vector<Bytes> expected = plainResults(program, operations[i], 0);
      for (uint32_t device = 0; device < program.devices; ++device) {
        ASSERT_FALSE(results[device].failed()) << results[device].message();
        ASSERT_TRUE(expected[device] == (*results[device])[i])
            << "seed " << seed << ", device " << device << ", operation " << i;
      }
      ++sums;
      found += plainResults(program, operations[i], 0, /*ownersAreExact=*/true) != expected;
    }
  }
  printf("%zu sums of rounded terms, %zu differ if owners do not round\n", sums, found);
  EXPECT_GT(found, 10u);
}

TEST_P(TransportConformance, RandomOperationsGiveTheBitsOfRankedSums) {
  struct Case {
    uint32_t devices, queues;
    size_t operations;
    int64_t maxCount;
    uint64_t steps;
  };
  uint64_t seed = 1;
  for (Case c : {Case{2, 1, 30, 3000, 6},
                 {3, 2, 30, 300000, 3},
                 {5, 3, 40, 40000, 3},
                 {4, 1, 12, 3 << 20, 1},
                 {18, 1, 6, 20000, 2}}) {
    RandomProgram program = randomProgram(seed++, c.devices, c.queues, c.operations, c.maxCount);
    auto found = performAll(program, c.steps, GetParam()(c.devices));
    for (uint32_t device = 0; device < c.devices; ++device)
      ASSERT_FALSE(found[device].failed()) << found[device].message();
    for (size_t i = 0; i < program.operations.size() * c.steps; ++i) {
      const size_t operation = i % program.operations.size(), step = i / program.operations.size();
      const std::vector<Bytes> expected =
          plainResults(program, program.operations[operation], step);
      for (uint32_t device = 0; device < c.devices; ++device)
        ASSERT_TRUE(expected[device] == (*found[device])[i])
            << "seed " << program.seed << ", device " << device << ", operation " << operation
            << ", step " << step;
    }
  }
}

TEST_P(TransportConformance, SumsByLevelsHaveTheBitsOfTheTree) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const uint32_t devices = 1 + uint32_t(seed * 7 % 18);
    EXPECT_EQ(differenceOf(randomLevelSum(seed, devices), seed % 3, GetParam()(devices)), "");
  }
}

} // namespace zorse::runtime::test
