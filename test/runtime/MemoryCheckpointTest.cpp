// Tests checkpoints in memory: jobs that die at random moments, other plans, torn copies, lost
// nodes and full memory.
#include "QuickStorage.h"
#include "StateOnly.h"
#include "ThreadGroup.h"

#include "../../runtime/lib/checkpoint/StateReaders.h"
#include "../../runtime/lib/checkpoint/memory/MemoryCheckpointWriter.h"
#include "../../runtime/lib/checkpoint/memory/MemoryPeers.h"

#include "zorse/runtime/CheckpointFiles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;
namespace fs = std::filesystem;

namespace {

std::mt19937 randomFrom(unsigned seed) { return std::mt19937(seed); }

void expectSays(const std::string &message, const std::string &words) {
  EXPECT_NE(message.find(words), std::string::npos) << "no '" << words << "' in: " << message;
}

class MemoryCheckpointTest : public ::testing::Test {
protected:
  static RunConfig runConfigOf(const Bundle &bundle) {
    RunConfig runConfig;
    runConfig.model = bundle.summary.content_hash();
    runConfig.training = bundle.summary.training();
    runConfig.steps = 1000;
    return runConfig;
  }

  CheckpointOptions options() const {
    CheckpointOptions out;
    out.directory = directory;
    out.memoryDirectory = memory;
    out.resuming = true;
    out.warn = [this](const std::string &text) {
      std::lock_guard<std::mutex> lock(mutex);
      warnings.push_back(text);
    };
    return out;
  }

  /// Folder of the node of a device: node 0 has all devices unless nodesOf is set.
  std::string memoryOf(const Bundle &bundle, uint32_t device) const {
    return nodesOf.empty() ? memory : memory + "/" + nodesOf.at(bundle.devices[device].name);
  }
  std::map<std::string, std::string> nodesOf; ///< by device
  bool copies = false;                        ///< to other nodes
  bool reports = false;                       ///< rank 0 reports steps, late
  mutable std::atomic<uint64_t> reported{0};  ///< last step

  /// One start of a job with a rank per device.
  struct Start {
    std::vector<uint64_t> resumedAt;
    std::vector<std::string> errors, paths;
    uint64_t committed = 0; ///< newest step that some rank knows to be committed
  };

  /// Trains `steps` steps after the resumed one, or until a rank dies.
  /// \param life  microseconds until a rank dies; 0: none
  Start train(const Bundle &bundle, uint64_t generation, uint64_t steps, unsigned life = 0,
              uint64_t every = 1, uint64_t save = 0) {
    const auto count = uint32_t(bundle.devices.size());
    ThreadJob job(count, generation);
    std::atomic<bool> dead{false};
    Start out;
    out.resumedAt.resize(count);
    out.errors.resize(count);
    out.paths.resize(count);
    std::vector<uint64_t> committed(count);
    std::vector<std::thread> ranks;
    ranks.reserve(count);
    for (uint32_t r = 0; r < count; ++r)
      ranks.emplace_back([&, r] {
        out.errors[r] = trainRank(bundle, r, job, steps, every, save, dead, out, committed[r]);
      });
    if (life > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(life));
      dead = true;
      job.kill(generation % count);
    }
    for (std::thread &rank : ranks)
      rank.join();
    out.committed = *std::max_element(committed.begin(), committed.end());
    return out;
  }

  std::string trainRank(const Bundle &bundle, uint32_t rank, ThreadJob &job, uint64_t steps,
                        uint64_t every, uint64_t save, const std::atomic<bool> &dead, Start &out,
                        uint64_t &committed) const {
    auto executor = stateExecutor(bundle, {rank});
    fillState(bundle, *executor, 0);
    auto group = job.group(rank);
    CheckpointOptions chosen = options();
    chosen.memoryDirectory = memoryOf(bundle, rank);
    chosen.memoryPeers.listenAddress = nodesOf.empty() ? "" : "127.0.0.1";
    chosen.memoryPeers.secret = "secret";
    chosen.memoryPeers.copies = copies;
    chosen.memoryEvery = every;
    chosen.every = save;
    if (reports && rank == 0)
      chosen.reported = std::make_shared<ReportedSteps>();
    auto checkpoints = CheckpointManager::open(
        *executor, bundle, *group, chosen, runConfigOf(bundle), std::make_shared<QuickStorage>());
    if (checkpoints.failed())
      return dead ? "" : checkpoints.message();
    std::string note;
    auto point = (*checkpoints)->resume(false, &note);
    if (point.failed())
      return dead ? "" : point.message();
    const uint64_t first = *point ? (*point)->step : 0;
    out.resumedAt[rank] = first;
    out.paths[rank] = *point ? (*point)->path : "none";
    committed = first;
    if (chosen.reported)
      chosen.reported->add(first);
    if (*point && wrongElements(bundle, *executor, first) > 0)
      return "wrong elements after step " + std::to_string(first);
    uint64_t copies = 0;
    for (uint64_t step = first + 1; step <= first + steps && !dead; ++step) {
      fillState(bundle, *executor, step);
      StateObserver *observer = (*checkpoints)->beginIfDue(step, false);
      if (!observer)
        continue;
      observer->onStateQuiescent(rank, step);
      if (chosen.reported)
        report(step, *chosen.reported, dead);
      copies += step % every == 0;
      while ((*checkpoints)->memoryCounts().copies < copies && !dead && !memoryEnded())
        std::this_thread::yield();
      if (const uint64_t done = (*checkpoints)->memoryCounts().committed; done > 0)
        committed = (first / every + done) * every;
      if (save > 0 && step % save == 0)
        if (Status status = (*checkpoints)->finish(); status.failed() && !dead)
          return status.message();
    }
    const uint64_t due = (first + steps) / every - first / every;
    while (!dead && (*checkpoints)->memoryCounts().committed < due && !memoryEnded())
      std::this_thread::yield();
    if (const uint64_t done = (*checkpoints)->memoryCounts().committed; done > 0)
      committed = (first / every + done) * every;
    return "";
  }

  /// Reports a step after up to 0.3 ms, unless the job dies before.
  void report(uint64_t step, ReportedSteps &steps, const std::atomic<bool> &dead) const {
    std::this_thread::sleep_for(std::chrono::microseconds(step * 7919 % 300));
    if (dead)
      return;
    reported = step;
    steps.add(step);
  }

  bool memoryEnded() const {
    std::lock_guard<std::mutex> lock(mutex);
    return std::any_of(warnings.begin(), warnings.end(), [](const std::string &text) {
      return text.find("checkpoints in memory end") != std::string::npos ||
             text.find("no checkpoints in memory") != std::string::npos;
    });
  }

  /// Other warnings than that the test takes no time between checkpoints.
  size_t warningCount() const {
    std::lock_guard<std::mutex> lock(mutex);
    return size_t(std::count_if(warnings.begin(), warnings.end(), [](const std::string &text) {
      return text.find("training waits") == std::string::npos;
    }));
  }

  Bundle plan(uint32_t devices, unsigned seed, int64_t scale = 100,
              bool firstOwnsNothing = false) const {
    StateOnlyOptions chosen;
    chosen.devices = devices;
    chosen.seed = seed;
    chosen.scale = scale;
    chosen.firstOwnsNothing = firstOwnsNothing && devices > 1;
    chosen.frozen = {}; // fillState would change them while they are hashed
    return stateOnly(folder, chosen);
  }

  std::vector<std::string> slots() const {
    std::vector<std::string> out;
    for (const auto &entry : fs::recursive_directory_iterator(memory))
      if (entry.path().extension() == ".0" || entry.path().extension() == ".1")
        out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
  }

  struct Head {
    uint64_t magic, complete, generation, step;
  };
  static Head headOf(const std::string &slot) {
    Head head = {};
    std::ifstream(slot, std::ios::binary).read(reinterpret_cast<char *>(&head), sizeof head);
    return head;
  }
  static void tear(const std::string &slot) {
    std::fstream file(slot, std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t incomplete = 0;
    file.seekp(8);
    file.write(reinterpret_cast<const char *>(&incomplete), 8);
  }

  TemporaryDirectory folder;
  std::string directory = folder.path("checkpoints"), memory = folder.path("memory");
  mutable std::mutex mutex;
  mutable std::vector<std::string> warnings;

  void SetUp() override { fs::create_directories(memory); }
};

TEST_F(MemoryCheckpointTest, AnyPlanContinuesFromMemory) {
  uint64_t step = 0;
  for (uint64_t generation = 1; generation <= 12; ++generation) {
    const Bundle bundle = plan(1 + (generation * 3) % 5, unsigned(generation));
    const Start start = train(bundle, generation, 3);
    for (uint32_t r = 0; r < bundle.devices.size(); ++r) {
      EXPECT_EQ(start.errors[r], "");
      EXPECT_EQ(start.resumedAt[r], step);
      EXPECT_EQ(start.paths[r], generation == 1 ? "none" : "");
    }
    step += 3;
    EXPECT_EQ(start.committed, step);
  }
  EXPECT_EQ(warningCount(), 0u);
  // The slots of devices that are not in the last plan are gone.
  EXPECT_EQ(slots().size(), 2 * plan(1 + 36 % 5, 12).devices.size());
  const auto left = findMemoryCheckpoints(memory, directory);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->step, step);
}

/// Every start dies at a random moment, and what was being copied may be torn. A step that some
/// rank knows to be committed is never lost. ZORSE_TEST_SCHEDULES sets the number of starts.
TEST_F(MemoryCheckpointTest, ACommittedStepSurvivesEveryDeath) {
  const char *given = std::getenv("ZORSE_TEST_SCHEDULES");
  const uint64_t starts = given ? std::strtoull(given, nullptr, 10) : 150;
  std::mt19937 random = randomFrom(7);
  uint64_t committed = 0, advanced = 0;
  for (uint64_t generation = 1; generation <= starts; ++generation) {
    const Bundle bundle = plan(1 + random() % 4, unsigned(random()), 1200);
    const Start start = train(bundle, generation, 1000, 200 + random() % 20000, 1 + random() % 2);
    std::optional<uint64_t> resumed;
    for (uint32_t r = 0; r < bundle.devices.size(); ++r) {
      ASSERT_EQ(start.errors[r], "") << "start " << generation;
      if (start.paths[r].empty() && start.resumedAt[r] == 0)
        continue; // it died before it resumed
      if (start.paths[r] == "none")
        continue;
      ASSERT_GE(start.resumedAt[r], committed) << "start " << generation;
      ASSERT_TRUE(!resumed || *resumed == start.resumedAt[r]) << "start " << generation;
      resumed = start.resumedAt[r];
    }
    advanced += start.committed > committed;
    committed = std::max(committed, start.committed);
    // A step that all devices have may be committed; of others, any copy may be torn.
    std::map<std::pair<uint64_t, uint64_t>, size_t> copies;
    for (const std::string &slot : slots())
      copies[{headOf(slot).generation, headOf(slot).step}] += headOf(slot).complete;
    for (const std::string &slot : slots()) {
      const Head head = headOf(slot);
      if (head.generation == generation && head.step > committed && random() % 2 &&
          copies[{head.generation, head.step}] < bundle.devices.size())
        tear(slot);
    }
  }
  EXPECT_GT(advanced, starts / 4);
}

/// A job never continues after a step that its outputs do not have, in whichever order copies,
/// reports and deaths come.
TEST_F(MemoryCheckpointTest, OnlyReportedStepsCount) {
  reports = true;
  std::mt19937 random = randomFrom(11);
  uint64_t committed = 0, inMemory = 0;
  constexpr uint64_t kStarts = 100;
  for (uint64_t generation = 1; generation <= kStarts; ++generation) {
    const Bundle bundle = plan(1 + random() % 3, unsigned(random()), 300, random() % 2);
    const uint64_t before = reported;
    const Start start = train(bundle, generation, 1000, 1000 + random() % 12000, 1, 7);
    for (uint32_t r = 0; r < bundle.devices.size(); ++r) {
      ASSERT_EQ(start.errors[r], "") << "start " << generation;
      if (start.paths[r].empty() && start.resumedAt[r] == 0)
        continue; // it died before it resumed
      if (start.paths[r] != "none")
        ASSERT_GE(start.resumedAt[r], committed) << "start " << generation;
      ASSERT_LE(start.resumedAt[r], before) << "start " << generation;
      inMemory += start.paths[r].empty();
    }
    committed = std::max(committed, start.committed);
  }
  EXPECT_GT(committed, kStarts / 10);
  EXPECT_GT(inMemory, kStarts / 2);
}

TEST_F(MemoryCheckpointTest, WithoutOneSlotTheStepBeforeIsUsedAndThenStorage) {
  const Bundle bundle = plan(3, 1);
  {
    const Start start = train(bundle, 1, 6, 0, 1, 4); // storage: step 4
    ASSERT_EQ(start.errors, std::vector<std::string>(3));
  }
  for (const std::string &slot : slots())
    if (headOf(slot).step == 6) {
      tear(slot);
      break;
    }
  EXPECT_EQ(train(bundle, 2, 0).resumedAt, std::vector<uint64_t>(3, 5));
  for (const std::string &slot : slots())
    if (headOf(slot).step == 5) {
      fs::remove(slot); // a node is lost
      break;
    }
  const Start start = train(bundle, 3, 2);
  EXPECT_EQ(start.errors, std::vector<std::string>(3));
  EXPECT_EQ(start.resumedAt, std::vector<uint64_t>(3, 4));
  EXPECT_EQ(start.paths[0], directory + "/step-00000004.g1");
  EXPECT_EQ(train(bundle, 4, 0).resumedAt, std::vector<uint64_t>(3, 6));
}

/// Devices of other nodes, also of one that is new, read the state over the network.
TEST_F(MemoryCheckpointTest, NodesReadFromEachOther) {
  for (const char *node : {"x", "y", "z"})
    fs::create_directories(memory + "/" + node);
  nodesOf = {{"dev:0", "x"}, {"dev:1", "x"}, {"dev:2", "y"}, {"dev:3", "y"}, {"dev:4", "z"}};
  uint64_t step = 0, generation = 0;
  for (const uint32_t devices : {4u, 3u, 4u, 5u, 5u}) {
    const Bundle bundle = plan(devices, devices + unsigned(step));
    const Start start = train(bundle, ++generation, 2);
    EXPECT_EQ(start.errors, std::vector<std::string>(devices)) << generation;
    EXPECT_EQ(start.resumedAt, std::vector<uint64_t>(devices, step)) << generation;
    step = start.committed;
  }
  EXPECT_EQ(step, 10u);
  EXPECT_EQ(warningCount(), 0u) << warnings[0];
}

/// With copies on other nodes, nothing is lost with a node.
TEST_F(MemoryCheckpointTest, AnyNodeMayBeLost) {
  copies = true;
  for (uint32_t d = 0; d < 6; ++d)
    nodesOf["dev:" + std::to_string(d)] = std::string(1, char('a' + d / 2));
  std::mt19937 random = randomFrom(3);
  uint64_t step = 0;
  for (uint64_t generation = 1; generation <= 25; ++generation) {
    for (const char *node : {"a", "b", "c"})
      fs::create_directories(memory + "/" + node);
    const uint32_t devices = 5 + random() % 2; // on three nodes
    const Bundle bundle = plan(devices, unsigned(generation));
    const Start start = train(bundle, generation, 1 + random() % 4);
    ASSERT_EQ(start.errors, std::vector<std::string>(devices)) << generation;
    ASSERT_EQ(start.resumedAt, std::vector<uint64_t>(devices, step)) << generation;
    step = start.committed;
    fs::remove_all(memory + "/" + std::string(1, char('a' + random() % 3)));
  }
  EXPECT_EQ(warningCount(), 0u);
}

TEST_F(MemoryCheckpointTest, StrangersLearnNothing) {
  auto store = MemoryStore::open(memory, directory);
  ASSERT_FALSE(store.failed());
  CheckpointOptions::Peers options;
  options.listenAddress = "127.0.0.1";
  options.secret = "secret";
  options.timeoutSeconds = 2;
  auto server = MemoryServer::start(*store, options);
  ASSERT_FALSE(server.failed()) << server.message();
  options.secret = "another secret";
  auto stranger = MemoryPeer::connect((*server)->endpoint(), options);
  ASSERT_TRUE(stranger.failed());
  expectSays(stranger.message(), "it does not know this job's secret");
  options.secret = "secret";
  auto peer = MemoryPeer::connect((*server)->endpoint(), options);
  ASSERT_FALSE(peer.failed()) << peer.message();
  auto layout = (*peer)->readLayout(4);
  ASSERT_TRUE(layout.failed());
  expectSays(layout.message(), "layout-4.json: does not exist");
  const Status read = (*peer)->read({4, 2}, "file", {{0, 8}}, [](size_t, const std::byte *) {});
  ASSERT_TRUE(read.failed());
  expectSays(read.message(), "does not contain the state of file after step 2");
}

/// Both readers of the state get it, and the executor is released once.
TEST_F(MemoryCheckpointTest, ACheckpointInStorageOfTheSameStep) {
  const Bundle bundle = plan(2, 3);
  const Start start = train(bundle, 1, 8, 0, 1, 2);
  ASSERT_EQ(start.errors, std::vector<std::string>(2));
  EXPECT_EQ(start.committed, 8u);
  auto found = listCheckpoints(directory);
  ASSERT_FALSE(found.failed());
  ASSERT_FALSE(found->empty());
  EXPECT_EQ(found->front().name, "step-00000008.g1");
}

/// A process that is killed while it copies leaves no slot that looks complete.
TEST_F(MemoryCheckpointTest, ACopyInProgressIsIncomplete) {
  const Bundle bundle = plan(1, 1, 1'000'000); // 72 MB
  std::atomic<bool> over{false};
  size_t incomplete = 0;
  std::thread watcher([&] {
    while (!over)
      for (const std::string &slot : slots()) {
        const Head head = headOf(slot);
        incomplete += head.step > 0 && head.complete == 0;
      }
  });
  const Start start = train(bundle, 1, 8);
  over = true;
  watcher.join();
  EXPECT_EQ(start.committed, 8u);
  EXPECT_GT(incomplete, 0u);
}

/// With a second reader of the same step, the state is released only after both.
TEST_F(MemoryCheckpointTest, TheStateIsReleasedAfterBothReaders) {
  class Second final : public StateObserver {
  public:
    void onStateQuiescent(uint32_t, uint64_t) override { ++calls; }
    std::atomic<int> calls{0};
  };
  const Bundle bundle = plan(1, 1);
  auto executor = stateExecutor(bundle);
  fillState(bundle, *executor, 1);
  auto group = makeSingleProcessGroup(1);
  auto store = MemoryStore::open(memory, directory);
  ASSERT_FALSE(store.failed());
  std::atomic<int> released{0};
  StateReaders readers([&](uint32_t) { ++released; });
  Second second;
  MemoryCheckpointWriter writer(MemoryCheckpointContext{
      *executor, bundle, *group, runConfigOf(bundle), 1, *store, readers, {}, {}, {}, {}, {}});
  writer.due(1, &second)->onStateQuiescent(0, 1);
  while (writer.counts().committed < 1)
    std::this_thread::yield();
  EXPECT_EQ(second.calls, 1);
  EXPECT_EQ(released, 0);
  readers.release(0); // by the second one
  EXPECT_EQ(released, 1);
}

TEST(StateReadersTest, TheLastReaderReleasesTheState) {
  std::vector<uint32_t> released;
  StateReaders readers([&](uint32_t device) { released.push_back(device); });
  readers.release(3); // one reader
  EXPECT_EQ(released, std::vector<uint32_t>({3}));
  readers.add(3);
  readers.release(3);
  readers.release(4);
  EXPECT_EQ(released, std::vector<uint32_t>({3, 4}));
  readers.release(3);
  EXPECT_EQ(released, std::vector<uint32_t>({3, 4, 3}));
}

/// A process of an older start that still has its slots writes into files without names.
TEST_F(MemoryCheckpointTest, ASuspendedProcessDisturbsNothing) {
  const Bundle bundle = plan(1, 1);
  ThreadJob old(1, 1);
  auto executor = stateExecutor(bundle, {0});
  auto group = old.group(0);
  auto suspended = CheckpointManager::open(*executor, bundle, *group, options(),
                                           runConfigOf(bundle), std::make_shared<QuickStorage>());
  ASSERT_FALSE(suspended.failed());
  fillState(bundle, *executor, 1);
  (*suspended)->beginIfDue(1, false)->onStateQuiescent(0, 1);
  while ((*suspended)->memoryCounts().committed < 1)
    std::this_thread::yield();
  EXPECT_EQ(train(bundle, 2, 4).committed, 5u);
  fillState(bundle, *executor, 2);
  (*suspended)->beginIfDue(2, false)->onStateQuiescent(0, 2);
  while ((*suspended)->memoryCounts().committed < 2)
    std::this_thread::yield();
  const Start start = train(bundle, 3, 0);
  EXPECT_EQ(start.errors[0], "");
  EXPECT_EQ(start.resumedAt[0], 5u);
}

TEST_F(MemoryCheckpointTest, WhatADeletedJobLeftIsRemoved) {
  const Bundle bundle = plan(2, 1);
  ASSERT_EQ(train(bundle, 1, 2).committed, 2u);
  const std::string first = findMemoryCheckpoints(memory, directory)->folder;
  const std::string before = directory;
  directory = folder.path("another");
  ASSERT_EQ(train(bundle, 1, 2).committed, 2u);
  EXPECT_TRUE(fs::exists(first)); // its job may be resumed
  fs::remove_all(before);
  ASSERT_EQ(train(bundle, 2, 2).committed, 4u);
  EXPECT_FALSE(fs::exists(first));
}

TEST_F(MemoryCheckpointTest, AFolderThatOthersMayWriteIsRefused) {
  const Bundle bundle = plan(1, 1);
  ASSERT_EQ(train(bundle, 1, 2).committed, 2u);
  const std::string store = findMemoryCheckpoints(memory, directory)->folder;
  fs::permissions(store, fs::perms::others_write, fs::perm_options::add);
  const Start start = train(bundle, 2, 2);
  EXPECT_EQ(start.errors[0], "");
  ASSERT_EQ(warningCount(), 1u);
  EXPECT_NE(warnings[0].find("only this user can read and write"), std::string::npos)
      << warnings[0];
}

} // namespace
