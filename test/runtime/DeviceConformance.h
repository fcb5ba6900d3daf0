// The contract of every device (zorse/runtime/Device.h), as tests that are instantiated per driver.
// Tests of the contract run for all drivers; tests of computation run for drivers that compute.
#pragma once

#include "Patience.h"
#include "bundle.pb.h"
#include "zorse/runtime/Device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace zorse::runtime::test {

struct DeviceUnderTest {
  std::string name;
  std::function<std::unique_ptr<QueuedDevice>()> make;
  bool computes = true;
  std::string arch; ///< architecture of its code; "": the device has no architectures
};

inline void PrintTo(const DeviceUnderTest &device, std::ostream *out) { *out << device.name; }

/// A host task that calls a function.
class Task final : public HostTask {
public:
  explicit Task(std::function<Status(uint64_t, size_t)> what) : what_(std::move(what)) {}
  Status run(uint64_t argument, size_t call) override { return what_(argument, call); }

private:
  std::function<Status(uint64_t, size_t)> what_;
};

class Heard final : public QueueObserver {
public:
  void finished(uint64_t tag, double begin, double end) override {
    std::lock_guard<std::mutex> lock(mutex);
    tags.push_back(tag);
    timesRight = timesRight && begin <= end;
  }
  void failed(uint64_t tag, const Error &error) override {
    std::lock_guard<std::mutex> lock(mutex);
    failures.emplace_back(tag, error.message);
  }
  std::mutex mutex;
  std::vector<uint64_t> tags;
  std::vector<std::pair<uint64_t, std::string>> failures;
  bool timesRight = true;
};

class DeviceConformance : public ::testing::TestWithParam<DeviceUnderTest> {
protected:
  DeviceConformance() : device(GetParam().make()) {}

  void open(const std::vector<uint32_t> &workers) {
    Status status = device->openQueues(workers, heard);
    ASSERT_FALSE(status.failed()) << status.message();
  }

  Event put(uint32_t queue, const std::vector<Event> &waits, const Work &work, uint64_t tag = 0,
            bool notify = false) {
    Event event = device->enqueue(queue, waits.data(), waits.size(), work, tag, notify);
    device->flush();
    return event;
  }

  std::unique_ptr<DeviceMemory> allocate(size_t bytes, bundle::MemoryKind kind = bundle::DEVICE,
                                         bool poison = false) {
    AllocationOptions options;
    options.poison = poison;
    auto memory = device->allocate(kind, bytes, options);
    EXPECT_FALSE(memory.failed()) << memory.message();
    return memory.failed() ? nullptr : std::move(*memory);
  }

  std::string readAll(DeviceAddress from, size_t bytes) {
    std::string text(bytes, '?');
    Status status = device->read(text.data(), from, bytes);
    EXPECT_FALSE(status.failed()) << status.message();
    return text;
  }

  static bundle::FunctionLibrary emptyFunctions(int count) {
    bundle::FunctionLibrary library;
    library.set_arch(GetParam().arch);
    for (int i = 0; i < count; ++i)
      library.add_functions()->set_name("nothing " + std::to_string(i));
    return library;
  }

  Heard heard; ///< outlives the device
  std::unique_ptr<QueuedDevice> device;
};

class DeviceComputing : public DeviceConformance {
protected:
  void SetUp() override {
    if (!GetParam().computes)
      GTEST_SKIP() << device->description()
                   << " does not compute: the contract is all that it promises";
  }
};

inline constexpr bundle::MemoryKind kEveryMemory[] = {bundle::DEVICE, bundle::PINNED_HOST,
                                                      bundle::HOST};

// Memory.

TEST_P(DeviceConformance, SaysWhoItIs) {
  EXPECT_NE(device->description().find("unit"), std::string::npos) << device->description();
}

TEST_P(DeviceConformance, MemoryOfEveryKindIsAlignedAndZero) {
  for (bundle::MemoryKind kind : kEveryMemory)
    for (size_t bytes : {size_t(1), size_t(64), size_t(4097), (size_t(5) << 20) + 3}) {
      auto memory = allocate(bytes, kind);
      ASSERT_TRUE(memory);
      EXPECT_EQ(memory->base().value % kMemoryAlignment, 0u);
      EXPECT_TRUE(memory->base());
      EXPECT_EQ(memory->bytes(), bytes);
      EXPECT_EQ(readAll(memory->base(), bytes), std::string(bytes, '\0'));
    }
}

TEST_P(DeviceConformance, MemoryThatItDoesNotHaveIsRefused) {
  auto memory = device->allocate(bundle::NVME, 64, {});
  ASSERT_TRUE(memory.failed());
  EXPECT_NE(memory.message().find("NVME"), std::string::npos) << memory.message();
}

TEST_P(DeviceConformance, PoisonFillsAllOfIt) {
  auto memory = allocate(4096 + 64, bundle::DEVICE, /*poison=*/true);
  std::string bytes = readAll(memory->base(), memory->bytes());
  for (size_t i = 0; i < bytes.size(); i += sizeof kPoisonWord)
    EXPECT_EQ(std::memcmp(bytes.data() + i, &kPoisonWord, sizeof kPoisonWord), 0)
        << "at byte " << i;
}

TEST_P(DeviceConformance, AllocationsLieApart) {
  std::vector<std::unique_ptr<DeviceMemory>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(allocate(1000 + size_t(i)));
    ASSERT_FALSE(device->fill(all.back()->base(), std::byte(i + 1), all.back()->bytes()).failed());
  }
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(readAll(all[size_t(i)]->base(), all[size_t(i)]->bytes()),
              std::string(all[size_t(i)]->bytes(), char(i + 1)));
}

TEST_P(DeviceConformance, BytesArriveBetweenEveryTwoKinds) {
  std::string text(100001, ' ');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = char(i * 31 % 251);
  for (bundle::MemoryKind from : kEveryMemory)
    for (bundle::MemoryKind to : kEveryMemory) {
      auto a = allocate(text.size() + 200, from), b = allocate(text.size() + 200, to);
      ASSERT_FALSE(device->write(a->base() + 3, text.data(), text.size()).failed());
      ASSERT_FALSE(device->copy(b->base() + 101, a->base() + 3, text.size()).failed());
      EXPECT_EQ(readAll(b->base() + 101, text.size()), text);
      EXPECT_EQ(readAll(b->base(), 101), std::string(101, '\0'));
      ASSERT_FALSE(device->fill(b->base() + 101, std::byte(7), 50).failed());
      EXPECT_EQ(readAll(b->base() + 101, 51), std::string(50, char(7)) + text[50]);
    }
}

TEST_P(DeviceConformance, CopiesMayOverlap) {
  std::string text(50000, ' ');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = char(i * 17 % 253);
  auto memory = allocate(text.size() + 1000);
  for (size_t shift : {size_t(1), size_t(999)}) {
    ASSERT_FALSE(device->write(memory->base(), text.data(), text.size()).failed());
    ASSERT_FALSE(device->copy(memory->base() + shift, memory->base(), text.size()).failed());
    EXPECT_EQ(readAll(memory->base() + shift, text.size()), text);
    ASSERT_FALSE(device->copy(memory->base(), memory->base() + shift, text.size()).failed());
    EXPECT_EQ(readAll(memory->base(), text.size()), text);
  }
}

TEST_P(DeviceConformance, OnlyItsTransportsReachItsMemory) {
  auto memory = allocate(64);
  auto unknown = device->expose(memory->base(), "pigeons");
  ASSERT_TRUE(unknown.failed());
  EXPECT_NE(unknown.message().find("'pigeons'"), std::string::npos) << unknown.message();
}

// Queues.

TEST_P(DeviceConformance, AQueueKeepsItsOrder) {
  open({0});
  auto memory = allocate(8);
  std::vector<uint64_t> values(500), seen;
  Task look([&](uint64_t, size_t) {
    uint64_t value = 0;
    Status status = device->read(&value, memory->base(), sizeof value);
    seen.push_back(value);
    return status;
  });
  Event last;
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = i * 3 + 1;
    put(0, {}, WriteWork{memory->base(), &values[i], 8});
    last = put(0, {}, HostWork{&look, i});
  }
  Status status = device->wait(last);
  ASSERT_FALSE(status.failed()) << status.message();
  EXPECT_EQ(seen, values);
  EXPECT_EQ(device->done(0), 2 * values.size());
  EXPECT_TRUE(device->isDone(last));
  EXPECT_FALSE(device->isDone({0, last.count + 1}));
}

TEST_P(DeviceConformance, NothingBeginsBeforeItsEvents) {
  open({0, 1, 1});
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::atomic<bool> before{false}, after{false};
  Task blocked([&](uint64_t, size_t) {
    opened.wait();
    before = true;
    return Status::success();
  });
  Task waiting([&](uint64_t, size_t) {
    after = before.load();
    return after ? Status::success() : Status(userError("it began before its event"));
  });
  Event first = put(0, {}, HostWork{&blocked, 0});
  Event second = put(1, {first}, HostWork{&waiting, 0}), third = put(2, {first, second}, NoWork{});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(device->isDone(first) || device->isDone(second) || device->isDone(third));
  gate.set_value();
  Status status = device->wait(third);
  EXPECT_FALSE(status.failed()) << status.message();
  EXPECT_TRUE(after);
  EXPECT_TRUE(device->isDone(second));
}

TEST_P(DeviceConformance, WhatWaitsSeesWhatItWaitedFor) {
  // A number passes through four queues on three workers; each adds one to it.
  open({0, 1, 2, 2});
  auto memory = allocate(8);
  std::mt19937 random(7);
  std::vector<int> delays(400);
  for (int &delay : delays)
    delay = random() % 4 == 0 ? int(random() % 200) : 0;
  Task add([&](uint64_t i, size_t) {
    uint64_t value = 0;
    if (Status status = device->read(&value, memory->base(), sizeof value); status.failed())
      return status;
    std::this_thread::sleep_for(std::chrono::microseconds(delays[i]));
    if (value != i)
      return Status(userError("expects " + std::to_string(i) + ", got " + std::to_string(value)));
    return device->write(memory->base(), &++value, sizeof value);
  });
  Event last;
  for (uint64_t i = 0; i < delays.size(); ++i) {
    std::vector<Event> waits;
    if (i > 0)
      waits = {last};
    last = device->enqueue(uint32_t(random() % 4), waits.data(), waits.size(), HostWork{&add, i}, 0,
                           false);
  }
  device->flush();
  Status status = device->wait(last);
  EXPECT_FALSE(status.failed()) << status.message();
}

TEST_P(DeviceConformance, QueuesMoveBytes) {
  open({0, 1});
  constexpr size_t kBytes = (3 << 20) + 5;
  auto a = allocate(kBytes), b = allocate(kBytes, bundle::HOST);
  std::string from(kBytes, 'x'), to(kBytes, ' ');
  for (size_t i = 0; i < kBytes; i += 7)
    from[i] = char(i);
  Event written = put(0, {}, WriteWork{a->base(), from.data(), kBytes});
  Event copied = put(1, {written}, CopyWork{b->base(), a->base(), kBytes});
  Event read = put(0, {copied}, ReadWork{to.data(), b->base(), kBytes});
  Status status = device->wait(read);
  ASSERT_FALSE(status.failed()) << status.message();
  EXPECT_EQ(from, to);
}

TEST_P(DeviceConformance, TheObserverHearsWhatItAskedForInOrder) {
  open({0});
  Task nothing([](uint64_t, size_t) { return Status::success(); });
  Event last;
  for (uint64_t i = 0; i < 60; ++i)
    last = put(0, {}, i % 2 ? Work(NoWork{}) : Work(HostWork{&nothing, 0}), 1000 + i, i % 3 == 0);
  ASSERT_FALSE(device->wait(last).failed());
  device->closeQueues();
  std::vector<uint64_t> expected;
  for (uint64_t i = 0; i < 60; i += 3)
    expected.push_back(1000 + i);
  EXPECT_EQ(heard.tags, expected);
  EXPECT_TRUE(heard.timesRight);
  EXPECT_TRUE(heard.failures.empty());
}

// Failures.

TEST_P(DeviceConformance, AFailureReachesWhoeverWaits) {
  open({0, 1});
  std::atomic<int> ran{0};
  Task fails([](uint64_t, size_t) { return Status(userError("the wire is cut")); });
  Task counts([&](uint64_t, size_t) {
    ++ran;
    return Status::success();
  });
  put(0, {}, HostWork{&counts, 0});
  Event failed = put(0, {}, HostWork{&fails, 0}, 42);
  Event behind = put(0, {}, HostWork{&counts, 0}), beside = put(1, {failed}, HostWork{&counts, 0});
  for (Event event : {failed, behind, beside}) {
    Status status = device->wait(event);
    ASSERT_TRUE(status.failed());
    EXPECT_EQ(status.error().message, "the wire is cut");
    EXPECT_FALSE(device->isDone(event));
  }
  device->closeQueues();
  EXPECT_EQ(ran, 1);
  ASSERT_EQ(heard.failures.size(), 1u);
  EXPECT_EQ(heard.failures[0].first, 42u);
  EXPECT_EQ(heard.failures[0].second, "the wire is cut");
}

TEST_P(DeviceConformance, AbortEndsWaitsAndGivesUpTheRest) {
  open({0, 1});
  std::promise<void> gate;
  std::atomic<bool> ran{false};
  Task blocked([&](uint64_t, size_t) {
    gate.get_future().wait();
    return Status::success();
  });
  Task never([&](uint64_t, size_t) {
    ran = true;
    return Status::success();
  });
  Event first = put(0, {}, HostWork{&blocked, 0});
  Event second = put(1, {first}, HostWork{&never, 0});
  std::thread aborting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device->abort(userError("the other side has gone"));
    device->abort(userError("said too late"));
  });
  Status status = device->wait(second);
  ASSERT_TRUE(status.failed());
  EXPECT_EQ(status.error().message, "the other side has gone");
  aborting.join();
  gate.set_value();
  device->closeQueues();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(heard.failures.empty()); // the caller of abort is not notified
}

TEST_P(DeviceConformance, ADeviceEndsWithWorkUnderWay) {
  open({0, 1});
  std::promise<void> begun, gate;
  std::atomic<bool> over{false};
  Task blocked([&](uint64_t, size_t) {
    begun.set_value();
    gate.get_future().wait();
    over = true;
    return Status::success();
  });
  Task later([](uint64_t, size_t) { return Status::success(); });
  Event first = put(0, {}, HostWork{&blocked, 0});
  for (int i = 0; i < 100; ++i)
    put(1, {first}, HostWork{&later, 0});
  begun.get_future().wait(); // work that has not begun when a device ends never begins
  std::thread opening([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.set_value();
  });
  device.reset();
  opening.join();
  EXPECT_TRUE(over); // work that has begun runs to its end; its memory is not accessed afterwards
}

// Functions.

TEST_P(DeviceConformance, BodiesRunInOrderWithWhatComesBeforeThem) {
  ASSERT_FALSE(device->loadFunctions(emptyFunctions(3), "/nonexistent").failed());
  open({0});
  std::vector<std::pair<uint64_t, size_t>> before;
  Task hook([&](uint64_t argument, size_t call) {
    before.emplace_back(argument, call);
    return Status::success();
  });
  FunctionCall calls[3];
  for (uint32_t i = 0; i < 3; ++i)
    calls[i].function = i;
  put(0, {}, CallWork{calls, 3, &hook, 5});
  Event last = put(0, {}, CallWork{calls, 2, nullptr, 0});
  Status status = device->wait(last);
  ASSERT_FALSE(status.failed()) << status.message();
  EXPECT_EQ(before, (std::vector<std::pair<uint64_t, size_t>>{{5, 0}, {5, 1}, {5, 2}}));
}

TEST_P(DeviceConformance, BodiesThatAreNotThereFail) {
  ASSERT_FALSE(device->loadFunctions(emptyFunctions(1), "/nonexistent").failed());
  EXPECT_FALSE(device->runFunction(0, {}).failed());
  EXPECT_TRUE(device->runFunction(1, {}).failed());
  open({0});
  FunctionCall call;
  call.function = 17;
  EXPECT_TRUE(device->wait(put(0, {}, CallWork{&call, 1, nullptr, 0})).failed());
}

TEST_P(DeviceConformance, LaunchesThatItDoesNotKnowAreRefused) {
  bundle::FunctionLibrary library = emptyFunctions(2);
  library.mutable_functions(1)->add_launches();
  Status status = device->loadFunctions(library, "/nonexistent");
  ASSERT_TRUE(status.failed());
  EXPECT_NE(status.message().find("function 'nothing 1'"), std::string::npos) << status.message();
}

// Computing.

/// C (m x n) = A (m x k) * B (k x n) with m rows; arguments A, B, C.
inline bundle::CompiledFunction productFunction(int64_t n, int64_t k) {
  bundle::CompiledFunction function;
  function.set_name("product");
  const int64_t fixed[] = {0, k * n * 4, 0}, perRow[] = {k * 4, 0, n * 4};
  for (int i = 0; i < 3; ++i) {
    bundle::FunctionArgument &argument = *function.add_arguments();
    argument.set_kind(bundle::WORKSPACE);
    argument.set_index(uint32_t(i));
    argument.set_mode(i == 2 ? bundle::ACCUMULATE : bundle::READ);
    argument.set_type(bundle::F32);
    argument.mutable_bytes()->set_fixed(fixed[i]);
    argument.mutable_bytes()->set_per_row(perRow[i]);
  }
  bundle::Matmul &product = *function.add_launches()->mutable_matmul();
  product.set_type(bundle::F32);
  product.mutable_m()->set_per_row(1);
  product.mutable_n()->set_fixed(n);
  product.mutable_k()->set_fixed(k);
  product.mutable_batch()->set_fixed(1);
  product.mutable_b()->set_argument(1);
  product.mutable_c()->set_argument(2);
  product.set_lda(k);
  product.set_ldb(n);
  product.set_ldc(n);
  product.set_alpha(1);
  product.set_accumulates(true);
  return function;
}

TEST_P(DeviceComputing, ProductsFollowRowsAndOverwrite) {
  constexpr int64_t kRows = 5, kN = 7, kK = 11;
  bundle::FunctionLibrary library = emptyFunctions(1);
  *library.add_functions() = productFunction(kN, kK);
  Status loaded = device->loadFunctions(library, "/nonexistent");
  ASSERT_FALSE(loaded.failed()) << loaded.message();
  std::vector<float> a(kRows * kK), b(kK * kN), c(kRows * kN, 0.5f), got(c.size());
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = float(i % 5) - 2;
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = float(i % 7) - 3;
  std::vector<float> expected(c.size());
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kN; ++j)
      for (int64_t k = 0; k < kK; ++k)
        expected[size_t(i * kN + j)] += a[size_t(i * kK + k)] * b[size_t(k * kN + j)];
  auto ma = allocate(a.size() * 4), mb = allocate(b.size() * 4), mc = allocate(c.size() * 4);
  open({0, 1});
  const DeviceAddress addresses[] = {ma->base(), mb->base(), mc->base()};
  const uint8_t none[] = {0, 0, 0}, first[] = {0, 0, 1};
  FunctionCall add{1, {{kRows}, addresses, none}}, overwrite{1, {{kRows}, addresses, first}};
  Event inputs[] = {put(1, {}, WriteWork{ma->base(), a.data(), a.size() * 4}),
                    put(1, {}, WriteWork{mb->base(), b.data(), b.size() * 4}),
                    put(1, {}, WriteWork{mc->base(), c.data(), c.size() * 4})};
  uint64_t before = device->launches();
  Event added = put(0, {inputs[2]}, CallWork{&add, 1, nullptr, 0});
  ASSERT_FALSE(
      device->wait(put(1, {added}, ReadWork{got.data(), mc->base(), got.size() * 4})).failed());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_FLOAT_EQ(got[i], 0.5f + expected[i]);
  Event replaced = put(0, {}, CallWork{&overwrite, 1, nullptr, 0});
  ASSERT_FALSE(
      device->wait(put(1, {replaced}, ReadWork{got.data(), mc->base(), got.size() * 4})).failed());
  EXPECT_EQ(got, expected);
  EXPECT_GE(device->launches(), before + 2);
}

TEST_P(DeviceComputing, CodeThatItDoesNotHaveIsNamed) {
  auto message = [&](bundle::FunctionLibrary library) {
    std::unique_ptr<QueuedDevice> fresh = GetParam().make();
    Status status = fresh->loadFunctions(library, "/nonexistent");
    return status.failed() ? status.message() : std::string("accepted");
  };
  bundle::FunctionLibrary kernel = emptyFunctions(0), routine = emptyFunctions(0),
                          object = emptyFunctions(1), foreign = emptyFunctions(1);
  bundle::CompiledFunction &first = *kernel.add_functions(), &second = *routine.add_functions();
  first.set_name("first");
  first.add_launches()->mutable_kernel()->set_symbol("no_such_kernel");
  second.set_name("second");
  second.add_launches()->mutable_library()->set_name("no_such_routine");
  object.add_objects("no_such_object");
  foreign.set_arch("vax-11/780");
  EXPECT_NE(message(kernel).find("no_such_kernel"), std::string::npos) << message(kernel);
  EXPECT_NE(message(routine).find("no_such_routine"), std::string::npos) << message(routine);
  EXPECT_NE(message(object).find("no_such_object"), std::string::npos) << message(object);
  if (!GetParam().arch.empty()) {
    EXPECT_NE(message(foreign).find("vax-11/780"), std::string::npos) << message(foreign);
  }
}

} // namespace zorse::runtime::test
