// Tests the launcher with shell scripts and small programs as ranks: its output, its exit, and that
// no process outlives it.
#include "Patience.h"
#include "ReservedPort.h"

#include "zorse/runtime/Launch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using zorse::test::patience;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// A running launch-probe. Its processes have a mark in their environment by which they are found.
class Probe {
public:
  Probe(std::vector<std::string> words, const std::map<std::string, std::string> &more = {}) {
    static int count = 0;
    mark_ = "ZORSE_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(count++);
    words.insert(words.begin(), ZORSE_LAUNCH_PROBE);
    std::vector<std::string> environment = {mark_};
    for (const auto &[name, value] : zorse::runtime::currentEnvironment())
      if (name.rfind("ZORSE_", 0) != 0 && more.count(name) == 0)
        environment.push_back(name + "=" + value);
    for (const auto &[name, value] : more)
      environment.push_back(name + "=" + value);
    std::vector<char *> arguments, entries;
    for (std::string &word : words)
      arguments.push_back(word.data());
    for (std::string &entry : environment)
      entries.push_back(entry.data());
    arguments.push_back(nullptr);
    entries.push_back(nullptr);
    int out[2], err[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC) + ::pipe2(err, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      ::execve(ZORSE_LAUNCH_PROBE, arguments.data(), entries.data());
      ::_exit(126);
    }
    ::close(out[1]);
    ::close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
    started_ = now();
  }
  ~Probe() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (int fd : fds_)
      if (fd >= 0)
        ::close(fd);
  }

  void signal(int number) { ::kill(pid_, number); }

  /// The launcher's guard; 0: none. Its name is set once it runs, possibly after the ranks start.
  pid_t guard() const {
    std::string base = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children",
                name;
    for (double end = now() + 5 * patience(); now() < end; ::usleep(1000)) {
      std::ifstream children(base);
      for (pid_t child; children >> child;)
        if (std::ifstream comm("/proc/" + std::to_string(child) + "/comm");
            comm >> name && name == "zorse-guard")
          return child;
    }
    return 0;
  }

  /// Reads until `text` has been printed, or until a timeout.
  bool waitFor(const std::string &text) {
    double end = now() + 10 * patience();
    while (now() < end) {
      if (out.find(text) != std::string::npos || err.find(text) != std::string::npos)
        return true;
      if (!read(0.1) && fds_[0] < 0 && fds_[1] < 0)
        return false;
    }
    return false;
  }

  /// Reads until all processes have closed its output. Returns the exit code, or -signal if a
  /// signal ended it. Gives up after `limit` seconds.
  int wait(double limit = 15 * patience()) {
    double end = now() + limit;
    while ((fds_[0] >= 0 || fds_[1] >= 0) && now() < end)
      read(0.1);
    return waitProcess(end - now() + 1);
  }
  int waitProcess(double limit) {
    int status = 0;
    for (double end = now() + limit; now() < end; pause(0.01))
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        seconds = now() - started_;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
    ADD_FAILURE() << "the launcher did not end\n" << out << err;
    return -1000;
  }

  /// Processes with the mark, except zombies.
  std::vector<std::string> left() const {
    std::vector<std::string> found;
    DIR *processes = ::opendir("/proc");
    while (dirent *entry = ::readdir(processes)) {
      std::string name = entry->d_name;
      if (name.find_first_not_of("0123456789") != std::string::npos)
        continue;
      std::string environment = content("/proc/" + name + "/environ");
      if (environment.find(mark_ + '\0') != std::string::npos)
        found.push_back(name + ": " + content("/proc/" + name + "/cmdline"));
    }
    ::closedir(processes);
    return found;
  }
  /// Waits up to `seconds` until no process with the mark is left.
  ::testing::AssertionResult nobodyLeft(double seconds = 1 * patience()) const {
    for (double end = now() + seconds; now() < end; pause(0.02))
      if (left().empty())
        return ::testing::AssertionSuccess();
    ::testing::AssertionResult result = ::testing::AssertionFailure();
    for (const std::string &process : left())
      result << process << "\n";
    return result;
  }

  std::string out, err;
  double seconds = 0;

private:
  /// "" if the process has ended.
  static std::string content(const std::string &path) {
    std::string text;
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char bytes[4096];
    for (ssize_t got; fd >= 0 && (got = ::read(fd, bytes, sizeof bytes)) > 0;)
      text.append(bytes, size_t(got));
    if (fd >= 0)
      ::close(fd);
    return text;
  }

  bool read(double wait) {
    pollfd fds[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};
    ::poll(fds, 2, int(wait * 1000));
    bool some = false;
    for (int i : {0, 1})
      if (fds[i].revents != 0) {
        char bytes[65536];
        ssize_t got = ::read(fds_[i], bytes, sizeof bytes);
        if (got > 0) {
          (i == 0 ? out : err).append(bytes, size_t(got));
          some = true;
        } else {
          ::close(fds_[i]);
          fds_[i] = -1;
        }
      }
    return some;
  }

  std::string mark_;
  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};
  double started_ = 0;
};

std::vector<std::string> script(std::vector<std::string> options, const std::string &text) {
  options.insert(options.end(), {"--", "/bin/sh", "-c", text});
  return options;
}

std::vector<std::string> ranks(std::vector<std::string> options, const std::string &steps) {
  options.insert(options.end(), {"--", ZORSE_LAUNCH_PROBE, "rank", steps});
  return options;
}

size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

} // namespace

TEST(Launch, LinesGetPrefixes) {
  Probe probe(script({"--world", "3", "--names", "a100:0,t4:0,t4:1"},
                     "echo out $ZORSE_RANK; echo err $ZORSE_RANK >&2; printf 'no end'"));
  EXPECT_EQ(probe.wait(), 0);
  EXPECT_HAS("\n" + probe.out, "\nout 0\n"); // the job's progress has no prefix
  EXPECT_HAS("\n" + probe.out, "\n[t4:0]   out 1\n");
  EXPECT_HAS("\n" + probe.out, "\n[t4:1]   out 2\n");
  EXPECT_HAS("\n" + probe.out, "\n[t4:1]   no end\n");
  EXPECT_HAS("\n" + probe.err, "\n[a100:0] err 0\n");
  EXPECT_HAS("\n" + probe.err, "\n[t4:0]   err 1\n");
  Probe unnamed(script({"--world", "2"}, "echo out $ZORSE_RANK"));
  EXPECT_EQ(unnamed.wait(), 0);
  EXPECT_HAS(unnamed.out, "[rank 1] out 1\n");
}

TEST(Launch, LinesStayWhole) {
  Probe probe(script({"--world", "4", "--names", "a,b,c,d"},
                     "for i in 1 2 3 4 5; do printf 'begin-'; sleep 0.02; printf 'mid-'; sleep "
                     "0.02; echo end; done"));
  EXPECT_EQ(probe.wait(), 0);
  EXPECT_EQ(count(probe.out, "begin-mid-end\n"), 20u);
  // A line of 1 MB is split into lines and loses nothing.
  Probe large(script({"--world", "2", "--names", "a,b"},
                     "[ $ZORSE_RANK = 0 ] || head -c 1000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(large.wait(), 0);
  EXPECT_EQ(count(large.out, "x"), 1000000u);
  EXPECT_EQ(count(large.out, "[b] "), (1000000u + 16383) / 16384);
}

TEST(Launch, RanksGetTheirPlace) {
  Probe probe(script({"--world", "2"},
                     "env | grep -E '^(ZORSE|OMP)_' | grep -v MARK | sort; tr '\\0' ' ' "
                     "</proc/$$/cmdline | grep -c \"$ZORSE_SECRET\"; cat; echo done"),
              {{"OMP_NUM_THREADS", "3"}, {"ZORSE_LAUNCHER", "none"}});
  EXPECT_EQ(probe.wait(), 0);
  for (const char *line :
       {"OMP_NUM_THREADS=3\n", "ZORSE_COORDINATOR=launcher\n", "ZORSE_GENERATION=1\n",
        "ZORSE_JOB=local/", "ZORSE_LOCAL_RANK=0\n", "ZORSE_LOCAL_WORLD_SIZE=2\n", "ZORSE_RANK=0\n",
        "ZORSE_RESTARTS=0\n", "ZORSE_STORE=127.0.0.1:", "ZORSE_WORLD_SIZE=2\n"})
    EXPECT_HAS(probe.out, line);
  EXPECT_EQ(count(probe.out, "ZORSE_LAUNCHER"), 0u);
  size_t secret = probe.out.find("ZORSE_SECRET=");
  ASSERT_NE(secret, std::string::npos);
  EXPECT_GE(probe.out.find('\n', secret) - secret, sizeof "ZORSE_SECRET=" + 40);
  EXPECT_HAS("\n" + probe.out, "\n0\n");    // the secret is on no command line
  EXPECT_HAS("\n" + probe.out, "\ndone\n"); // standard input is empty
}

TEST(Launch, FirstFailureDecides) {
  // Rank 1 fails first and causes the other failures.
  Probe probe(script({"--world", "4", "--names", "a,b,c,d"},
                     "trap 'sleep 0.1; exit 9' TERM; [ $ZORSE_RANK = 1 ] && { sleep 0.2; exit 3; "
                     "}; while :; do sleep 0.05; done"));
  EXPECT_EQ(probe.wait(), 3);
  EXPECT_HAS(probe.err, "error: rank 1 (device b) ended with exit code 3");
  EXPECT_LT(probe.seconds, 2 * patience());
  EXPECT_TRUE(probe.nobodyLeft());
  Probe killed(script({"--world", "3"}, "[ $ZORSE_RANK = 2 ] && kill -9 $$; sleep 100"));
  EXPECT_EQ(killed.wait(), 128 + 9);
  EXPECT_HAS(killed.err, "error: rank 2 was killed by signal 9 (Killed)");
  EXPECT_TRUE(killed.nobodyLeft());
}

TEST(Launch, StubbornRanksAreKilled) {
  Probe probe(script({"--world", "3"},
                     "trap '' TERM INT HUP; [ $ZORSE_RANK = 0 ] && exit 4; (while :; do "
                     "sleep 0.1; done) & while :; do sleep 0.1; done"));
  EXPECT_EQ(probe.wait(), 4);
  EXPECT_GT(probe.seconds, 1.5);
  EXPECT_LT(probe.seconds, 3 * patience());
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, StoppedRanksAreKilled) {
  Probe probe(script({"--world", "2"}, "[ $ZORSE_RANK = 1 ] && kill -STOP $$; sleep 0.2; exit 5"));
  EXPECT_EQ(probe.wait(), 5);
  EXPECT_LT(probe.seconds, 3.5 * patience());
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, WhatRanksStartedEndsToo) {
  Probe fails(
      script({"--world", "2"}, "sleep 1000 & sleep 1000 & [ $ZORSE_RANK = 0 ] && exit 6; wait"));
  EXPECT_EQ(fails.wait(), 6);
  EXPECT_TRUE(fails.nobodyLeft());
  Probe succeeds(script({"--world", "2"}, "sleep 1000 & echo done"));
  EXPECT_EQ(succeeds.wait(), 0);
  EXPECT_TRUE(succeeds.nobodyLeft());
  EXPECT_LT(succeeds.seconds, 1 * patience());
  // A daemon that left the process group and keeps the output open does not delay the launcher.
  Probe daemon(script({"--world", "1"},
                      "setsid sleep " + std::to_string(int(2 * patience())) + " & echo done"));
  EXPECT_EQ(daemon.waitProcess(1.5 * patience()), 0);
}

TEST(Launch, NobodyOutlivesAKilledLauncher) {
  Probe probe(script({"--world", "3"}, "trap '' TERM INT HUP; (trap '' TERM HUP; while :; do sleep "
                                       "0.1; done) & echo running; while :; do sleep 0.1; done"));
  for (const char *line : {"[rank 1] running", "[rank 2] running"})
    ASSERT_TRUE(probe.waitFor(line));
  ASSERT_TRUE(probe.waitFor("running\n"));
  EXPECT_GE(probe.left().size(), 6u);
  probe.signal(SIGKILL);
  EXPECT_EQ(probe.wait(), -SIGKILL);
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, SecondInterruptEndsAtOnce) {
  Probe probe(
      script({"--world", "2"}, "trap '' TERM INT; echo running; while :; do sleep 0.1; done"));
  ASSERT_TRUE(probe.waitFor("[rank 1] running"));
  probe.signal(SIGINT);
  ASSERT_TRUE(probe.waitFor("repeat to end the run immediately"));
  std::this_thread::sleep_for(
      std::chrono::duration<double>(zorse::runtime::kOneRequestSeconds + 0.1));
  double sent = now();
  probe.signal(SIGINT);
  EXPECT_EQ(probe.wait(), 130);
  EXPECT_LT(now() - sent, 0.5 * patience());
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, TwoSignalsAtOnceAreOneRequest) {
  // As `timeout` and terminals send signals: to the process and to its group.
  Probe probe(script({"--world", "2"}, "trap '' TERM INT; echo running; sleep 1; echo finished"));
  ASSERT_TRUE(probe.waitFor("[rank 1] running"));
  probe.signal(SIGTERM);
  probe.signal(SIGTERM);
  EXPECT_EQ(probe.wait(), 0);
  EXPECT_HAS(probe.err + probe.out, "[rank 1] finished");
}

TEST(Launch, AStoppedGuardHoldsNobodyUp) {
  Probe probe(script({"--world", "2"}, "echo running; sleep 2"));
  ASSERT_TRUE(probe.waitFor("[rank 1] running"));
  pid_t guard = probe.guard();
  ASSERT_GT(guard, 0);
  ::kill(guard, SIGSTOP);
  double begin = now();
  EXPECT_EQ(probe.wait(), 0);
  EXPECT_LT(now() - begin, 5 * patience());
}

TEST(Launch, CannotStart) {
  Probe missing({"--world", "2", "--", "no-such-program"});
  EXPECT_EQ(missing.wait(), 1);
  EXPECT_HAS(missing.err, "no-such-program: not found in PATH");
  Probe folder({"--world", "2", "--restarts", "3", "--", "/tmp"});
  EXPECT_EQ(folder.wait(), 1);
  EXPECT_HAS(folder.err, "cannot start rank 0: /tmp: Permission denied");
  EXPECT_EQ(count(folder.err, "restart 1"), 0u);
}

TEST(Launch, RestartsAreCounted) {
  Probe probe(script(
      {"--world", "2", "--names", "a,b", "--restarts", "3", "--from", "checkpoint step-00000120"},
      "echo generation $ZORSE_GENERATION restarts $ZORSE_RESTARTS; [ $ZORSE_RANK$ZORSE_RESTARTS "
      "-lt 12 ] && [ $ZORSE_RANK = 1 ] && kill -9 $$; "
      "[ $ZORSE_RESTARTS = 2 ] || sleep 100"));
  EXPECT_EQ(probe.wait(), 0);
  EXPECT_HAS(probe.err, "restart 1 of 3 from checkpoint step-00000120: rank 1 (device b) was "
                        "killed by signal 9 (Killed)");
  EXPECT_HAS(probe.err, "restart 2 of 3 from");
  EXPECT_EQ(count(probe.err, "restart 3"), 0u);
  EXPECT_HAS(probe.out, "generation 3 restarts 2\n");
  EXPECT_TRUE(probe.nobodyLeft());

  Probe never(
      script({"--world", "2", "--restarts", "1"}, "[ $ZORSE_RANK = 1 ] && exit 7; sleep 100"));
  EXPECT_EQ(never.wait(), 7);
  EXPECT_HAS(never.err, "restart 1 of 1: rank 1 ended with exit code 7");
  EXPECT_HAS(never.err, "error: rank 1 ended with exit code 7");
  EXPECT_HAS(never.err, "; no restarts left of 1\n");
  Probe mistake(
      script({"--world", "2", "--restarts", "3"}, "[ $ZORSE_RANK = 1 ] && exit 1; sleep 100"));
  EXPECT_EQ(mistake.wait(), 1);
  EXPECT_EQ(count(mistake.err, "restart 1"), 0u);
  EXPECT_HAS(mistake.err, "a restart would not help");
}

TEST(Launch, ReadersMayBeSlowOrGone) {
  // Without a reader of the output the ranks block, but a failure still ends them.
  Probe slow(script({"--world", "2"}, "[ $ZORSE_RANK = 1 ] && { sleep 0.5; exit 8; }; yes"));
  pause(0.5);
  for (double end = now() + 4 * patience(); now() < end && slow.left().size() > 2;)
    pause(0.1);
  EXPECT_LE(slow.left().size(), 2u); // the launcher, which waits for its reader, and its guard
  EXPECT_EQ(slow.wait(), 8);
  EXPECT_GT(slow.out.size(), size_t(1) << 20);
  // If the reader closes the output, the ranks still finish.
  Probe gone({"--world", "2", "--", "/bin/sh", "-c",
              "for i in 1 2 3 4 5; do echo line; sleep 0.05; done; exec >&-; [ $ZORSE_RANK = 1 ] "
              "&& exit 0; exit 0"});
  EXPECT_EQ(gone.wait(), 0);
}

TEST(Launch, RanksWithAControlPlane) {
  Probe probe(ranks({"--world", "3"}, "5"));
  EXPECT_EQ(probe.wait(), 0) << probe.err;
  EXPECT_HAS(probe.out, "step 5 of generation 1\n");
}

TEST(Launch, InterruptIsOrderly) {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Probe probe(ranks({"--world", "3"}, "100000"));
    ASSERT_TRUE(probe.waitFor("step 3 "));
    probe.signal(number);
    EXPECT_EQ(probe.wait(), 130) << probe.err;
    EXPECT_EQ(count(probe.out, "stopped before step"), 3u);
    EXPECT_TRUE(probe.nobodyLeft());
  }
}

TEST(Launch, OthersHearOfADeath) {
  Probe probe(ranks({"--world", "3"}, "100000"), {{"PROBE_DIES", "1"}});
  EXPECT_EQ(probe.wait(), 137) << probe.err;
  EXPECT_HAS(probe.err, "error: rank 1 (device d1) was killed by signal 9 (Killed)");
  EXPECT_GE(count(probe.err, "verdict: "), 2u);
  EXPECT_EQ(count(probe.err, "killed by signal 9"), 3u);
}

TEST(Launch, RestartOfRanks) {
  Probe probe(ranks({"--world", "3", "--restarts", "2"}, "6"), {{"PROBE_DIES", "2"}});
  EXPECT_EQ(probe.wait(), 0) << probe.err;
  EXPECT_HAS(probe.out, "step 6 of generation 3\n");
  EXPECT_EQ(count(probe.out, "step 6 "), 1u);
}

TEST(Launch, LostRankIsEnded) {
  Probe probe(ranks({"--world", "3", "--deadline", "1", "--restarts", "1"}, "6"),
              {{"PROBE_STOPS", "1"}});
  EXPECT_EQ(probe.wait(), 0) << probe.err;
  EXPECT_HAS(probe.err, "restart 1 of 1: ");
  EXPECT_HAS(probe.out, "step 6 of generation 2\n");
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, ARankThatIsStoppedAfterItHasLeftIsEnded) {
  Probe probe(ranks({"--world", "3", "--deadline", "1", "--restarts", "1"}, "3"),
              {{"PROBE_STOPS_AT_THE_END", "1"}});
  EXPECT_EQ(probe.wait(), 0) << probe.err;
  EXPECT_HAS(probe.err, "warning: rank 1 has finished and left the job, but its process has not "
                        "ended 1.0 s after that");
  EXPECT_EQ(probe.err.find("restart"), std::string::npos) << probe.err;
  EXPECT_TRUE(probe.nobodyLeft());
}

TEST(Launch, TwoNodes) {
  std::map<std::string, std::string> secret = {
      {"ZORSE_SECRET", "0123456789abcdef0123456789abcdef"}};
  zorse::runtime::test::ReservedPort port;
  std::string store = "127.0.0.1:" + std::to_string(port.number());
  Probe first(ranks({"--world", "3", "--first", "0", "--local", "2", "--store", store}, "6"),
              secret);
  Probe second(ranks({"--world", "3", "--first", "2", "--local", "1", "--store", store}, "6"),
               secret);
  EXPECT_EQ(second.wait(), 0) << second.err;
  EXPECT_EQ(first.wait(), 0) << first.err;
  EXPECT_HAS(first.out, "step 6 ");
}

TEST(Launch, TwoNodesStartAgain) {
  std::map<std::string, std::string> secret = {{"ZORSE_SECRET", "0123456789abcdef0123456789abcdef"},
                                               {"PROBE_DIES", "1"}};
  zorse::runtime::test::ReservedPort port;
  std::string store = "127.0.0.1:" + std::to_string(port.number());
  // A failure on one node ends the other node's ranks, and both nodes restart.
  Probe third(
      ranks({"--world", "3", "--first", "0", "--local", "1", "--store", store, "--restarts", "1"},
            "6"),
      secret);
  Probe fourth(
      ranks({"--world", "3", "--first", "1", "--local", "2", "--store", store, "--restarts", "1"},
            "6"),
      secret);
  EXPECT_EQ(fourth.wait(), 0) << fourth.err;
  EXPECT_EQ(third.wait(), 0) << third.err;
  EXPECT_HAS(third.err, "restart 1 of 1: rank 1 ");
  EXPECT_HAS(third.out, "step 6 of generation 2\n");

  // A stopped rank delays its node, which hosts the coordinator, by two seconds. The other node
  // must not start too early.
  secret.erase("PROBE_DIES");
  secret["PROBE_STOPS"] = "1";
  Probe fifth(ranks({"--world", "3", "--first", "0", "--local", "2", "--store", store, "--restarts",
                     "1", "--deadline", "1"},
                    "6"),
              secret);
  Probe sixth(
      ranks({"--world", "3", "--first", "2", "--local", "1", "--store", store, "--restarts", "1"},
            "6"),
      secret);
  EXPECT_EQ(sixth.wait(), 0) << sixth.err;
  EXPECT_EQ(fifth.wait(), 0) << fifth.err;
  EXPECT_HAS(fifth.out, "step 6 of generation 2\n");
}
