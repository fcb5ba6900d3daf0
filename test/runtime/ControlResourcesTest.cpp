// Tests threads and files of the control plane, over sockets.
#include "ControlFailures.h"

#include "control/Sockets.h"

#include <atomic>
#include <filesystem>

#include <fcntl.h>
#include <sys/resource.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
using zorse::control::monotonicSeconds;

namespace {

size_t countOf(const char *directory) {
  return size_t(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST(ControlResources, NothingIsLeftBehind) {
  size_t threads = countOf("/proc/self/task"), files = countOf("/proc/self/fd");
  for (int round = 0; round < 5; ++round) {
    Rig rig(4);
    EXPECT_GT(countOf("/proc/self/task"), threads);
    // Programs that ranks start inherit no open descriptors.
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code none;
      std::string target = std::filesystem::read_symlink(entry.path(), none).string();
      if (!contains(target, "socket:") && !contains(target, "eventfd") &&
          !contains(target, "eventpoll"))
        continue;
      int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFD);
      EXPECT_TRUE(flags < 0 || (flags & FD_CLOEXEC)) << target;
    }
    if (round % 2)
      rig.members[0]->fail(ownError("x"));
  }
  for (double until = monotonicSeconds() + 5 * patience();
       countOf("/proc/self/task") != threads && monotonicSeconds() < until;)
    sleepFor(0.01); // a joined thread may still be listed
  EXPECT_EQ(countOf("/proc/self/task"), threads);
  EXPECT_EQ(countOf("/proc/self/fd"), files);
}

TEST(ControlResources, ManyRanksWithFewFilesAllowed) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const uint32_t worldSize = 512;
  if (limit.rlim_max < 4 * worldSize)
    GTEST_SKIP() << "only " << limit.rlim_max << " open files are allowed here";
  rlimit few = limit;
  few.rlim_cur = 256;
  ::setrlimit(RLIMIT_NOFILE, &few);
  CoordinatorOptions options = coordinatorOptions(worldSize);
  options.times.heartbeatSeconds = 0.25;
  options.times.heartbeatTimeoutSeconds = 30 * patience();
  auto coordinator = must(Coordinator::start(options));
  rlimit raised = {};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_GT(raised.rlim_cur, worldSize);
  ::setrlimit(RLIMIT_NOFILE, &limit); // for the members' sockets in this process
  zorse::control::allowOpenFiles(4 * worldSize);
  std::atomic<uint32_t> done{0};
  std::vector<std::thread> threads;
  std::vector<Ear> ears(worldSize);
  for (uint32_t rank = 0; rank < worldSize; ++rank)
    threads.emplace_back([&, rank] {
      MemberOptions mine = memberOptions(rank, worldSize, coordinator->port());
      mine.times.joinSeconds = 60 * patience();
      ears[rank].attach(mine);
      Result<std::unique_ptr<Member>> member = Member::join(mine);
      ASSERT_FALSE(member.failed()) << member.message();
      Result<std::vector<std::string>> all =
          (*member)->allGatherBytes("addresses", std::string(200, char('a' + rank % 26)));
      ASSERT_FALSE(all.failed()) << all.message();
      ASSERT_EQ(all->size(), worldSize);
      EXPECT_EQ((*all)[worldSize - 1][0], char('a' + (worldSize - 1) % 26));
      if (rank == 77)
        (*member)->fail(ownError("one of many"));
      EXPECT_TRUE(contains(ears[rank].verdict(20 * patience()).message,
                           "rank 77 (device cpu:77): one of many"));
      ++done;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(done, worldSize);
  EXPECT_TRUE(coordinator->waitUntilOver(5 * patience()));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

} // namespace
