// Tests ranks as processes that are killed, suspended, or leave.
#include "GlooTransports.h"
#include "Patience.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Results of the processes, in shared memory.
struct Shown {
  std::atomic<uint32_t> connected{0};
  struct {
    std::atomic<double> failedAt{0}, doneAt{0};
    char message[300];
  } ranks[8];
};

class Processes {
public:
  Processes() {
    shown_ = new (mmap(nullptr, sizeof(Shown), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) Shown;
  }
  ~Processes() {
    for (pid_t pid : pids_)
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    munmap(shown_, sizeof(Shown));
  }

  /// Starts one process per rank that runs `function` and records how it ended. Returns when all
  /// are connected.
  void start(uint32_t ranks, const std::function<Status(uint32_t, Transport &)> &function) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      pid_t pid = fork();
      if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(unsigned(60 * zorse::test::patience()));
        zorse::test::FileGroup group(directory_.path("."), rank, ranks);
        auto made = makeGlooTransport(group, glooOptions(rank, ranks));
        ++shown_->connected;
        Status status = made.failed() ? Status(made.error()) : function(rank, **made);
        auto &mine = shown_->ranks[rank];
        if (status.failed()) {
          std::strncpy(mine.message, status.message().c_str(), sizeof mine.message - 1);
          mine.failedAt = now();
        }
        if (!made.failed())
          made->reset();
        mine.doneAt = now();
        _exit(0);
      }
      pids_.push_back(pid);
    }
    while (shown_->connected < ranks)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void signal_(uint32_t rank, int number) { kill(pids_[rank], number); }
  void awaitEnd(uint32_t rank) {
    waitpid(pids_[rank], nullptr, 0);
    pids_[rank] = 0;
  }
  Shown &shown() { return *shown_; }

private:
  TemporaryDirectory directory_;
  Shown *shown_;
  std::vector<pid_t> pids_;
};

/// Kills rank 2 of 4 while all work, and measures how long the others take to report it.
void killOne(const char *what, const std::function<Status(uint32_t, Transport &)> &function,
             std::chrono::milliseconds after) {
  SCOPED_TRACE(what);
  Processes processes;
  processes.start(4, function);
  std::this_thread::sleep_for(after);
  double killed = now();
  processes.signal_(2, SIGKILL);
  for (uint32_t rank : {0u, 1u, 3u}) {
    processes.awaitEnd(rank);
    auto &shown = processes.shown().ranks[rank];
    ASSERT_GT(shown.failedAt, 0) << "rank " << rank;
    EXPECT_NE(std::string(shown.message).find("rank 2 (cpu:2) is gone"), std::string::npos)
        << "rank " << rank << ": " << shown.message;
    EXPECT_LT(shown.failedAt - killed, 2.0 * zorse::test::patience())
        << "rank " << rank; // milliseconds, except on a busy machine or under a sanitizer
    EXPECT_LT(shown.doneAt - killed, 2.5 * zorse::test::patience()) << "rank " << rank;
    if (rank == 0)
      ::testing::Test::RecordProperty(what,
                                      std::to_string((shown.failedAt - killed) * 1e3) + " ms");
  }
}

TEST(GlooFailure, DeathIsNamedByEverySurvivorWhateverItDoes) {
  using namespace std::chrono_literals;
  killOne(
      "waiting for the dead or for survivors",
      [](uint32_t rank, Transport &transport) {
        int value = 0;
        return transport.receive({1, 0}, (rank + 1) % 4, &value, sizeof value);
      },
      30ms);
  killOne(
      "offering to one that never receives",
      [](uint32_t rank, Transport &transport) {
        std::vector<std::byte> data(3 << 20);
        return transport.send({1 + rank, 0}, (rank + 1) % 4, data.data(), data.size());
      },
      30ms);
  killOne(
      "sums without end",
      [](uint32_t, Transport &transport) {
        for (uint64_t step = 0;; ++step) {
          double value = 1;
          AllReduceArguments a;
          a.members = {0, 1, 2, 3};
          a.data = &value;
          a.count = 1;
          if (Status status = transport.allReduce({1, step}, a); status.failed())
            return status;
        }
      },
      50ms);
  killOne(
      "large all-gathers without end",
      [](uint32_t rank, Transport &transport) {
        std::vector<float> full(4 << 20);
        for (uint64_t step = 0;; ++step) {
          AllGatherArguments a;
          for (uint32_t d = 0; d < 4; ++d) {
            a.shards.push_back({d, d << 20, (d + 1) << 20});
            a.reads.push_back({d, 0, 4 << 20});
          }
          a.full = full.data();
          a.shard = full.data() + (rank << 20);
          if (Status status = transport.allGather({1, step}, a); status.failed())
            return status;
        }
      },
      70ms);
  killOne(
      "large reduce-scatters without end",
      [](uint32_t rank, Transport &transport) {
        std::vector<float> full(4 << 20);
        for (uint64_t step = 0;; ++step) {
          ReduceScatterArguments a;
          for (uint32_t d = 0; d < 4; ++d) {
            a.shards.push_back({d, d << 20, (d + 1) << 20});
            a.terms.push_back({d, 0, 4 << 20});
          }
          a.full = full.data();
          a.shard = full.data() + (rank << 20);
          if (Status status = transport.reduceScatter({1, step}, a); status.failed())
            return status;
        }
      },
      70ms);
}

TEST(GlooFailure, DeathOfAPeerFailsLaterCallsOfABusyRank) {
  Processes processes;
  processes.start(2, [](uint32_t rank, Transport &transport) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300)); // computes
    int value = 0;
    return transport.receive({1, 0}, 1 - rank, &value, sizeof value);
  });
  processes.signal_(1, SIGKILL);
  processes.awaitEnd(0);
  EXPECT_NE(std::string(processes.shown().ranks[0].message).find("rank 1 (cpu:1) is gone"),
            std::string::npos);
}

TEST(GlooFailure, AStoppedPeerIsWaitedFor) {
  Processes processes;
  processes.start(2, [](uint32_t rank, Transport &transport) -> Status {
    std::vector<std::byte> data(1 << 20);
    for (uint64_t step = 0; step < 200; ++step) {
      Status status = rank == 0 ? transport.send({1, step}, 1, data.data(), data.size())
                                : transport.receive({1, step}, 0, data.data(), data.size());
      if (status.failed())
        return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status::success();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  processes.signal_(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(processes.shown().ranks[0].failedAt, 0.0);
  EXPECT_EQ(processes.shown().ranks[0].doneAt, 0.0);
  processes.signal_(1, SIGCONT);
  for (uint32_t rank : {0u, 1u}) {
    processes.awaitEnd(rank);
    EXPECT_EQ(processes.shown().ranks[rank].failedAt, 0.0) << processes.shown().ranks[rank].message;
  }
}

TEST(GlooFailure, LeavingDeliversAndEndsOnlyWhatWaitsForTheOneThatLeft) {
  // Rank 0 sends a large message and leaves immediately. Ranks 1 and 2 continue without it; then a
  // receive of rank 1 from rank 0 fails.
  auto transports = makeGlooTransports(3);
  ASSERT_EQ(transports.size(), 3u);
  std::vector<std::byte> from(20 << 20, std::byte(7)), to(20 << 20);
  std::thread leaver([&] {
    EXPECT_FALSE(transports[0]->send({1, 0}, 1, from.data(), from.size()).failed());
    transports[0].reset();
  });
  EXPECT_FALSE(transports[1]->receive({1, 0}, 0, to.data(), to.size()).failed());
  EXPECT_EQ(from, to);
  leaver.join();
  std::thread other([&] {
    for (uint64_t step = 0; step < 20; ++step)
      EXPECT_FALSE(transports[2]->send({2, step}, 1, from.data(), 1000).failed());
  });
  for (uint64_t step = 0; step < 20; ++step)
    EXPECT_FALSE(transports[1]->receive({2, step}, 2, to.data(), 1000).failed());
  other.join();
  Status status = transports[1]->receive({3, 0}, 0, to.data(), 1000);
  ASSERT_TRUE(status.failed());
  EXPECT_EQ(status.message(), "rank 0 (cpu:0) has left the job");
}

TEST(GlooFailure, LeavingAfterAnOperationFailsNobody) {
  for (int repeat = 0; repeat < 12; ++repeat) {
    auto transports = makeGlooTransports(3);
    ASSERT_EQ(transports.size(), 3u);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        for (uint64_t step = 0; step < 3; ++step) {
          double value = rank;
          AllReduceArguments a;
          a.members = {2, 0, 1};
          a.data = &value;
          a.count = 1;
          Status status = transports[rank]->allReduce({1, step}, a);
          EXPECT_FALSE(status.failed()) << status.message();
          EXPECT_EQ(value, 3);
        }
        transports[rank].reset();
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

} // namespace
