// Estimates about memory before any simulation: whether many devices recompute, and the time of a
// pipeline whose memory limits the samples in flight.

#include "Search/Candidates.h"

#include "SearchSetup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Initial solutions with one estimate.
std::vector<Candidate> estimated(double estimate, double unlimited) {
  Candidate candidate;
  candidate.estimate = estimate;
  candidate.unlimitedEstimate = unlimited;
  return {candidate};
}

bool recomputes(Setup &setup, const std::vector<Candidate> &solutions,
                const SearchOptions &options = {}) {
  SearchContext context(*setup.problem, options);
  const std::optional<Problem> eased = withRecomputation(context, solutions);
  if (eased) {
    EXPECT_EQ(eased->memoryOptimizations.defaultOptimization.activations,
              step::Activations::Recompute);
    EXPECT_EQ(eased->memoryOptimizations.defaultOptimization.state, StateOffload::None);
  }
  return eased.has_value();
}

/// Many devices recompute if memory costs more than the recomputation, and estimates with it are
/// better.
TEST(MemoryEstimates, ManyDevicesRecompute) {
  auto many = setUp(std::vector<double>(257, 80), 1, 4, 512);
  // The estimate with recomputation is between these.
  constexpr double kLong = 1e6, kShort = 1e-9;
  EXPECT_TRUE(recomputes(*many, estimated(kLong, kLong / 1.3)));
  EXPECT_FALSE(recomputes(*many, estimated(kLong, kLong / 1.1))) << "recomputing costs a fifth";
  EXPECT_FALSE(recomputes(*many, estimated(kShort, kShort / 1.3))) << "it would be slower";
  EXPECT_FALSE(recomputes(*many, {}));
  std::vector<Candidate> two = estimated(kLong, kLong / 1.3);
  two.push_back(estimated(kShort, kShort)[0]);
  EXPECT_FALSE(recomputes(*many, two)) << "the best solution counts";

  SearchOptions without;
  without.memoryOptimizations = false;
  EXPECT_FALSE(recomputes(*many, estimated(kLong, kLong / 1.3), without));
  many->problem->memoryOptimizations.defaultOptimization.state = StateOffload::AllStates;
  EXPECT_FALSE(recomputes(*many, estimated(kLong, kLong / 1.3))) << "the user has chosen";
}

/// For few devices, whole searches with memory optimizations decide.
TEST(MemoryEstimates, FewDevicesDoNot) {
  auto few = setUp(std::vector<double>(SearchEffort::kMaxFewDevices, 80), 1, 4, 512);
  EXPECT_FALSE(recomputes(*few, estimated(1e6, 1e6 / 1.3)));
}

/// Missing memory of many devices counts as that of few.
TEST(MemoryEstimates, MissingMemoryOfMany) {
  constexpr uint64_t kCapacity = 1 << 20;
  auto missing = [](size_t devices) {
    auto made = setUp(std::vector<double>(devices, 80), 1, 2, 8, kCapacity);
    SearchContext context(*made->problem, {});
    return context.missingMemory(std::vector<uint64_t>(devices, kCapacity * 3 / 2));
  };
  EXPECT_NEAR(missing(16), 8, 1e-9);
  EXPECT_NEAR(missing(256), 128, 1e-9);
  EXPECT_NEAR(missing(512), 128, 1e-9);
}

/// Two stages of one device each, with memory for a number of samples of the first.
struct TwoStages {
  std::unique_ptr<Setup> setup;
  double time, timeInMemory, latency;
  int32_t cut;
};

TwoStages twoStages(uint64_t memory) {
  TwoStages made{setUp({80, 80}, 1, 8, 64, memory), 0, 0, 0, -1};
  SearchContext context(*made.setup->problem, {});
  StagePartitioner partitioner(context.model);
  PartitionOptions options;
  options.samples = 64;
  options.mayLeaveOut = false;
  options.waits = false;
  options.maxRows = 0;  // one sample in a cell
  options.inFlight = 0; // memory for one cell is enough
  const Partition found = partitioner.solve({{{0}}, {{1}}}, options);
  if (found.stages.size() == 2)
    made.cut = found.stages[0].unitEnd;
  made.time = found.time;
  made.timeInMemory = found.timeInMemory;
  made.latency = found.latency;
  return made;
}

/// Little's law: with memory for n samples in flight, one leaves every n-th of a sample's latency.
TEST(MemoryEstimates, MemoryForFewSamplesInFlight) {
  const TwoStages free = twoStages(0);
  ASSERT_GE(free.cut, 0);
  EXPECT_EQ(free.timeInMemory, free.time);
  std::vector<double> times; // with memory for 1, 2, ... samples, for the same cut
  uint64_t memory = 32 << 20;
  for (; memory < (uint64_t(4) << 30); memory += 1 << 20) {
    const TwoStages tight = twoStages(memory);
    if (tight.cut != free.cut)
      continue;
    EXPECT_EQ(tight.time, free.time);
    if (tight.timeInMemory == tight.time)
      break;
    if (times.empty() || tight.timeInMemory < times.back() * (1 - 1e-9))
      times.push_back(tight.timeInMemory);
  }
  ASSERT_EQ(times.size(), 2u);
  EXPECT_NEAR(times[1], times[0] / 2, 0.001 * times[0]);
  const double alone = 64 * free.latency; // without what others need not wait for
  EXPECT_GT(times[0], alone);
  EXPECT_LT(times[0], 1.3 * alone);
}

} // namespace
