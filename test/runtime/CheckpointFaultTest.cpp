// Tests snapshots on failing disks and in dying jobs: a fault at every file operation, on every
// rank.
#include "StateOnly.h"
#include "ThreadGroup.h"

#include "checkpoint/Storage.h"
#include "zorse/runtime/CheckpointFiles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

/// A fault at the `at`-th change: one failure, failures from then on, death, or a pause. The pause
/// lies between the check that the directory still belongs to this run and the change.
struct Fault {
  enum Kind { None, Once, Forever, Death, Pause } kind = None;
  int at = 0, error = EIO;
  bool halfWritten = false;             ///< the write at `at` writes half of its bytes
  std::function<void()> meanwhile = {}; ///< runs during the pause, after the other ranks have given
                                        ///< up
};

/// File storage with one fault. Does not sync.
class FaultyStorage : public CheckpointStorage {
public:
  /// Counts operations from now on.
  void arm(const Fault &fault, std::function<void()> died = {}) {
    fault_ = fault;
    died_ = std::move(died);
    count_ = 0;
    triggered_ = false;
  }
  /// Keeps `triggered`.
  void disarm() { fault_ = {}; }
  bool triggered() const { return triggered_; }
  int count() const { return count_; }

  int makeDirectory(const std::string &path) override {
    return fails() ? fault_.error : CheckpointStorage::makeDirectory(path);
  }
  int create(const std::string &path, int &handle, bool direct) override {
    return fails() ? fault_.error : CheckpointStorage::create(path, handle, direct);
  }
  int createExclusive(const std::string &path, int &handle) override {
    return fails() ? fault_.error : CheckpointStorage::createExclusive(path, handle);
  }
  int reserve(int handle, uint64_t bytes) override {
    return fails() ? fault_.error : CheckpointStorage::reserve(handle, bytes);
  }
  int write(int handle, const std::byte *data, size_t bytes) override {
    if (!fails())
      return CheckpointStorage::write(handle, data, bytes);
    if (fault_.halfWritten)
      (void)CheckpointStorage::write(handle, data, bytes / 2);
    return fault_.error;
  }
  int sync(int) override { return fails() ? fault_.error : 0; }
  int close(int handle) override {
    CheckpointStorage::close(handle);
    return 0;
  }
  int rename(const std::string &from, const std::string &to) override {
    return fails() ? fault_.error : CheckpointStorage::rename(from, to);
  }
  int syncDirectory(const std::string &) override { return fails() ? fault_.error : 0; }
  int remove(const std::string &path) override {
    return fails() ? fault_.error : CheckpointStorage::remove(path);
  }
  int removeDirectory(const std::string &path) override {
    return fails() ? fault_.error : CheckpointStorage::removeDirectory(path);
  }

private:
  bool fails() {
    int now = count_++;
    if (fault_.kind == Fault::None || now < fault_.at ||
        (fault_.kind == Fault::Once && now > fault_.at))
      return false;
    if (triggered_ && fault_.kind == Fault::Pause)
      return false;
    triggered_ = true;
    if ((fault_.kind == Fault::Death || fault_.kind == Fault::Pause) && died_)
      died_();
    return fault_.kind != Fault::Pause;
  }

  Fault fault_;
  std::function<void()> died_;
  std::atomic<int> count_{0};
  std::atomic<bool> triggered_{false};
};

RunConfig runConfigOf(const Bundle &bundle) {
  RunConfig runConfig;
  runConfig.model = bundle.summary.content_hash();
  runConfig.batch = bundle.batch;
  runConfig.training = bundle.summary.training();
  return runConfig;
}

class CheckpointFaultTest : public ::testing::Test {
protected:
  static constexpr uint32_t kRanks = 3;

  CheckpointFaultTest() {
    StateOnlyOptions options;
    options.devices = kRanks;
    bundle = stateOnly(folder, options);
    options.devices = 2;
    options.seed = 77;
    other = stateOnly(folder, options);
  }

  struct Outcome {
    bool triggered = false;
    std::vector<CheckpointManager::Counts> counts = std::vector<CheckpointManager::Counts>(kRanks);
    std::vector<std::string> finishes = std::vector<std::string>(kRanks),
                             warnings = std::vector<std::string>(kRanks);
  };

  /// Three ranks take snapshots of the given steps. The victim has the fault from the second step
  /// on.
  Outcome run(uint64_t generation, uint32_t victim, const Fault &fault,
              const std::vector<uint64_t> &steps) {
    Outcome out;
    ThreadJob job(kRanks, generation);
    std::vector<std::thread> ranks;
    std::atomic<int> arrived{0};
    for (uint32_t r = 0; r < kRanks; ++r)
      ranks.emplace_back([&, r] {
        auto executor = stateExecutor(bundle, {r});
        auto group = job.group(r);
        auto storage = std::make_shared<FaultyStorage>();
        CheckpointOptions options;
        options.directory = directory;
        options.keep = 1;
        options.resuming = true;
        options.warn = [&, r](const std::string &text) { out.warnings[r] += text + "\n"; };
        auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                                   runConfigOf(bundle), storage);
        ASSERT_FALSE(checkpoints.failed()) << checkpoints.message();
        for (size_t i = 0; i < steps.size(); ++i) {
          if (i == 1 && r == victim) // not while the files replaced by the first snapshot are
                                     // removed
            storage->arm(fault, [&, r] {
              job.kill(r);
              if (!fault.meanwhile)
                return;
              while (arrived < int(2 * kRanks - 1)) // the other ranks
                std::this_thread::yield();
              fault.meanwhile();
            });
          if (i == 2 && r == victim && fault.kind == Fault::Once)
            storage->disarm();
          fillState(bundle, *executor, steps[i]);
          (*checkpoints)->saveNow(steps[i]);
          Status status = (*checkpoints)->finish();
          out.finishes[r] = status.failed() ? status.message() : "";
          // Synchronizes the ranks, so that the fault occurs after the first snapshot has ended on
          // all ranks.
          ++arrived;
          while (arrived < int(kRanks * (i + 1)))
            std::this_thread::yield();
        }
        out.counts[r] = (*checkpoints)->counts();
        if (r == victim)
          out.triggered = storage->triggered();
      });
    for (std::thread &rank : ranks)
      rank.join();
    return out;
  }

  /// The step at which another run, of two devices, resumes. Every complete snapshot must be valid.
  uint64_t resumedAt(uint64_t generation) {
    auto found = listCheckpoints(directory);
    EXPECT_FALSE(found.failed());
    for (const CheckpointDirectory &checkpoint : *found)
      if (checkpoint.complete) {
        auto reader = CheckpointReader::open(directory + "/" + checkpoint.name);
        EXPECT_FALSE(reader.failed()) << reader.message();
        if (!reader.failed()) {
          EXPECT_FALSE(reader->verify().failed());
        }
      }
    auto executor = stateExecutor(other);
    fillState(other, *executor, 0);
    auto group = makeSingleProcessGroup(generation);
    CheckpointOptions options;
    options.directory = directory;
    options.resuming = true;
    auto checkpoints = CheckpointManager::open(
        *executor, other, *group, options, runConfigOf(other), std::make_shared<FaultyStorage>());
    EXPECT_FALSE(checkpoints.failed());
    if (checkpoints.failed())
      return 0;
    std::string note;
    auto point = (*checkpoints)->resume(false, &note);
    EXPECT_FALSE(point.failed()) << point.message();
    EXPECT_EQ(note, ""); // no incomplete snapshot was tried
    if (point.failed() || !*point)
      return 0;
    EXPECT_EQ(wrongElements(other, *executor, (*point)->step), 0);
    return (*point)->step;
  }

  /// Every file and directory in the snapshot directory.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(directory))
      out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
  }

  size_t incomplete() const {
    auto found = listCheckpoints(directory);
    return size_t(
        std::count_if(found->begin(), found->end(),
                      [](const CheckpointDirectory &checkpoint) { return !checkpoint.complete; }));
  }

  TemporaryDirectory folder;
  std::string directory = folder.path("snapshots");
  Bundle bundle, other;
};

TEST_F(CheckpointFaultTest, DeathAtAnyOperationLosesNothing) {
  int deaths = 0, completeAnyway = 0;
  for (uint32_t victim = 0; victim < kRanks; ++victim)
    for (bool half : {false, true})
      for (int at = 0;; ++at) {
        std::filesystem::remove_all(directory);
        Fault fault{Fault::Death, at, EIO, half};
        Outcome outcome = run(1, victim, fault, {10, 20});
        if (!outcome.triggered)
          break;
        ++deaths;
        uint64_t step = resumedAt(2);
        bool anybodySaidWritten = false;
        for (const CheckpointManager::Counts &counts : outcome.counts)
          anybodySaidWritten |= counts.written == 2;
        EXPECT_TRUE(step == 20 || (step == 10 && !anybodySaidWritten))
            << "rank " << victim << ", operation " << at << ": resumes at " << step;
        completeAnyway += step == 20;
        ASSERT_LT(at, 100);
      }
  EXPECT_GT(deaths, 50);
  EXPECT_GT(completeAnyway, 3); // after the index's rename
  printf("%d deaths, %d of them after the snapshot had become one\n", deaths, completeAnyway);
}

TEST_F(CheckpointFaultTest, AnyFailingOperationFailsOneSnapshotOnAllRanks) {
  int faults = 0;
  for (uint32_t victim : {0u, 2u})
    for (int error : {ENOSPC, EIO, EROFS})
      for (int at = 0;; ++at) {
        std::filesystem::remove_all(directory);
        Outcome outcome = run(1, victim, {Fault::Once, at, error, true}, {10, 20, 30});
        if (!outcome.triggered)
          break;
        ++faults;
        uint64_t failed = outcome.counts[0].failed;
        for (uint32_t r = 0; r < kRanks; ++r) {
          EXPECT_EQ(outcome.counts[r].failed, failed);
          EXPECT_EQ(outcome.counts[r].written, 3 - failed);
          EXPECT_EQ(outcome.finishes[r], "") << "the last one is complete";
          if (failed) { // every rank prints the same message
            EXPECT_EQ(outcome.warnings[r], outcome.warnings[0]);
            EXPECT_NE(outcome.warnings[r].find("rank " + std::to_string(victim)), std::string::npos)
                << outcome.warnings[r];
            EXPECT_NE(outcome.warnings[r].find("the checkpoint of step 20 failed"),
                      std::string::npos)
                << outcome.warnings[r];
            EXPECT_NE(outcome.warnings[r].find(directory), std::string::npos)
                << outcome.warnings[r];
            EXPECT_NE(outcome.warnings[r].find(std::strerror(error)), std::string::npos)
                << outcome.warnings[r];
          }
        }
        EXPECT_EQ(incomplete(), 0u); // partial files are removed
        EXPECT_EQ(resumedAt(2), 30u);
      }
  printf("%d faults\n", faults);
  EXPECT_GT(faults, 60);
}

TEST_F(CheckpointFaultTest, AFullDiskKeepsTheOlderOnes) {
  for (uint32_t victim : {0u, 1u}) {
    std::filesystem::remove_all(directory);
    Outcome outcome = run(1, victim, {Fault::Forever, 2, ENOSPC, true}, {10, 20, 30});
    for (uint32_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(outcome.counts[r].failed, 2u);
      EXPECT_NE(outcome.finishes[r].find("the last checkpoint, of step 30, is not complete"),
                std::string::npos)
          << outcome.finishes[r];
      EXPECT_NE(outcome.finishes[r].find("No space left on device"), std::string::npos)
          << outcome.finishes[r];
    }
    EXPECT_EQ(resumedAt(2), 10u);
  }
}

TEST_F(CheckpointFaultTest, RemainsOfADeadGenerationGoWithTheNextSnapshot) {
  run(1, 1, {Fault::Death, 2, EIO, true}, {10, 20});
  EXPECT_EQ(incomplete(), 1u);
  Outcome outcome = run(2, 1, {}, {15, 25});
  EXPECT_EQ(outcome.counts[0].written, 2u);
  EXPECT_EQ(incomplete(), 0u);
  EXPECT_EQ(listCheckpoints(directory)->size(), 1u);
  EXPECT_EQ(resumedAt(3), 25u);
}

TEST_F(CheckpointFaultTest, ARankThatStoodStillLeavesNothingBehindTheNextRun) {
  int pauses = 0;
  for (uint32_t victim = 0; victim < kRanks; ++victim)
    for (int at = 0;; ++at) {
      std::filesystem::remove_all(directory);
      std::vector<std::string> before;
      Fault pause{Fault::Pause, at};
      pause.meanwhile = [&] {
        Outcome next = run(2, 0, {}, {15, 25});
        EXPECT_EQ(next.counts[0].written, 2u);
        before = files();
      };
      Outcome outcome = run(1, victim, pause, {10, 20});
      if (!outcome.triggered)
        break;
      ++pauses;
      EXPECT_EQ(files(), before) << "rank " << victim << ", operation " << at;
      EXPECT_EQ(outcome.finishes[victim].empty(), outcome.counts[victim].written == 2)
          << "rank " << victim << ", operation " << at;
      EXPECT_EQ(listCheckpoints(directory)->size(), 1u);
      EXPECT_EQ(resumedAt(3), 25u);
      ASSERT_LT(at, 100);
    }
  printf("%d pauses\n", pauses);
  EXPECT_GT(pauses, 15);
}

TEST_F(CheckpointFaultTest, ARankThatStoodStillLeavesNoDraftsToARunThatHasWrittenNothing) {
  for (uint32_t victim = 0; victim < kRanks; ++victim)
    for (int at = 0;; ++at) {
      std::filesystem::remove_all(directory);
      Fault pause{Fault::Pause, at};
      pause.meanwhile = [&] { run(2, 0, {}, {}); };
      if (!run(1, victim, pause, {10, 20}).triggered)
        break;
      for (const std::string &file : files())
        EXPECT_EQ(file.find(".writing"), std::string::npos)
            << file << ": rank " << victim << ", operation " << at;
      EXPECT_NE(resumedAt(3), 0u);
      ASSERT_LT(at, 100);
    }
}

/// A start that is suspended just before it claims the directory, and then claims it from a newer
/// run.
class LateClaim : public FaultyStorage {
public:
  explicit LateClaim(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}
  int createExclusive(const std::string &path, int &handle) override {
    if (meanwhile_)
      std::exchange(meanwhile_, nullptr)();
    return FaultyStorage::createExclusive(path, handle);
  }

private:
  std::function<void()> meanwhile_;
};

TEST_F(CheckpointFaultTest, AClaimThatComesLateIsRefused) {
  auto executor = stateExecutor(bundle);
  auto open = [&](ProcessGroup &group, std::shared_ptr<CheckpointStorage> storage) {
    CheckpointOptions options;
    options.directory = directory;
    options.resuming = true;
    return CheckpointManager::open(*executor, bundle, group, options, runConfigOf(bundle),
                                   std::move(storage));
  };
  auto newerGroup = makeSingleProcessGroup(2), olderGroup = makeSingleProcessGroup(1);
  std::unique_ptr<CheckpointManager> newer;
  auto older = open(*olderGroup, std::make_shared<LateClaim>([&] {
    auto opened = open(*newerGroup, std::make_shared<FaultyStorage>());
    ASSERT_FALSE(opened.failed()) << opened.message();
    newer = std::move(*opened);
  }));
  ASSERT_TRUE(older.failed());
  EXPECT_NE(older.message().find("generation 2 writes there, this run is generation 1"),
            std::string::npos)
      << older.message();
  EXPECT_EQ(*newestGeneration(directory), 2u);

  fillState(bundle, *executor, 10);
  newer->saveNow(10);
  Status status = newer->finish();
  EXPECT_FALSE(status.failed()) << status.message();
  EXPECT_EQ(resumedAt(3), 10u);
}

class DirectoryThatVanishes : public FaultyStorage {
public:
  explicit DirectoryThatVanishes(std::string directory) : directory_(std::move(directory)) {}
  int sync(int) override {
    if (vanishes)
      std::filesystem::remove_all(directory_);
    return 0;
  }
  bool vanishes = false;

private:
  std::string directory_;
};

TEST_F(CheckpointFaultTest, ADirectoryThatVanishesIsAnError) {
  auto executor = stateExecutor(bundle);
  fillState(bundle, *executor, 10);
  auto group = makeSingleProcessGroup(1);
  CheckpointOptions options;
  options.directory = directory;
  auto storage = std::make_shared<DirectoryThatVanishes>(directory);
  auto checkpoints =
      CheckpointManager::open(*executor, bundle, *group, options, runConfigOf(bundle), storage);
  ASSERT_FALSE(checkpoints.failed());
  storage->vanishes = true;
  (*checkpoints)->saveNow(10);
  Status status = (*checkpoints)->finish();
  ASSERT_TRUE(status.failed());
  EXPECT_NE(status.message().find("claims/00000001: is gone"), std::string::npos)
      << status.message();
}

/// Writes temporary files to a device that is always full.
class FullDevice : public CheckpointStorage {
public:
  int create(const std::string &path, int &handle, bool direct) override {
    if (path.find(".safetensors") == std::string::npos)
      return CheckpointStorage::create(path, handle, direct);
    CheckpointStorage::close(::open(path.c_str(), O_CREAT | O_WRONLY, 0666));
    handle = ::open("/dev/full", O_WRONLY);
    return handle < 0 ? errno : 0;
  }
};

TEST_F(CheckpointFaultTest, WritesThatTheSystemRefuses) {
  auto executor = stateExecutor(bundle);
  auto group = makeSingleProcessGroup(1);
  CheckpointOptions options;
  options.directory = directory;
  std::string warnings;
  options.warn = [&](const std::string &text) { warnings += text; };
  {
    auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                               runConfigOf(bundle), std::make_shared<FullDevice>());
    ASSERT_FALSE(checkpoints.failed());
    (*checkpoints)->saveNow(10);
    EXPECT_TRUE((*checkpoints)->finish().failed());
    EXPECT_NE(warnings.find("No space left on device"), std::string::npos) << warnings;
  }
  // A file size limit enforced by the system.
  group = makeSingleProcessGroup(2);
  auto checkpoints =
      CheckpointManager::open(*executor, bundle, *group, options, runConfigOf(bundle));
  ASSERT_FALSE(checkpoints.failed());
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before, limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 700;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  (*checkpoints)->saveNow(10);
  Status failed = (*checkpoints)->finish();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(failed.failed());
  EXPECT_NE(failed.message().find("File too large"), std::string::npos) << failed.message();
  EXPECT_EQ(incomplete(), 0u);
  fillState(bundle, *executor, 11);
  (*checkpoints)->saveNow(11);
  EXPECT_FALSE((*checkpoints)->finish().failed());
  EXPECT_EQ(resumedAt(3), 11u);
}

/// Kills the process, as kill -9 does, before the operation with a given number.
class KillsItself : public FaultyStorage {
public:
  explicit KillsItself(int at) {
    arm({Fault::Death, at, EIO, true}, [] { ::kill(::getpid(), SIGKILL); });
  }
};

TEST_F(CheckpointFaultTest, AProcessKilledAtAnyOperationLosesNothing) {
  // The first snapshot is already complete; only operations of the second one count.
  int deaths = 0;
  for (int at = 0; at < 60; ++at) {
    std::filesystem::remove_all(directory);
    run(1, 0, {}, {10});
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto executor = stateExecutor(bundle);
      fillState(bundle, *executor, 20);
      auto group = makeSingleProcessGroup(2);
      CheckpointOptions options;
      options.directory = directory;
      options.resuming = true;
      auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                                 runConfigOf(bundle),
                                                 std::make_shared<KillsItself>(at));
      if (checkpoints.failed())
        ::_exit(3);
      (*checkpoints)->saveNow(20);
      ::_exit((*checkpoints)->finish().failed() ? 4 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ++deaths;
    uint64_t step = resumedAt(3);
    EXPECT_TRUE(step == 10 || step == 20) << "operation " << at << ": resumes at " << step;
  }
  printf("%d deaths\n", deaths);
  EXPECT_GT(deaths, 15);
  EXPECT_LT(deaths, 60);
}

} // namespace
