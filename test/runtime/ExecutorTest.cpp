// Tests the executor on a program built by hand: results, evaluation, overlapping steps, thread
// arrangements, traces.
#include "ExecutorRig.h"

#include "zorse/runtime/Report.h"

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

std::string bytesAt(const Executor &executor, uint32_t device, const bundle::Region &region) {
  std::string bytes(region.bytes(), 0);
  EXPECT_FALSE(executor.read(device, region, 0, bytes.data(), bytes.size()).failed());
  return bytes;
}

/// Records announced receives and checks that the following receives match them.
class ExpectingTransport final : public Transport {
public:
  ExpectingTransport(std::unique_ptr<Transport> inner, int &announced, int &wrong)
      : inner_(std::move(inner)), announced_(announced), wrong_(wrong) {}
  Status send(Operation o, uint32_t peer, const void *data, size_t bytes) override {
    return inner_->send(o, peer, data, bytes);
  }
  Status receive(Operation o, uint32_t peer, void *data, size_t bytes) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); // so that the next queue becomes
                                                               // ready
    auto found = expected_.find({o.step, o.instruction});
    if (found != expected_.end()) {
      std::string now(static_cast<const char *>(data), bytes);
      wrong_ += found->second.first != data || found->second.second != bytes ||
                now != marks_[found->first];
      expected_.erase(found);
    }
    return inner_->receive(o, peer, data, bytes);
  }
  void postReceive(Operation o, uint32_t, void *data, size_t bytes) override {
    ++announced_;
    // Early arrival: the memory may not be read or written between this call and the receive.
    std::memset(data, 0xa5, bytes);
    marks_[{o.step, o.instruction}] = std::string(static_cast<const char *>(data), bytes);
    wrong_ += !expected_.insert({{o.step, o.instruction}, {data, bytes}}).second;
  }
  bool gainsFromExpecting() const override { return true; }
  Status allGather(Operation o, const AllGatherArguments &a) override {
    return inner_->allGather(o, a);
  }
  Status reduceScatter(Operation o, const ReduceScatterArguments &a) override {
    return inner_->reduceScatter(o, a);
  }
  Status allReduce(Operation o, const AllReduceArguments &a) override {
    return inner_->allReduce(o, a);
  }
  uint64_t moved() const override { return inner_->moved(); }
  void abort(const Error &why) override { inner_->abort(why); }

private:
  std::unique_ptr<Transport> inner_;
  int &announced_, &wrong_;
  std::map<std::pair<uint64_t, uint32_t>, std::pair<void *, size_t>> expected_;
  std::map<std::pair<uint64_t, uint32_t>, std::string> marks_;
};

TEST_F(ExecutorTest, ReceivesAreAnnouncedWhenTheirMemoryIsFree) {
  int announced = 0, wrong = 0;
  auto transports = makeLocalTransports(2);
  transports[1] = std::make_unique<ExpectingTransport>(std::move(transports[1]), announced, wrong);
  auto executor = make({}, {}, std::move(transports));
  std::vector<StepReport> reports;
  ASSERT_FALSE(train(*executor, two.bundle, training(10, reports)).failed());
  expectTrained(reports, *executor, 0);
  EXPECT_EQ(wrong, 0);
  RecordProperty("announced", announced);
}

TEST_F(ExecutorTest, TheProgramsAreValid) {
  Status status = checkPrograms(two.bundle);
  EXPECT_FALSE(status.failed()) << status.message();
}

TEST_F(ExecutorTest, TrainsAsOneLoopDoes) {
  for (bool threadPerQueue : {false, true})
    for (double clip : {0.0, 1.0}) {
      ExecutorOptions options;
      options.oneThreadPerQueue = threadPerQueue;
      auto executor = make(options);
      ASSERT_TRUE(executor);
      std::vector<StepReport> reports;
      TrainingRun run = training(40, reports);
      run.options.set_clip_norm(clip);
      Result<TrainingEnd> status = train(*executor, two.bundle, run);
      ASSERT_FALSE(status.failed()) << status.message();
      ASSERT_EQ(reports.size(), 40u);
      expectTrained(reports, *executor, clip);
    }
}

TEST_F(ExecutorTest, PoisonDoesNotReachResultsAndTouchedBytesAreCounted) {
  ExecutorOptions options;
  options.poison = true;
  auto executor = make(options);
  ASSERT_TRUE(executor);
  std::vector<StepReport> reports;
  ASSERT_FALSE(train(*executor, two.bundle, training(3, reports)).failed());
  expectTrained(reports, *executor, 0);
  auto uses = executor->memoryUse();
  ASSERT_FALSE(uses.failed()) << uses.message();
  for (const Executor::MemoryUse &use : *uses) {
    EXPECT_EQ(use.planned, 4096u);
    EXPECT_GE(use.touched, 1152u);
    EXPECT_LE(use.touched, 1600u);
  }
}

TEST_F(ExecutorTest, EvaluationChangesNothing) {
  auto executor = make();
  ASSERT_TRUE(executor);
  std::vector<StepReport> reports;
  TrainingRun run = training(4, reports);
  NumberedData held;
  run.evaluationData = &held;
  run.evaluateEvery = 2;
  ASSERT_FALSE(train(*executor, two.bundle, run).failed());
  ASSERT_EQ(reports.size(), 6u);
  EXPECT_TRUE(reports[2].evaluation);
  EXPECT_TRUE(reports[5].evaluation);
  EXPECT_EQ(reports[5].step, 4u);

  TwoDevicesReference reference;
  double norm, expected = 0;
  float x[20];
  auto fill = [&](int batch) {
    for (int e = 0; e < 20; ++e)
      x[e] = NumberedData::element(batch * 5 + e / 4, e % 4);
  };
  for (int step = 0; step < 2; ++step) {
    fill(step);
    reference.step(x, 0.5, 0, norm);
  }
  for (int batch = 0; batch < 3; ++batch) {
    fill(batch);
    expected += reference.step(x, 0, 0, norm, true) / 3;
  }
  EXPECT_NEAR(reports[2].loss, expected, 1e-4);
  reports.erase(reports.begin() + 5);
  reports.erase(reports.begin() + 2);
  expectTrained(reports, *executor, 0);
}

TEST_F(ExecutorTest, GradientsAndLossRowsAreCaught) {
  GradientDump gradients(two.bundle);
  LossRows rows(two.bundle);
  ExecutorOptions options;
  options.beforeCall = [&](const ObservedCall &call) {
    if (call.step == 0) {
      gradients.observe(call);
      rows.observe(call);
    }
  };
  auto executor = make(options);
  ASSERT_TRUE(executor);
  std::vector<StepReport> reports;
  TrainingRun run = training(2, reports);
  run.options.set_clip_norm(0.1);
  ASSERT_FALSE(train(*executor, two.bundle, run).failed());
  ASSERT_FALSE(gradients.write(directory.path("g.safetensors")).failed());
  ASSERT_FALSE(rows.write(directory.path("rows.json")).failed());
  auto file = SafetensorsFile::open(directory.path("g.safetensors"));
  ASSERT_FALSE(file.failed());
  const auto *g = reinterpret_cast<const float *>(file->tensors().at("w").data);
  double norm = 0;
  for (int j = 0; j < 4; ++j) {
    float expected = 0;
    for (int row = 0; row < 5; ++row)
      expected += 2 * NumberedData::element(row, j) / 5;
    EXPECT_NEAR(g[j], expected, 1e-5);
    norm += expected * expected;
  }
  EXPECT_NEAR(reports[0].gradientNorm, std::sqrt(norm), 1e-5);
  std::string text = directory.read("rows.json");
  std::vector<double> losses;
  for (const char *at = text.c_str(); *at;) {
    char *end;
    double value = std::strtod(at, &end);
    if (end != at)
      losses.push_back(value);
    at = end == at ? at + 1 : end;
  }
  ASSERT_EQ(losses.size(), 5u);
  for (int row = 0; row < 5; ++row) {
    double expected = 0;
    for (int j = 0; j < 4; ++j)
      expected += 2 * NumberedData::element(row, j) * (j + 1);
    EXPECT_NEAR(losses[row], expected, 1e-4);
  }
}

TEST_F(ExecutorTest, AFactorThatIsNotFiniteSkipsTheUpdate) {
  two.bundle.summary.mutable_loss(0)->set_factor("1/(0*B)");
  auto executor = make();
  ASSERT_TRUE(executor);
  std::vector<StepReport> reports;
  ASSERT_FALSE(train(*executor, two.bundle, training(2, reports)).failed());
  EXPECT_TRUE(reports[0].skipped && reports[1].skipped);
  EXPECT_TRUE(std::isnan(reports[0].loss));
  ASSERT_FALSE(saveWeights(*executor, two.bundle, directory.path("c.safetensors")).failed());
  auto file = SafetensorsFile::open(directory.path("c.safetensors"));
  const auto *w = reinterpret_cast<const float *>(file->tensors().at("w").data);
  for (int j = 0; j < 4; ++j)
    EXPECT_EQ(w[j], float(j + 1));
}

TEST_F(ExecutorTest, ACheckpointIsTheNextInitialState) {
  auto executor = make();
  std::vector<StepReport> reports;
  ASSERT_FALSE(train(*executor, two.bundle, training(3, reports)).failed());
  std::string path = directory.path("c.safetensors"), again = directory.path("d.safetensors");
  ASSERT_FALSE(saveWeights(*executor, two.bundle, path).failed());
  auto second = make();
  ASSERT_FALSE(loadState(*second, two.bundle, path).failed());
  ASSERT_FALSE(saveWeights(*second, two.bundle, again).failed());
  EXPECT_EQ(directory.read("c.safetensors"), directory.read("d.safetensors"));

  ASSERT_FALSE(
      writeSafetensors(path,
                       {{"v", StoredType::F32, {4}, [](std::byte *to) { std::memset(to, 0, 16); }}})
          .failed());
  EXPECT_NE(
      loadState(*second, two.bundle, path).message().find("1 parameter of the model missing: 'w'"),
      std::string::npos);
  ASSERT_FALSE(
      writeSafetensors(
          path, {{"w", StoredType::F32, {2, 2}, [](std::byte *to) { std::memset(to, 0, 16); }}})
          .failed());
  EXPECT_NE(loadState(*second, two.bundle, path).message().find("expects shape 4, got 2x2"),
            std::string::npos);
}

TEST_F(ExecutorTest, WeightsThatDoNotFitAreNamed) {
  auto executor = make();
  auto problem = [&] {
    Status status = loadState(*executor, two.bundle, "");
    return status.failed() ? status.message() : std::string("accepted");
  };
  WeightSource &w = two.bundle.weights[0];
  WeightSource good = w;
  w.offset = 16;
  EXPECT_NE(problem().find("lie outside"), std::string::npos);
  w = good, w.bytes = 12;
  EXPECT_NE(problem().find("has 12 bytes of f32, its shape 4 needs 4 elements"), std::string::npos);
  w = good, w.type = "q4";
  EXPECT_NE(problem().find("unknown type 'q4'"), std::string::npos);
  w = good, w.permutation = {1};
  EXPECT_NE(problem().find("permutation"), std::string::npos);
  w = good, w.file = "/nonexistent/model.data";
  EXPECT_NE(problem().find("--load-weights"), std::string::npos);
  w = good, w.type = "f16", w.bytes = 8;
  EXPECT_EQ(problem(), "accepted");
}

TEST_F(ExecutorTest, StateIsStillUntilItIsReleased) {
  // Reads parameters some time after each step, while the next step runs. They must equal the
  // parameters at the end of the step in a run without a reader.
  struct Reader : StateObserver {
    void onStateQuiescent(uint32_t device, uint64_t step) override {
      std::lock_guard<std::mutex> lock(mutex);
      threads.emplace_back([this, device, step] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::string bytes;
        for (const bundle::PersistentState &state : bundle->programs[device].state())
          bytes += bytesAt(*executor, device, state.region());
        {
          std::lock_guard<std::mutex> inside(mutex);
          states[{step, device}] = bytes;
        }
        executor->releaseState(device);
      });
    }
    std::mutex mutex;
    const Bundle *bundle = nullptr;
    Executor *executor = nullptr;
    std::vector<std::thread> threads;
    std::map<std::pair<uint64_t, uint32_t>, std::string> states;
  } reader;
  auto executor = make();
  reader.bundle = &two.bundle;
  reader.executor = executor.get();
  std::vector<StepReport> reports;
  TrainingRun run = training(6, reports);
  run.stateObserver = [&](uint64_t step, bool) { return step % 2 == 0 ? &reader : nullptr; };
  Result<TrainingEnd> end = train(*executor, two.bundle, run);
  for (std::thread &thread : reader.threads)
    thread.join();
  ASSERT_FALSE(end.failed()) << end.message();
  ASSERT_EQ(reader.states.size(), 6u);
  for (uint64_t step : {2, 4, 6}) {
    auto alone = make();
    ASSERT_FALSE(train(*alone, two.bundle, training(step, reports)).failed());
    for (uint32_t device = 0; device < 2; ++device) {
      std::string bytes;
      for (const bundle::PersistentState &state : two.bundle.programs[device].state())
        bytes += bytesAt(*alone, device, state.region());
      EXPECT_EQ(bytes, (reader.states[{step, device}])) << "step " << step << ", device " << device;
    }
  }
}

TEST_F(ExecutorTest, TwoExecutorsOfOneDeviceEachTrainAsOneOfBoth) {
  // Like two processes: each has a separate program, separate data and a transport to the other.
  std::vector<StepReport> together, reports[2];
  auto whole = make();
  ASSERT_FALSE(train(*whole, two.bundle, training(5, together)).failed());
  auto devices = makeDevices();
  auto transports = makeLocalTransports(2);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Executor>> executors(2);
  for (uint32_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      std::vector<LocalDevice> locals;
      locals.push_back({i, withThreads(std::move(devices[i])), std::move(transports[i])});
      ExecutorOptions options;
      options.watchdogTimeoutSeconds = 0;
      auto executor = Executor::create(two.bundle, std::move(locals), options);
      ASSERT_FALSE(executor.failed()) << executor.message();
      executors[i] = std::move(*executor);
      ASSERT_FALSE(loadState(*executors[i], two.bundle, "").failed());
      EXPECT_EQ(executors[i]->devices(), std::vector<uint32_t>{i});
      Result<TrainingEnd> end = train(*executors[i], two.bundle, training(5, reports[i]));
      EXPECT_FALSE(end.failed()) << end.message();
    });
  for (std::thread &thread : threads)
    thread.join();
  // Only one of them has the report.
  std::vector<StepReport> &shown = reports[0].empty() ? reports[1] : reports[0];
  EXPECT_TRUE(reports[0].empty() || reports[1].empty());
  ASSERT_EQ(shown.size(), together.size());
  for (size_t i = 0; i < shown.size(); ++i)
    EXPECT_EQ(shown[i].loss, together[i].loss);
}

TEST_F(ExecutorTest, AStoppedRunEndsAfterWhatItHasEntered) {
  auto stopCoordinator = makeLocalStopCoordinator();
  auto executor = make();
  std::vector<StepReport> reports;
  TrainingRun run = training(1000, reports);
  run.stopCoordinator = stopCoordinator.get();
  run.report = [&](const StepReport &report) {
    reports.push_back(report);
    if (report.step == 3)
      stopCoordinator->requestStop();
  };
  Result<TrainingEnd> end = train(*executor, two.bundle, run);
  ASSERT_FALSE(end.failed()) << end.message();
  EXPECT_EQ(end->lastStep, reports.back().step);
  EXPECT_GE(end->lastStep, 3u);
  EXPECT_LE(end->lastStep, 5u);
}

TEST_F(ExecutorTest, TheTraceHasEveryEntryOfTheStepsAskedFor) {
  ExecutorOptions options;
  options.trace = true;
  options.traceSteps = 2;
  auto executor = make(options);
  std::vector<StepReport> reports;
  ASSERT_FALSE(train(*executor, two.bundle, training(3, reports)).failed());
  std::vector<TraceEvent> events = executor->takeTrace();
  size_t instructions = two.bundle.programs[0].instructions_size() +
                        two.bundle.programs[1].instructions_size();
  EXPECT_EQ(events.size(), 2 * instructions);
  for (const TraceEvent &event : events)
    EXPECT_LE(event.begin, event.end);
  ASSERT_FALSE(writeTrace(directory.path("trace.json"), two.bundle, events).failed());
  std::string text = directory.read("trace.json");
  for (const char *word : {"device alpha", "collective", "\"F(cell 1, units 1-2, samples 0-3)\"",
                           "send to beta", "reduction of group g"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
}

TEST_F(ExecutorTest, RunsAreBitEqual) {
  std::vector<StepReport> first, second;
  for (std::vector<StepReport> *reports : {&first, &second}) {
    auto executor = make();
    ASSERT_FALSE(train(*executor, two.bundle, training(20, *reports)).failed());
  }
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].loss, second[i].loss);
    EXPECT_EQ(first[i].gradientNorm, second[i].gradientNorm);
  }
}

} // namespace
