// Tests measurements: quotas of control groups, medians, links between two ends.
#include "zorse/runtime/Measure.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <unistd.h>

using namespace zorse::runtime;

namespace {

struct FakeRoot {
  std::filesystem::path root;
  FakeRoot()
      : root(std::filesystem::path(::testing::TempDir()) /
             ("quota-" + std::to_string(::getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~FakeRoot() { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  CpuQuota quota() const { return cpuQuota(root.string()); }
};

TEST(CpuQuota, NoneWithoutGroups) {
  FakeRoot fake;
  EXPECT_EQ(fake.quota().cpus, 0);
  fake.write("proc/self/cgroup", "0::/user.slice\nnonsense\n:\n");
  fake.write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(fake.quota().cpus, 0);
  fake.write("sys/fs/cgroup/user.slice/cpu.max", "");
  EXPECT_EQ(fake.quota().cpus, 0);
}

TEST(CpuQuota, NarrowestOfTheGroupsAbove) {
  FakeRoot fake;
  fake.write("proc/self/cgroup", "0::/a/b\n");
  fake.write("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(fake.quota().cpus, 1.5);
  fake.write("sys/fs/cgroup/a/cpu.max", "3600 5000\n");
  EXPECT_DOUBLE_EQ(fake.quota().cpus, 0.72);
  EXPECT_DOUBLE_EQ(fake.quota().period, 0.1); // the longer one: samples must span both
}

TEST(CpuQuota, InAContainerItsOwnGroupIsMounted) {
  FakeRoot fake;
  fake.write("proc/self/cgroup", "0::/docker/0123\n");
  fake.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(fake.quota().cpus, 0.5);
}

TEST(CpuQuota, VersionOne) {
  FakeRoot fake;
  fake.write("proc/self/cgroup", "4:memory:/x\n2:cpu,cpuacct:/zorse/big\n0::/\n");
  fake.write("sys/fs/cgroup/cpu/zorse/big/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(fake.quota().cpus, 0);
  fake.write("sys/fs/cgroup/cpu,cpuacct/zorse/big/cpu.cfs_quota_us", "1800\n");
  fake.write("sys/fs/cgroup/cpu,cpuacct/zorse/big/cpu.cfs_period_us", "5000\n");
  EXPECT_DOUBLE_EQ(fake.quota().cpus, 0.36);
  EXPECT_DOUBLE_EQ(fake.quota().period, 0.005);
}

TEST(Measure, Median) {
  double spread = -1;
  EXPECT_EQ(median({}, &spread), 0);
  EXPECT_EQ(spread, 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}, &spread), 2.5);
  EXPECT_NEAR(median({100, 101, 102, 103, 900}, &spread), 102,
              1e-12); // one interruption does not matter
  EXPECT_NEAR(spread, 2 / 102.0, 1e-12);
}

TEST(Measure, SamplesLastLongEnough) {
  int calls = 0;
  double each = timedSample(0.03, [&]() -> int64_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++calls;
    return 2;
  });
  EXPECT_GE(calls, 2);
  EXPECT_GE(each * 2 * calls, 0.03);
  EXPECT_GE(each, 0.0025);
}

TEST(Measure, LinkBetweenTwoThreads) {
  auto transports = makeLocalTransports(3);
  LinkTimes times[3];
  std::vector<std::thread> threads;
  for (uint32_t rank : {0u, 2u})
    threads.emplace_back([&, rank] {
      Result<LinkTimes> found = measureLink(*transports[rank], rank, 0, 2, 5, 0.2);
      ASSERT_FALSE(found.failed()) << found.message();
      times[rank] = *found;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_GT(times[0].bandwidth, 1e6);
  EXPECT_GT(times[0].latency, 0);
  EXPECT_LT(times[0].latency, 1);
}

TEST(Measure, AnAbortedTransportIsAnError) {
  auto transports = makeLocalTransports(2);
  transports[0]->abort(userError("gone"));
  EXPECT_TRUE(measureLink(*transports[0], 0, 0, 1, 1, 0.1).failed());
}

/// Ranks as threads.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::map<uint32_t, std::string>> said;
};
struct Here final : ProcessGroup {
  Here(Meeting &meeting, uint32_t me, uint32_t worldSize = 4)
      : meeting(meeting), me(me), worldSize(worldSize) {}
  uint32_t rank() const override { return me; }
  uint32_t size() const override { return worldSize; }
  uint64_t generation() const override { return 1; }
  Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                  const std::string &mine) override {
    std::unique_lock<std::mutex> lock(meeting.mutex);
    meeting.said[name][me] = mine;
    meeting.changed.notify_all();
    meeting.changed.wait(lock, [&] { return meeting.said[name].size() == worldSize; });
    std::vector<std::string> all;
    for (auto &[rank, text] : meeting.said[name])
      all.push_back(text);
    return all;
  }
  Meeting &meeting;
  uint32_t me, worldSize;
};

/// Three and nine ranks: pairs one at a time, and several at the same time. Ranks that are left out
/// have zeros; all ranks receive all results.
TEST(Measure, CostsOfMessages) {
  for (uint32_t worldSize : {3u, 9u}) {
    Meeting meeting;
    auto transports = makeLocalTransports(worldSize);
    std::vector<std::vector<CommunicationWork>> found(worldSize);
    std::vector<int> computing(worldSize, 1);
    computing[1] = 0;
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < worldSize; ++rank)
      threads.emplace_back([&, rank] {
        Here group(meeting, rank, worldSize);
        Result<std::vector<CommunicationWork>> work =
            measureCommunicationCostOfAll(group, *transports[rank], 3, 0.05, computing);
        ASSERT_FALSE(work.failed()) << work.message();
        found[rank] = *work;
      });
    for (std::thread &thread : threads)
      thread.join();
    for (const std::vector<CommunicationWork> &all : found) {
      ASSERT_EQ(all.size(), worldSize);
      EXPECT_EQ(all[1].perByte + all[1].perMessage + all[1].delay, 0);
      for (uint32_t rank = 0; rank < worldSize; ++rank) {
        EXPECT_GT(rank == 1 ? 1 : all[rank].perByte + all[rank].perMessage, 0);
        EXPECT_EQ(all[rank].perMessage, found[0][rank].perMessage);
        EXPECT_EQ(all[rank].delay, found[0][rank].delay);
        EXPECT_LT(all[rank].perByte, 1e-6);
        EXPECT_LT(all[rank].perMessage, 0.1);
      }
    }
  }
}

TEST(Measure, CostsOfMessagesOverAnAbortedTransport) {
  auto transports = makeLocalTransports(2);
  transports[0]->abort(userError("gone"));
  EXPECT_TRUE(measureCommunicationCost(*transports[0], 0, 0, 1, 1, 0.1, 1).failed());
  EXPECT_TRUE(measureCommunicationCost(*transports[0], 0, 1, 0, 1, 0.1, 1).failed());
}

/// Four ranks on two nodes: every rank receives the measurements of all links.
TEST(Measure, LinksOfAJob) {
  Meeting meeting;
  auto transports = makeLocalTransports(4);
  std::vector<RankLink> found[4];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      Here group(meeting, rank);
      Result<std::vector<RankLink>> links =
          measureLinks(group, *transports[rank], {0, 0, 1, 1}, 0.05, nullptr);
      ASSERT_FALSE(links.failed()) << links.message();
      found[rank] = *links;
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::vector<RankLink> &links : found) {
    ASSERT_EQ(links.size(), 3u);
    EXPECT_EQ(std::make_pair(links[0].a, links[0].b), std::make_pair(0u, 1u));
    EXPECT_EQ(std::make_pair(links[1].a, links[1].b), std::make_pair(0u, 2u));
    EXPECT_EQ(std::make_pair(links[2].a, links[2].b), std::make_pair(2u, 3u));
    EXPECT_GT(links[1].together, 0);
    EXPECT_EQ(links[0].together, 0);
  }
}

} // namespace
