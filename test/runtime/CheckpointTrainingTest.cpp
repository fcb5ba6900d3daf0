// Tests snapshots of a training run in progress.
#include "QuickStorage.h"
#include "TemporaryDirectory.h"
#include "ThreadGroup.h"
#include "TwoDevices.h"

#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class NumberedData final : public DataSource {
public:
  Result<std::shared_ptr<const Batch>> batchOf(uint64_t first, uint64_t samples,
                                               uint64_t) override {
    auto batch = std::make_shared<Batch>();
    batch->inputs.emplace_back(5 * 16);
    for (int row = 0; row < 5; ++row)
      for (int j = 0; j < 4; ++j) {
        float value =
            float(((first + std::min<uint64_t>(row, samples - 1)) * 7 + uint64_t(j) * 3) % 11) -
            4.0f;
        std::memcpy(batch->inputs[0].data() + row * 16 + j * 4, &value, 4);
      }
    return std::shared_ptr<const Batch>(batch);
  }
  uint64_t samplesPerEpoch() const override { return 15; }
};

/// Delays every write.
class SlowStorage : public CheckpointStorage {
public:
  int write(int handle, const std::byte *data, size_t bytes) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return CheckpointStorage::write(handle, data, bytes);
  }
  int sync(int) override { return 0; }
  int syncDirectory(const std::string &) override { return 0; }
};

class CheckpointTrainingTest : public ::testing::Test {
protected:
  CheckpointTrainingTest() : two(directory.path("two.zorse")) {
    float weights[6] = {0, 0, 1, 2, 3, 4};
    directory.write("two.zorse/weights.bin",
                    std::string(reinterpret_cast<const char *>(weights), sizeof weights));
    std::filesystem::create_directories(directory.path("two.zorse/kernels/x86-64"));
    std::filesystem::copy_file(ZORSE_TEST_KERNELS,
                               directory.path("two.zorse/kernels/x86-64/kernels.so"));
    bundle.summary.mutable_training()->set_optimizer(bundle::TrainingOptions::SGD);
    bundle.summary.mutable_training()->set_schedule(bundle::TrainingOptions::LINEAR);
    bundle.summary.mutable_training()->set_learning_rate(0.01);
  }

  struct Run {
    std::vector<double> losses;
    std::vector<float> weights;
    CheckpointManager::Counts counts;
    std::string error, warnings;
  };

  /// One process with both devices. `steps` is the length of the whole run, `stopAfter` the last
  /// step of this part.
  Run run(uint64_t generation, uint64_t steps, uint64_t every, bool resume,
          uint64_t stopAfter = UINT64_MAX,
          std::shared_ptr<CheckpointStorage> storage = std::make_shared<QuickStorage>()) {
    Run out;
    auto locals = makeLocalDevices(bundle);
    auto executor = Executor::create(bundle, std::move(*locals), {});
    EXPECT_FALSE(executor.failed()) << executor.message();
    EXPECT_FALSE(loadState(**executor, bundle, "").failed());
    auto group = makeSingleProcessGroup(generation);
    CheckpointOptions options;
    options.directory = directory.path("snapshots");
    options.every = every;
    options.resuming = resume;
    options.warn = [&](const std::string &text) { out.warnings += text + "\n"; };
    RunConfig runConfig;
    runConfig.batch = bundle.batch;
    runConfig.training = bundle.summary.training();
    runConfig.steps = steps;
    auto checkpoints =
        CheckpointManager::open(**executor, bundle, *group, options, runConfig, storage);
    EXPECT_FALSE(checkpoints.failed()) << checkpoints.message();
    TrainingRun training;
    if (resume) {
      auto point = (*checkpoints)->resume(false, nullptr);
      EXPECT_FALSE(point.failed()) << point.message();
      if (*point) {
        training.firstStep = (*point)->step + 1;
        training.firstSample = (*point)->consumedSamples;
      }
    }
    training.steps = steps - (training.firstStep - 1);
    training.options = bundle.summary.training();
    NumberedData data;
    training.data = &data;
    auto stopCoordinator = makeLocalStopCoordinator();
    training.stopCoordinator = stopCoordinator.get();
    training.report = [&](const StepReport &report) {
      out.losses.push_back(report.loss);
      if (report.step >= stopAfter)
        stopCoordinator->requestStop();
    };
    training.stateObserver = [&](uint64_t step, bool last) {
      return (*checkpoints)->beginIfDue(step, last);
    };
    auto end = train(**executor, bundle, training);
    EXPECT_FALSE(end.failed()) << end.message();
    if (!end.failed())
      (*checkpoints)->saveNow(end->lastStep);
    Status status = (*checkpoints)->finish();
    out.error = status.failed() ? status.message() : "";
    out.counts = (*checkpoints)->counts();
    for (uint32_t d = 0; d < 2; ++d) {
      float w[2];
      EXPECT_FALSE(
          (*executor)->read(d, bundle.programs[d].state(0).region(), 0, w, sizeof w).failed());
      out.weights.insert(out.weights.end(), w, w + 2);
    }
    return out;
  }

  TemporaryDirectory directory;
  TwoDevices two;
  Bundle &bundle = two.bundle;
};

TEST_F(CheckpointTrainingTest, AResumedRunIsTheUnbrokenOne) {
  Run unbroken = run(1, 40, 10, false);
  EXPECT_EQ(unbroken.error, "");
  EXPECT_EQ(unbroken.counts.written, 4u);
  ASSERT_EQ(unbroken.losses.size(), 40u);
  std::filesystem::remove_all(directory.path("snapshots"));
  std::vector<double> losses;
  uint64_t generation = 1;
  for (uint64_t stop : {7u, 8u, 23u, 40u}) {
    Run part = run(generation, 40, 10, generation > 1, stop);
    ++generation;
    EXPECT_EQ(part.error, "");
    losses.insert(losses.end(), part.losses.begin(), part.losses.end());
    if (stop == 40) {
      EXPECT_EQ(part.weights, unbroken.weights);
    }
  }
  EXPECT_EQ(losses,
            unbroken.losses); // bit by bit: a stopped run leaves a snapshot of its last step
}

TEST_F(CheckpointTrainingTest, TakingThemChangesNothing) {
  Run without = run(1, 200, 0, false);
  std::filesystem::remove_all(directory.path("snapshots"));
  Run every = run(1, 200, 1, false);
  EXPECT_EQ(every.error, "");
  EXPECT_EQ(every.counts.written, 200u);
  EXPECT_EQ(without.losses, every.losses);
  EXPECT_EQ(without.weights, every.weights);
}

TEST_F(CheckpointTrainingTest, ASlowDiskIsWaitedForAndCounted) {
  Run slow = run(1, 12, 1, false, UINT64_MAX, std::make_shared<SlowStorage>());
  EXPECT_EQ(slow.error, "");
  EXPECT_EQ(slow.counts.written, 12u);
  EXPECT_EQ(slow.counts.failed, 0u);
  EXPECT_GE(slow.counts.waits, 8u);
  EXPECT_NE(slow.warnings.find("the disk is too slow"), std::string::npos) << slow.warnings;
  EXPECT_EQ(slow.warnings.find("said once"), slow.warnings.rfind("said once"));
  auto found = listCheckpoints(directory.path("snapshots"));
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].step, 12u);
}

TEST_F(CheckpointTrainingTest, ARunThatFailsLeavesWithoutWaitingForWhatNeverComes) {
  auto locals = makeLocalDevices(bundle);
  auto executor = Executor::create(bundle, std::move(*locals), {});
  ASSERT_FALSE(loadState(**executor, bundle, "").failed());
  auto group = makeSingleProcessGroup(1);
  CheckpointOptions options;
  options.directory = directory.path("snapshots");
  options.every = 1;
  auto checkpoints = CheckpointManager::open(**executor, bundle, *group, options, {});
  ASSERT_FALSE(checkpoints.failed());
  StateObserver *observer = (*checkpoints)->beginIfDue(1, false);
  ASSERT_NE(observer, nullptr);
  EXPECT_NE((*checkpoints)->beginIfDue(2, false),
            nullptr); // does not wait for a snapshot that is not copied yet
  (*executor)->abort(userError("the end"));
  Status status = (*checkpoints)->finish();
  ASSERT_TRUE(status.failed());
  EXPECT_NE(status.message().find("was not taken"), std::string::npos);
  checkpoints->reset();
  observer->onStateQuiescent(0, 1); // a late call of the executor is ignored
}

} // namespace
