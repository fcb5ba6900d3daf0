// Tests ranks as processes that are killed, stopped and continued, and a coordinator that is.
#include "ControlRig.h"

#include "control/Sockets.h"

#include <csignal>
#include <functional>

#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
using zorse::control::monotonicSeconds;

namespace {

void sleepFor(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A child process that receives a port from its parent and writes lines. It exits at the latest
/// when the parent closes its end of the pipe.
class Child {
public:
  /// `function` writes to the file descriptor it receives and returns the child's exit code. Fork
  /// before any thread is started.
  explicit Child(const std::function<int(uint16_t port, int out)> &function) {
    int down[2], up[2];
    if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0)
      std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(unsigned(60 * patience())); // does not outlive a broken test for long
      ::close(down[1]);
      ::close(up[0]);
      uint16_t port = 0;
      if (::read(down[0], &port, sizeof port) != sizeof port)
        ::_exit(99);
      ::_exit(function(port, up[1]));
    }
    ::close(down[0]);
    ::close(up[1]);
    down_ = down[1];
    up_ = up[0];
  }
  Child(Child &&other) noexcept
      : pid_(std::exchange(other.pid_, -1)), down_(std::exchange(other.down_, -1)),
        up_(std::exchange(other.up_, -1)) {}
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(down_);
    ::close(up_);
  }
  void start(uint16_t port) {
    if (::write(down_, &port, sizeof port) != sizeof port)
      ADD_FAILURE() << "the child has exited";
  }
  void signal(int number) { ::kill(pid_, number); }
  /// The next line without its line break; empty on timeout.
  std::string line(double seconds = 10 * patience()) {
    double until = monotonicSeconds() + seconds;
    while (true) {
      if (size_t end = text_.find('\n'); end != std::string::npos) {
        std::string out = text_.substr(0, end);
        text_.erase(0, end + 1);
        return out;
      }
      pollfd wait = {up_, POLLIN, 0};
      double left = until - monotonicSeconds();
      char piece[4096];
      ssize_t n = left <= 0 || ::poll(&wait, 1, int(left * 1000) + 1) <= 0
                      ? 0
                      : ::read(up_, piece, sizeof piece);
      if (n <= 0)
        return "";
      text_.append(piece, size_t(n));
    }
  }
  /// Waits until it exits. Returns the status of waitpid.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

private:
  pid_t pid_ = -1;
  int down_ = -1, up_ = -1;
  std::string text_;
};

void sayLine(int out, const std::string &text) {
  std::string line = text + "\n";
  if (::write(out, line.data(), line.size()) < 0)
    ::_exit(98);
}

/// A rank that joins, writes "joined", then exchanges forever. On a verdict it writes the message
/// and exits with 3.
std::function<int(uint16_t, int)> busyRank(uint32_t rank, uint32_t worldSize, double deadline) {
  return [=](uint16_t port, int out) {
    MemberOptions options = memberOptions(rank, worldSize, port);
    options.times.heartbeatTimeoutSeconds = deadline;
    options.failed = [out](const Failure &failure) {
      sayLine(out, failure.message);
      ::_exit(3);
    };
    Result<std::unique_ptr<Member>> member = Member::join(options);
    if (member.failed()) {
      sayLine(out, member.message());
      return 4;
    }
    (*member)->setProgress([rank] {
      return RankProgress{1, true, "is in instruction " + std::to_string(10 + rank) + " of step 4",
                          4, 10 + rank};
    });
    sayLine(out, "joined");
    for (int round = 0; !(*member)->allGatherBytes(std::to_string(round), "x").failed(); ++round)
      sleepFor(0.01);
    sleepFor(60); // `failed` ends this process
    return 5;
  };
}

std::vector<Child> busyRanks(uint32_t worldSize, double deadline) {
  std::vector<Child> ranks;
  for (uint32_t rank = 0; rank < worldSize; ++rank)
    ranks.emplace_back(busyRank(rank, worldSize, deadline));
  return ranks;
}

CoordinatorOptions withDeadline(uint32_t worldSize, double deadline) {
  CoordinatorOptions options = coordinatorOptions(worldSize);
  options.times.heartbeatTimeoutSeconds = deadline;
  return options;
}

TEST(ControlProcess, AKilledRankIsNamedWithinTwoSeconds) {
  for (int tells = 0; tells < 2; ++tells) { // with and without a launcher that reports the exit
    std::vector<Child> ranks = busyRanks(3, 5);
    auto coordinator = must(Coordinator::start(withDeadline(3, 5)));
    for (Child &rank : ranks)
      rank.start(coordinator->port());
    for (Child &rank : ranks)
      EXPECT_EQ(rank.line(), "joined");
    sleepFor(0.1 * patience());
    double begin = monotonicSeconds();
    ranks[1].signal(SIGKILL);
    ranks[1].wait();
    if (tells)
      coordinator->processEnded(1, true, "was killed by signal 9 (Killed)", 137);
    for (uint32_t rank : {0u, 2u}) {
      std::string message = ranks[rank].line();
      EXPECT_TRUE(contains(message, tells ? "rank 1 (device cpu:1) was killed by signal 9 (Killed)"
                                          : "rank 1 (device cpu:1) is gone"))
          << message;
      EXPECT_EQ(WEXITSTATUS(ranks[rank].wait()), 3);
    }
    EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
    EXPECT_TRUE(coordinator->waitUntilOver(2 * patience()));
  }
}

TEST(ControlProcess, AStoppedRankIsLostAndEndsWhenItGoesOn) {
  std::vector<Child> ranks = busyRanks(3, 1);
  auto coordinator = must(Coordinator::start(withDeadline(3, 1)));
  for (Child &rank : ranks)
    rank.start(coordinator->port());
  for (Child &rank : ranks)
    EXPECT_EQ(rank.line(), "joined");
  sleepFor(0.2 * patience());
  double begin = monotonicSeconds();
  ranks[2].signal(SIGSTOP);
  for (uint32_t rank : {0u, 1u}) {
    std::string message = ranks[rank].line();
    EXPECT_TRUE(
        contains(message, "rank 2 (device cpu:2) is lost: nothing was heard of it for 1.0 s"))
        << message;
    EXPECT_TRUE(contains(message, "last heard of in instruction 12 of step 4")) << message;
    EXPECT_EQ(WEXITSTATUS(ranks[rank].wait()), 3);
  }
  EXPECT_LT(monotonicSeconds() - begin, 2.5 * patience());
  coordinator.reset(); // the launcher has also ended
  sleepFor(0.2);
  ranks[2].signal(SIGCONT);
  std::string message = ranks[2].line();
  EXPECT_TRUE(contains(message, "This is that rank: it was stopped or starved for")) << message;
  EXPECT_EQ(WEXITSTATUS(ranks[2].wait()), 3);
}

TEST(ControlProcess, AShortStopIsForgiven) {
  std::vector<Child> ranks = busyRanks(2, 3);
  auto coordinator = must(Coordinator::start(withDeadline(2, 3)));
  for (Child &rank : ranks)
    rank.start(coordinator->port());
  for (Child &rank : ranks)
    EXPECT_EQ(rank.line(), "joined");
  ranks[1].signal(SIGSTOP);
  sleepFor(1);
  ranks[1].signal(SIGCONT);
  sleepFor(0.5);
  EXPECT_FALSE(coordinator->failure());
}

/// Rank 0 with the coordinator, in a separate process. Writes its port, then verdicts.
std::function<int(uint16_t, int)> hostRank(uint32_t worldSize, double deadline) {
  return [=](uint16_t, int out) {
    CoordinatorOptions options = withDeadline(worldSize, deadline);
    options.rank = 0;
    auto coordinator = must(Coordinator::start(options));
    sayLine(out, std::to_string(coordinator->port()));
    return busyRank(0, worldSize, deadline)(coordinator->port(), out);
  };
}

TEST(ControlProcess, RankZeroWithTheCoordinatorIsKilled) {
  std::vector<Child> ranks = busyRanks(3, 5);
  Child host(hostRank(3, 5));
  host.start(0);
  uint16_t port = uint16_t(std::stoi(host.line()));
  ranks[1].start(port), ranks[2].start(port);
  EXPECT_EQ(ranks[1].line() + ranks[2].line() + host.line(), "joinedjoinedjoined");
  sleepFor(0.1 * patience());
  double begin = monotonicSeconds();
  host.signal(SIGKILL);
  for (uint32_t rank : {1u, 2u}) {
    std::string message = ranks[rank].line();
    EXPECT_TRUE(contains(message, "rank 0") &&
                contains(message, "which holds the coordinator, has died"))
        << message;
    EXPECT_TRUE(contains(message, "noticed in instruction 1" + std::to_string(rank) + " of step 4"))
        << message;
    EXPECT_EQ(WEXITSTATUS(ranks[rank].wait()), 3);
  }
  EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
}

TEST(ControlProcess, RankZeroWithTheCoordinatorIsStopped) {
  std::vector<Child> ranks = busyRanks(3, 1);
  Child host(hostRank(3, 1));
  host.start(0);
  uint16_t port = uint16_t(std::stoi(host.line()));
  ranks[1].start(port), ranks[2].start(port);
  EXPECT_EQ(ranks[1].line() + ranks[2].line() + host.line(), "joinedjoinedjoined");
  sleepFor(0.1 * patience());
  double begin = monotonicSeconds();
  host.signal(SIGSTOP);
  for (uint32_t rank : {1u, 2u}) {
    std::string message = ranks[rank].line();
    EXPECT_TRUE(contains(message, "rank 0") &&
                contains(message,
                         "which holds the coordinator, is lost: nothing was heard of it for 1.0 s"))
        << message;
    EXPECT_EQ(WEXITSTATUS(ranks[rank].wait()), 3);
  }
  EXPECT_LT(monotonicSeconds() - begin, 2.5 * patience());
  host.signal(SIGCONT); // it must not report the others as failed
  std::string message = host.line();
  EXPECT_TRUE(contains(
      message, "rank 0 (device cpu:0), which holds the coordinator, was stopped or starved"))
      << message;
  EXPECT_EQ(WEXITSTATUS(host.wait()), 3);
}

TEST(ControlProcess, AShortlyStoppedCoordinatorBlamesNobody) {
  std::vector<Child> ranks = busyRanks(3, 4);
  Child host(hostRank(3, 4));
  host.start(0);
  uint16_t port = uint16_t(std::stoi(host.line()));
  ranks[1].start(port), ranks[2].start(port);
  EXPECT_EQ(ranks[1].line() + ranks[2].line() + host.line(), "joinedjoinedjoined");
  host.signal(SIGSTOP);
  sleepFor(1.5);
  host.signal(SIGCONT);
  EXPECT_EQ(ranks[1].line(0.5) + ranks[2].line(0.1) + host.line(0.1), "");
}

TEST(ControlProcess, AFrozenMachineBlamesNobody) {
  // All processes are suspended for longer than the deadline and resume one at a time. No process
  // may count the time in which it did not run.
  std::vector<Child> ranks = busyRanks(3, 1);
  Child host(hostRank(3, 1));
  host.start(0);
  uint16_t port = uint16_t(std::stoi(host.line()));
  ranks[1].start(port), ranks[2].start(port);
  EXPECT_EQ(ranks[1].line() + ranks[2].line() + host.line(), "joinedjoinedjoined");
  for (bool hostFirst : {true, false}) {
    for (Child *child : {&host, &ranks[1], &ranks[2]})
      child->signal(SIGSTOP);
    sleepFor(1.8);
    for (Child *child : hostFirst ? std::vector<Child *>{&host, &ranks[1], &ranks[2]}
                                  : std::vector<Child *>{&ranks[2], &ranks[1], &host}) {
      child->signal(SIGCONT);
      sleepFor(0.2);
    }
  }
  EXPECT_EQ(ranks[1].line(0.5) + ranks[2].line(0.1) + host.line(0.1), "");
}

TEST(ControlProcess, ManyRandomKills) {
  for (uint32_t round = 0; round < 12; ++round) {
    const uint32_t worldSize = 3 + round % 3, victim = (round * 7 + 1) % worldSize;
    bool hosted = round % 2;
    std::vector<Child> ranks;
    for (uint32_t rank = 0; rank < worldSize; ++rank)
      ranks.emplace_back(hosted && rank == 0 ? hostRank(worldSize, 5)
                                             : busyRank(rank, worldSize, 5));
    std::unique_ptr<Coordinator> coordinator;
    uint16_t port = 0;
    if (hosted) {
      ranks[0].start(0);
      port = uint16_t(std::stoi(ranks[0].line()));
    } else {
      coordinator = must(Coordinator::start(withDeadline(worldSize, 5)));
      port = coordinator->port();
    }
    for (uint32_t rank = hosted ? 1 : 0; rank < worldSize; ++rank)
      ranks[rank].start(port);
    for (Child &rank : ranks)
      EXPECT_EQ(rank.line(), "joined");
    sleepFor(0.002 * (round * 37 % 50));
    double begin = monotonicSeconds();
    ranks[victim].signal(SIGKILL);
    for (uint32_t rank = 0; rank < worldSize; ++rank) {
      if (rank == victim)
        continue;
      std::string message = ranks[rank].line();
      EXPECT_TRUE(contains(message, "rank " + std::to_string(victim))) << message;
      EXPECT_EQ(WEXITSTATUS(ranks[rank].wait()), 3);
    }
    EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
  }
}

TEST(ControlProcess, InterruptedCallsGoOn) {
  Child child([](uint16_t, int out) {
    struct sigaction action = {};
    action.sa_handler = [](int) {}; // no SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    itimerval often = {{0, 500}, {0, 500}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    for (int round = 0; round < 20; ++round) {
      Result<std::unique_ptr<Coordinator>> one = Coordinator::start(coordinatorOptions(1));
      Result<std::unique_ptr<Member>> member = Member::join(memberOptions(0, 1, (*one)->port()));
      if (member.failed() || (*member)->allGatherBytes("x", std::string(1 << 20, 'x')).failed()) {
        sayLine(out, "failed");
        return 1;
      }
      (*member)->leave();
    }
    sayLine(out, "done");
    return 0;
  });
  child.start(0);
  EXPECT_EQ(child.line(), "done");
}

TEST(ControlProcess, SignalsAreLeftToTheProgram) {
  // The library's threads block all signals, so a signal that the main thread has blocked stays
  // pending for it.
  Child child([](uint16_t, int out) {
    auto coordinator = must(Coordinator::start(coordinatorOptions(1)));
    auto member = must(Member::join(memberOptions(0, 1, coordinator->port())));
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    ::kill(::getpid(), SIGTERM);
    int number = 0;
    timespec wait = {20, 0};
    number = ::sigtimedwait(&set, nullptr, &wait);
    sayLine(out, std::to_string(number));
    return 0;
  });
  child.start(0);
  EXPECT_EQ(child.line(), std::to_string(SIGTERM));
}

} // namespace
