// Tests writing snapshots and resuming: in one process and in several ranks, with other plans, with
// damaged files, and with fencing.
#include "QuickStorage.h"
#include "StateOnly.h"
#include "ThreadGroup.h"

#include "../../runtime/lib/checkpoint/Fence.h"

#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Safetensors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

void expectSays(const std::string &message, const std::vector<std::string> &words) {
  for (const std::string &word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
}

class CheckpointTest : public ::testing::Test {
protected:
  static RunConfig runConfigOf(const Bundle &bundle) {
    RunConfig runConfig;
    runConfig.model = bundle.summary.content_hash();
    runConfig.batch = bundle.batch;
    runConfig.data = "bytes, 100 bytes, 0123";
    runConfig.samplesPerEpoch = 50;
    runConfig.training = bundle.summary.training();
    runConfig.steps = 100;
    return runConfig;
  }

  /// One run of a single process. Takes snapshots after the given steps.
  Status take(const Bundle &bundle, uint64_t generation, const std::vector<uint64_t> &steps,
              CheckpointOptions options, CheckpointManager::Counts *counts = nullptr) {
    auto executor = stateExecutor(bundle);
    auto group = makeSingleProcessGroup(generation);
    options.directory = directory;
    RunConfig runConfig = runConfigOf(bundle);
    runConfig.matrices = matrices;
    auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options, runConfig,
                                               std::make_shared<QuickStorage>());
    if (checkpoints.failed())
      return checkpoints.error();
    Status status = Status::success();
    for (uint64_t step : steps) {
      fillState(bundle, *executor, step);
      (*checkpoints)->saveNow(step);
      status = (*checkpoints)->finish();
    }
    if (counts)
      *counts = (*checkpoints)->counts();
    return status;
  }
  Status take(const Bundle &bundle, uint64_t generation, const std::vector<uint64_t> &steps) {
    CheckpointOptions options;
    options.resuming = true;
    return take(bundle, generation, steps, options);
  }

  std::string matrices; ///< library of the runs that take snapshots

  struct Resumed {
    std::string error, note;
    std::optional<ResumePoint> point;
    int64_t wrong = -1;
  };
  Resumed resume(const Bundle &bundle, uint64_t generation, const RunConfig &runConfig,
                 bool allowChange = false, bool withMoments = true) {
    Resumed out;
    auto executor = stateExecutor(bundle);
    fillState(bundle, *executor, 999);
    auto group = makeSingleProcessGroup(generation);
    CheckpointOptions options;
    options.directory = directory;
    options.resuming = true;
    auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options, runConfig,
                                               std::make_shared<QuickStorage>());
    if (checkpoints.failed()) {
      out.error = checkpoints.message();
      return out;
    }
    auto point = (*checkpoints)->resume(allowChange, &out.note);
    if (point.failed()) {
      out.error = point.message();
      return out;
    }
    out.point = *point;
    if (out.point)
      out.wrong = wrongElements(bundle, *executor, out.point->step, withMoments);
    return out;
  }
  Resumed resume(const Bundle &bundle, uint64_t generation) {
    return resume(bundle, generation, runConfigOf(bundle));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    auto found = listCheckpoints(directory);
    EXPECT_FALSE(found.failed());
    for (const CheckpointDirectory &checkpoint : *found)
      out.push_back(checkpoint.name + (checkpoint.complete ? "" : " incomplete"));
    return out;
  }

  std::string fileOf(const std::string &checkpoint, const std::string &ending) const {
    for (const auto &entry : std::filesystem::directory_iterator(directory + "/" + checkpoint))
      if (entry.path().string().find(ending) != std::string::npos)
        return entry.path().string();
    return "";
  }

  static void flip(const std::string &path, int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    char c = char(file.get());
    file.seekp(offset);
    file.put(char(c ^ 0x10));
  }

  static void flipEnd(const std::string &path) {
    flip(path, int64_t(std::filesystem::file_size(path)) - 1);
  }

  TemporaryDirectory folder;
  std::string directory = folder.path("snapshots");
};

TEST_F(CheckpointTest, IndicesKeepNamesOfTheHub) {
  CheckpointIndex index;
  CheckpointParameter parameter;
  parameter.name = "w";
  parameter.shape = {2};
  parameter.trainable = false;
  parameter.hub = {{"t.w"}, {}, false, true};
  index.parameters = {parameter};
  index.hub.buffers = {"freq"};
  index.hub.lora = bundle::Lora{4, 8, {"q"}, false};
  std::string text = writeCheckpointIndex(index);
  Result<CheckpointIndex> again = parseCheckpointIndex("index.json", text.data(), text.size());
  ASSERT_FALSE(again.failed()) << again.message();
  EXPECT_EQ(again->parameters[0].hub.names, std::vector<std::string>{"t.w"});
  EXPECT_TRUE(again->parameters[0].hub.adapter && !again->parameters[0].hub.transposed);
  EXPECT_EQ(again->hub.buffers, std::vector<std::string>{"freq"});
  EXPECT_TRUE(again->hub.lora && again->hub.lora->rank == 4 &&
              again->hub.lora->targets == std::vector<std::string>{"q"});
  EXPECT_EQ(writeCheckpointIndex(*again), text);
}

TEST_F(CheckpointTest, ARunResumesWhereItWas) {
  Bundle bundle = stateOnly(folder, {});
  EXPECT_FALSE(resume(bundle, 1).point); // no snapshot: not an error
  ASSERT_FALSE(take(bundle, 2, {10, 20, 30}).failed());
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000030.g2", "step-00000020.g2"})); // two are
                                                                                          // kept
  Resumed resumed = resume(bundle, 3);
  ASSERT_TRUE(resumed.point) << resumed.error;
  EXPECT_EQ(resumed.note, "");
  EXPECT_EQ(resumed.point->step, 30u);
  EXPECT_EQ(resumed.point->consumedSamples, 240u);
  EXPECT_EQ(resumed.point->path, directory + "/step-00000030.g2");
  EXPECT_EQ(resumed.wrong, 0);
}

TEST_F(CheckpointTest, AnyPlanResumesFromAnyOther) {
  uint64_t generation = 1;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    StateOnlyOptions options;
    options.devices = 1 + seed % 5;
    options.seed = seed;
    options.scale = 100 + seed;
    Bundle before = stateOnly(folder, options);
    ASSERT_FALSE(take(before, generation++, {seed}).failed());
    for (uint32_t devices : {1u, 3u, 7u}) {
      options.devices = devices;
      options.seed = seed * 100 + devices;
      // The compiler chooses the groups.
      options.groups = devices == 3 ? std::vector<std::vector<uint32_t>>{{0}, {1}, {2}}
                                    : std::vector<std::vector<uint32_t>>{{2, 1, 0}};
      Bundle after = stateOnly(folder, options);
      Resumed resumed = resume(after, generation++);
      ASSERT_TRUE(resumed.point) << resumed.error;
      EXPECT_EQ(resumed.point->step, seed);
      EXPECT_EQ(resumed.wrong, 0) << seed << " " << devices;
    }
  }
}

TEST_F(CheckpointTest, LargeSlicesComeInPieces) {
  StateOnlyOptions options;
  options.scale = 3'000'000; // p2: 9 million elements, 36 MB
  options.moments = 1;
  options.frozen = {};
  Bundle bundle = stateOnly(folder, options);
  ASSERT_FALSE(take(bundle, 1, {5}).failed());
  auto reader = CheckpointReader::open(directory + "/step-00000005.g1");
  ASSERT_FALSE(reader.failed()) << reader.message();
  for (const CheckpointFile &file : reader->index().files)
    for (const CheckpointShard &slice : file.shards)
      EXPECT_LE(slice.bytes(), 16u << 20);
  EXPECT_FALSE(reader->verify().failed());
  std::vector<float> p2(9'000'000);
  ASSERT_FALSE(
      reader->readTensor(2, 0, StoredType::F32, reinterpret_cast<std::byte *>(p2.data())).failed());
  for (size_t e = 0; e < p2.size(); e += 9999)
    ASSERT_EQ(p2[e], float(stateNumber(2, 0, int64_t(e), 5)));
  options.devices = 3;
  options.seed = 8;
  EXPECT_EQ(resume(stateOnly(folder, options), 2).wrong, 0);
}

TEST_F(CheckpointTest, FilesAreSafetensors) {
  ASSERT_FALSE(take(stateOnly(folder, {}), 1, {7}).failed());
  auto file = SafetensorsFile::open(fileOf("step-00000007.g1", "0-dev:0.safetensors"));
  ASSERT_FALSE(file.failed()) << file.message();
  double step;
  std::memcpy(&step, file->tensors().at("optimizer_step").data, 8);
  EXPECT_EQ(step, 7.0);
  bool found = false;
  for (const auto &[name, tensor] : file->tensors())
    if (name.rfind("moment.1/p2@", 0) == 0 || name.rfind("p1@", 0) == 0)
      found = true;
  EXPECT_TRUE(found);
}

TEST_F(CheckpointTest, ADamagedSnapshotIsPassedOver) {
  Bundle bundle = stateOnly(folder, {});
  uint64_t generation = 1;
  ASSERT_FALSE(take(bundle, generation++, {10}).failed());
  auto reader = CheckpointReader::open(directory + "/step-00000010.g1");
  ASSERT_FALSE(reader.failed());
  std::string saved = folder.path("saved");

  struct Damage {
    std::function<void(const std::string &)> act; ///< on a snapshot's folder
    std::vector<std::string> says;
  };
  auto file = [&](const std::string &path) { return path + "/0-dev:0.safetensors"; };
  std::vector<Damage> damages = {
      {[&](const std::string &path) {
         flip(file(path), int64_t(std::filesystem::file_size(file(path))) - 3);
       },
       {"0-dev:0.safetensors: slice 'moment.1/p2@", "checksum is", "expected"}},
      {[&](const std::string &path) { flip(file(path), 40); },
       {"0-dev:0.safetensors: its header", "checksum"}},
      {[&](const std::string &path) {
         std::filesystem::resize_file(file(path), std::filesystem::file_size(file(path)) - 1);
       },
       {"it is truncated"}},
      {[&](const std::string &path) { std::filesystem::remove(file(path)); },
       {"0-dev:0.safetensors: cannot be read: No such file"}},
      {[&](const std::string &path) { std::filesystem::resize_file(path + "/index.json", 100); },
       {"index.json", "truncated"}},
      {[&](const std::string &path) {
         std::filesystem::resize_file(path + "/index.json",
                                      std::filesystem::file_size(path + "/index.json") - 10);
       },
       {"index.json", "truncated"}},
      {[&](const std::string &path) { flip(path + "/index.json", 300); },
       {"index.json", "its checksum is"}},
      {[&](const std::string &path) { std::filesystem::resize_file(path + "/index.json", 0); },
       {"index.json"}},
  };
  for (const Damage &damage : damages) {
    std::filesystem::remove_all(directory);
    ASSERT_FALSE(take(bundle, 1, {10, 20}).failed());
    damage.act(directory + "/step-00000020.g1");
    Resumed resumed = resume(bundle, 2);
    ASSERT_TRUE(resumed.point) << resumed.error;
    EXPECT_EQ(resumed.point->step, 10u);
    EXPECT_EQ(resumed.wrong, 0);
    expectSays(resumed.note, {"passed over: ", "step-00000020.g1"});
    expectSays(resumed.note, damage.says);

    damage.act(directory + "/step-00000010.g1");
    resumed = resume(bundle, 3);
    EXPECT_FALSE(resumed.point);
    expectSays(resumed.error,
               {"none of its 2 checkpoints can be read", "step-00000010.g1", "step-00000020.g1"});
  }
}

TEST_F(CheckpointTest, EveryFlippedBitIsSeen) {
  StateOnlyOptions options;
  options.scale = 3;
  options.groups = {{0}};
  options.frozen = {};
  options.devices = 1;
  ASSERT_FALSE(take(stateOnly(folder, options), 1, {1}).failed());
  std::string checkpoint = directory + "/step-00000001.g1";
  for (const std::string &path : {checkpoint + "/index.json", checkpoint + "/0-dev:0.safetensors"})
    for (int64_t at = 0; at < int64_t(std::filesystem::file_size(path)); ++at) {
      flip(path, at);
      auto reader = CheckpointReader::open(checkpoint);
      EXPECT_TRUE(reader.failed() || reader->verify().failed()) << path << " " << at;
      flip(path, at);
    }
  auto reader = CheckpointReader::open(checkpoint);
  ASSERT_FALSE(reader.failed());
  EXPECT_FALSE(reader->verify().failed());
}

TEST_F(CheckpointTest, DamagedOnesDoNotCountAsKept) {
  Bundle bundle = stateOnly(folder, {});
  ASSERT_FALSE(take(bundle, 1, {10, 20}).failed());
  flipEnd(fileOf("step-00000020.g1", "1-dev:1"));
  auto executor = stateExecutor(bundle);
  fillState(bundle, *executor, 0);
  auto group = makeSingleProcessGroup(2);
  CheckpointOptions options;
  options.directory = directory;
  options.resuming = true;
  auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                             runConfigOf(bundle), std::make_shared<QuickStorage>());
  ASSERT_FALSE(checkpoints.failed());
  auto point = (*checkpoints)->resume(false, nullptr);
  ASSERT_FALSE(point.failed());
  ASSERT_EQ((*point)->step, 10u);
  (*checkpoints)->saveNow(15);
  ASSERT_FALSE((*checkpoints)->finish().failed());
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000015.g2", "step-00000010.g1"}));
}

TEST_F(CheckpointTest, DifferencesAreListed) {
  Bundle bundle = stateOnly(folder, {});
  ASSERT_FALSE(take(bundle, 1, {10}).failed());
  RunConfig other = runConfigOf(bundle);
  other.batch = 4;
  other.data = "something else";
  other.shuffle = 3;
  other.training.set_beta2(0.5);
  other.training.set_optimizer(bundle::TrainingOptions::ADAM);
  other.training.set_seed(5);
  Resumed resumed = resume(bundle, 2, other);
  expectSays(resumed.error,
             {"batch: 8 in the checkpoint, 4 here",
              "data: bytes, 100 bytes, 0123 in the checkpoint, something else here",
              "shuffle: none in the checkpoint, 3 here", "beta2: 0 in the checkpoint, 0.5 here",
              "optimizer: adamw in the checkpoint, adam here", "seed: 0 in the checkpoint, 5 here",
              "--allow-config-change"});
  resumed = resume(bundle, 3, other, true);
  ASSERT_TRUE(resumed.point) << resumed.error;
  EXPECT_EQ(resumed.wrong, 0); // Adam's moments are also valid for AdamW
  EXPECT_EQ(resumed.point->consumedSamples, 80u);
  expectSays(resumed.note, {"batch: 8 in the checkpoint, 4 here"});

  other.training.set_optimizer(bundle::TrainingOptions::SGD);
  resumed = resume(bundle, 4, other, true, /*withMoments=*/false);
  EXPECT_EQ(resumed.wrong, 0);
  expectSays(resumed.note, {"the optimizer starts from scratch"});
}

TEST_F(CheckpointTest, AnotherMatrixLibraryIsSaidAndNotRefused) {
  Bundle bundle = stateOnly(folder, {});
  RunConfig runConfig = runConfigOf(bundle);
  Resumed resumed;
  ASSERT_FALSE(take(bundle, 1, {10}).failed()); // as before libraries were recorded
  runConfig.matrices = "openblas 1, Zen";
  resumed = resume(bundle, 2, runConfig);
  ASSERT_TRUE(resumed.point) << resumed.error;
  EXPECT_EQ(resumed.note, "");
  matrices = "openblas 1, Zen";
  ASSERT_FALSE(take(bundle, 3, {11}).failed());
  resumed = resume(bundle, 4, runConfig);
  ASSERT_TRUE(resumed.point) << resumed.error;
  EXPECT_EQ(resumed.note, "");
  runConfig.matrices = "onednn 3, isa 7";
  resumed = resume(bundle, 5, runConfig);
  ASSERT_TRUE(resumed.point) << resumed.error;
  EXPECT_EQ(resumed.wrong, 0);
  expectSays(resumed.note, {"except for rounding",
                            "matrices were multiplied by openblas 1, Zen, here by onednn 3, isa 7",
                            "ZORSE_GEMM"});
}

TEST_F(CheckpointTest, TheLengthOfTheRunMattersOnlyToADecay) {
  Bundle bundle = stateOnly(folder, {});
  bundle.summary.mutable_training()->set_schedule(bundle::TrainingOptions::CONSTANT);
  ASSERT_FALSE(take(bundle, 1, {10}).failed());
  RunConfig longer = runConfigOf(bundle);
  longer.steps = 1000;
  EXPECT_TRUE(resume(bundle, 2, longer).point);
  longer.training.set_schedule(bundle::TrainingOptions::COSINE);
  expectSays(resume(bundle, 3, longer).error,
             {"schedule: constant in the checkpoint, cosine here",
              "last step of the decay: 0 in the checkpoint, 1000 here"});
}

TEST_F(CheckpointTest, ALongerRunUnderADecayIsExplainedAndNotRefused) {
  Bundle bundle = stateOnly(folder, {});
  bundle.summary.mutable_training()->set_schedule(bundle::TrainingOptions::COSINE);
  bundle.summary.mutable_training()->set_learning_rate(1);
  ASSERT_FALSE(take(bundle, 1, {10}).failed());
  RunConfig longer = runConfigOf(bundle);
  const uint64_t before = longer.steps;
  longer.steps = before + 100;
  Resumed resumed = resume(bundle, 2, longer);
  ASSERT_TRUE(resumed.point) << resumed.error;
  expectSays(resumed.note,
             {"the cosine decay of the learning rate ends with the run, at step " +
              std::to_string(before + 100) + " now and at step " + std::to_string(before) +
              " in the checkpoint's run: step 11 has the learning rate"});
  longer.training.set_total_steps(before); // the same decay
  longer.steps = before;
  EXPECT_EQ(resume(bundle, 3, longer).note, "");
  longer.training.set_total_steps(before + 7);
  expectSays(resume(bundle, 4, longer).error,
             {"last step of the decay: " + std::to_string(before) + " in the checkpoint, " +
              std::to_string(before + 7) + " here"});
}

TEST_F(CheckpointTest, AnotherModelIsRefusedWhateverIsAllowed) {
  ASSERT_FALSE(take(stateOnly(folder, {}), 1, {10}).failed());
  StateOnlyOptions other;
  other.scale = 11;
  expectSays(resume(stateOnly(folder, other), 2, runConfigOf(stateOnly(folder, other)), true).error,
             {"another model", "'p0' is 10x1 in the checkpoint, 11x1 here"});
  other.scale = 10;
  other.groups = {{0, 1}, {2, 4}};
  expectSays(resume(stateOnly(folder, other), 3, runConfigOf(stateOnly(folder, other)), true).error,
             {"not in the checkpoint: 'p4'"});
  other.groups = {{0, 1}};
  other.frozen = {2, 3};
  expectSays(resume(stateOnly(folder, other), 4, runConfigOf(stateOnly(folder, other)), true).error,
             {"'p2' is trained in the checkpoint, frozen here"});
}

TEST_F(CheckpointTest, PrecisionChangesWhenAllowed) {
  ASSERT_FALSE(take(stateOnly(folder, {}), 1, {10}).failed());
  StateOnlyOptions wide;
  wide.type = bundle::F64;
  Bundle bundle = stateOnly(folder, wide);
  expectSays(resume(bundle, 2).error, {"precision: f32 in the checkpoint, f64 here"});
  Resumed resumed = resume(bundle, 3, runConfigOf(bundle), true);
  EXPECT_EQ(resumed.wrong, 0) << resumed.error;
}

TEST_F(CheckpointTest, FrozenParametersMustBeThoseOfTheRun) {
  Bundle bundle = stateOnly(folder, {});
  ASSERT_FALSE(take(bundle, 1, {10}).failed());
  auto executor = stateExecutor(bundle);
  fillState(bundle, *executor, 10);
  eachElement(
      bundle, *executor,
      [&](uint32_t p, int, int64_t e, bundle::ElementType, std::byte *data) {
        if (p == 3 && e == 5)
          data[0] ^= std::byte(1);
      },
      executor.get());
  auto group = makeSingleProcessGroup(2);
  CheckpointOptions options;
  options.directory = directory;
  options.resuming = true;
  auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                             runConfigOf(bundle), std::make_shared<QuickStorage>());
  ASSERT_FALSE(checkpoints.failed());
  auto point = (*checkpoints)->resume(false, nullptr);
  ASSERT_TRUE(point.failed());
  expectSays(point.message(), {"frozen parameter 'p3'", "--load-weights"});
}

TEST_F(CheckpointTest, ADirectoryOfAnEarlierRunIsNotOverwritten) {
  Bundle bundle = stateOnly(folder, {});
  ASSERT_FALSE(take(bundle, 1, {10}).failed());
  CheckpointOptions options;
  Status status = take(bundle, 2, {10}, options);
  ASSERT_TRUE(status.failed());
  expectSays(status.message(),
             {"holds checkpoints of an earlier run", "step-00000010.g1", "--resume"});
  expectSays(take(bundle, 1, {20}).message(), {"generation 1 writes there"}); // two runs with the
                                                                              // same generation
}

TEST_F(CheckpointTest, ALaterGenerationGoesFirst) {
  Bundle bundle = stateOnly(folder, {});
  ASSERT_FALSE(take(bundle, 1, {10, 20}).failed());
  ASSERT_FALSE(take(bundle, 2, {12}).failed()); // after falling back
  Resumed resumed = resume(bundle, 3);
  ASSERT_TRUE(resumed.point);
  EXPECT_EQ(resumed.point->step, 12u);
}

TEST_F(CheckpointTest, AnOlderGenerationWritesAndRemovesNothing) {
  Bundle bundle = stateOnly(folder, {});
  auto executor = stateExecutor(bundle);
  fillState(bundle, *executor, 10);
  auto group = makeSingleProcessGroup(1);
  CheckpointOptions options;
  options.directory = directory;
  auto checkpoints = CheckpointManager::open(*executor, bundle, *group, options,
                                             runConfigOf(bundle), std::make_shared<QuickStorage>());
  ASSERT_FALSE(checkpoints.failed());
  (*checkpoints)->saveNow(10);
  ASSERT_FALSE((*checkpoints)->finish().failed());
  EXPECT_FALSE(checkFence(directory, 1).failed());

  ASSERT_FALSE(take(bundle, 5, {20}).failed()); // the job was restarted in the meantime
  std::vector<std::string> before = names();
  (*checkpoints)->saveNow(30);
  Status status = (*checkpoints)->finish();
  ASSERT_TRUE(status.failed());
  expectSays(status.message(), {"superseded by generation 5", "this run is generation 1"});
  EXPECT_EQ(names(), before);
  EXPECT_EQ((*checkpoints)->beginIfDue(40, true), nullptr);
  Result<StepResult> waited = executor->wait();
  ASSERT_TRUE(waited.failed()); // and the run ends
  expectSays(checkFence(directory, 1).message(), {"superseded by generation 5"});
  EXPECT_EQ(*newestGeneration(directory), 5u);
  expectSays(take(bundle, 4, {40}).message(),
             {"generation 5 writes there, this run is generation 4"});
}

/// Of several starts that claim at the same time, at most one wins each generation, and the one
/// with the newest claim may write.
TEST_F(CheckpointTest, OneStartWinsEveryRace) {
  constexpr uint64_t kRounds = 1000, kStarts = 4;
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<std::optional<Claim>> claims(kStarts);
    std::vector<std::thread> starts;
    starts.reserve(kStarts);
    std::atomic<uint64_t> ready{0};
    for (uint64_t i = 0; i < kStarts; ++i)
      starts.emplace_back([&, i] {
        QuickStorage storage;
        ++ready;
        while (ready < kStarts)
          std::this_thread::yield();
        // As starts do: one more than the newest. In some rounds one is ahead.
        const uint64_t generation = *newestGeneration(directory) + 1 +
                                    uint64_t(round % 3 == 0 && i == 0);
        Result<Claim> claim = claimDirectory(storage, directory, generation);
        if (!claim.failed())
          claims[i] = *claim;
      });
    for (std::thread &start : starts)
      start.join();
    QuickStorage storage;
    std::set<uint64_t> generations;
    size_t mayWrite = 0;
    for (const std::optional<Claim> &claim : claims)
      if (claim) {
        EXPECT_TRUE(generations.insert(claim->generation).second) << "round " << round;
        mayWrite += !Fence(storage, directory, *claim).check();
      }
    ASSERT_EQ(mayWrite, 1u) << "round " << round;
    ASSERT_EQ(*newestGeneration(directory), *generations.rbegin());
  }
  // Directories of earlier versions.
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/generation") << "7 0123abcd\n";
  EXPECT_EQ(*newestGeneration(directory), 7u);
  QuickStorage storage;
  EXPECT_TRUE(claimDirectory(storage, directory, 7).failed());
  EXPECT_FALSE(claimDirectory(storage, directory, 8).failed());
}

TEST_F(CheckpointTest, SeveralRanksAgree) {
  StateOnlyOptions options;
  options.devices = 4;
  Bundle bundle = stateOnly(folder, options);
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    ThreadJob job(4, generation);
    std::vector<std::thread> ranks;
    std::vector<std::string> errors(4), notes(4);
    std::vector<uint64_t> resumedAt(4, 0);
    if (generation == 3)
      flipEnd(fileOf("step-00000020.g2", "2-dev:2")); // only rank 2 reads it
    for (uint32_t r = 0; r < 4; ++r)
      ranks.emplace_back([&, r] {
        auto executor = stateExecutor(bundle, {r});
        fillState(bundle, *executor, 0);
        auto group = job.group(r);
        CheckpointOptions checkpointOptions;
        checkpointOptions.directory = directory;
        checkpointOptions.resuming = generation > 1;
        auto checkpoints = CheckpointManager::open(*executor, bundle, *group, checkpointOptions,
                                                   runConfigOf(bundle));
        if (checkpoints.failed()) {
          errors[r] = checkpoints.message();
          return;
        }
        auto point = (*checkpoints)->resume(false, &notes[r]);
        if (point.failed()) {
          errors[r] = point.message();
          return;
        }
        resumedAt[r] = *point ? (*point)->step : 0;
        if (*point && wrongElements(bundle, *executor, (*point)->step) > 0)
          errors[r] = "wrong elements";
        if (generation < 3)
          for (uint64_t step : {generation * 10 - 5, generation * 10}) {
            fillState(bundle, *executor, step);
            (*checkpoints)->saveNow(step);
            if (Status status = (*checkpoints)->finish(); status.failed())
              errors[r] = status.message();
          }
      });
    for (std::thread &rank : ranks)
      rank.join();
    EXPECT_EQ(errors, std::vector<std::string>(4));
    EXPECT_EQ(resumedAt, std::vector<uint64_t>(4, generation == 1 ? 0 : generation == 2 ? 10 : 15));
    if (generation == 3)
      expectSays(notes[0], {"rank 2: ", "step-00000020.g2/2-dev:2.safetensors"});
  }
}

} // namespace
