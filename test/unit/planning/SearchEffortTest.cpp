// Checks each number in the table of search limits: a change of a number changes plans.

#include "Search/SearchEffort.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

using namespace zorse::planning;

namespace {

constexpr std::array<size_t, 10> kSizes = {1, 2, 8, 16, 32, 64, 128, 256, 512, 1024};

/// Limits for a number of devices: SearchEffort::forDevices or forRepair.
using Limits = SearchEffort (*)(size_t devices, int64_t units, int64_t samples);

/// Expects that a field has these values, one for each of kSizes.
template <typename T>
void expect(Limits limits, const char *name, T SearchEffort::*field,
            const std::array<T, 10> &values) {
  for (size_t i = 0; i < kSizes.size(); ++i)
    EXPECT_EQ(limits(kSizes[i], 1 << 20, 1 << 20).*field, values[i])
        << name << " for " << kSizes[i] << " devices";
}
#define EXPECT_FIELD(field, ...)                                                                   \
  expect(SearchEffort::forDevices, #field, &SearchEffort::field, {__VA_ARGS__})
#define EXPECT_REPAIR(field, ...)                                                                  \
  expect(SearchEffort::forRepair, #field, &SearchEffort::field, {__VA_ARGS__})

constexpr bool Y = true, N = false;

TEST(SearchEffort, NumbersByDevices) {
  constexpr size_t all = SIZE_MAX;
  EXPECT_FIELD(work, 8e6, 8e6, 8e6, 8e6, 8e6, 8e6, 8e6, 8e6, 1e6, 2e6);
  EXPECT_FIELD(descentWork, 3.6e6, 3.6e6, 3.6e6, 3.6e6, 5e6, 5e6, 0, 0, 0, 0);
  EXPECT_FIELD(boundaryVariants, 1, 4, 4, 4, 4, 4, 4, 4, 1, 1);
  EXPECT_FIELD(everySchedule, Y, Y, Y, Y, N, N, N, N, N, N);

  EXPECT_FIELD(seedOrders, 24, 24, 24, 24, 24, 24, 24, 6, 6, 6);
  EXPECT_FIELD(copyOrders, 6, 6, 6, 6, 6, 6, 6, 2, 2, 2);
  EXPECT_FIELD(everyCopies, Y, Y, Y, Y, Y, Y, Y, N, N, N);
  EXPECT_FIELD(uniformStages, N, N, N, N, N, N, N, N, Y, Y);
  EXPECT_FIELD(bothSides, Y, Y, Y, Y, Y, Y, Y, N, N, N);
  EXPECT_FIELD(seedRows, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2);
  EXPECT_FIELD(piecesWithin, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY,
               INFINITY, 1.1, 1.1);
  EXPECT_FIELD(singlePieces, Y, Y, Y, Y, Y, Y, Y, Y, N, N);
  EXPECT_FIELD(roughFirst, N, N, N, N, Y, Y, Y, Y, Y, Y);
  EXPECT_FIELD(seedsAgain, 24, 24, 24, 24, 24, 16, 16, 0, 0, 0);
  using Assumptions = SearchEffort::Assumptions;
  constexpr Assumptions few = Assumptions::Few, either = Assumptions::Either,
                        both = Assumptions::Both;
  EXPECT_FIELD(assumptions, both, both, both, both, either, few, few, few, few, few);
  EXPECT_FIELD(seedsInParts, all, all, all, all, all, 6, 0, 0, 0, 0);

  EXPECT_FIELD(subclusters, 48, 48, 48, 48, 24, 24, 16, 16, 2, 2);
  EXPECT_FIELD(laterSubclusters, 24, 24, 24, 24, 12, 12, 8, 8, 1, 1);
  EXPECT_FIELD(seedsOfEach, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1);
  EXPECT_FIELD(lessOne, Y, Y, Y, Y, N, N, N, N, N, N);
  EXPECT_FIELD(wholeStages, Y, Y, Y, Y, Y, Y, N, N, N, N);

  EXPECT_FIELD(minInitialSolutions, 8, 8, 8, 8, 8, 8, 8, 8, 24, 24);
  EXPECT_FIELD(minLeaders, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2);

  EXPECT_FIELD(simulatedAtOnce, 16, 16, 16, 16, 16, 16, 16, 16, 4, 4);
  EXPECT_FIELD(seedWork, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY,
               INFINITY, INFINITY, INFINITY);
  EXPECT_FIELD(scheduleWork, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY,
               INFINITY, 1.5e6, 1.5e6);
  EXPECT_FIELD(onePerEstimate, N, N, N, N, N, N, N, N, Y, Y);
  EXPECT_FIELD(seedsPart, 4, 4, 4, 4, 4, 4, 4, 4, 8, 8);
  EXPECT_FIELD(maxStarts, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2);
  EXPECT_FIELD(maxCopies, 16, 16, 16, 16, 16, 16, 16, 40, 40, 40);
  EXPECT_FIELD(patience, 60, 60, 200, 200, 200, 200, 200, 200, 200, 200);
  EXPECT_FIELD(adaptsMoves, N, N, N, N, Y, Y, Y, Y, Y, Y);
  EXPECT_FIELD(wholeGroups, 25, 25, 25, 25, 25, 60, 60, 60, 60, 60);

  EXPECT_FIELD(maxDescents, 20000, 20000, 20000, 20000, 20000, 20000, 20000, 20000, 20000, 20000);
  EXPECT_FIELD(bestNeighbour, Y, Y, Y, Y, N, N, N, N, N, N);
  EXPECT_FIELD(descentPatience, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3);
  EXPECT_FIELD(deviceMemoryOptimizations, Y, Y, Y, Y, N, N, N, N, N, N);

  EXPECT_FIELD(judged, 4, 4, 4, 4, 4, 4, 4, 4, 1, 1);
  EXPECT_FIELD(judgesReplicas, N, N, N, N, N, N, N, N, Y, Y);
  EXPECT_FIELD(placesFirst, Y, Y, Y, Y, Y, Y, N, N, N, N);
  EXPECT_FIELD(placesFull, N, N, N, N, N, N, N, N, Y, Y);
  EXPECT_FIELD(fragmentationDivisor, 50, 50, 50, 50, 50, 50, 50, 50, 20, 20);

  EXPECT_FIELD(searchesWithOptimizations, Y, Y, Y, Y, Y, Y, Y, Y, N, N);
  EXPECT_FIELD(estimatesRecomputation, N, N, N, N, N, N, N, N, Y, Y);
  EXPECT_FIELD(relievedStages, 0, 0, 0, 0, 0, 0, 32, 32, 32, 32);
  EXPECT_FIELD(pricedParts, 24, 24, 24, 24, 24, 24, 24, 24, 8, 8);

  EXPECT_FIELD(copiedTries, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
  EXPECT_FIELD(shortInitialSolutions, 24, 24, 24, 24, 6, 6, 6, 6, 6, 6);
  EXPECT_FIELD(shortPieces, Y, Y, Y, Y, N, N, N, N, N, N);
  EXPECT_FIELD(addedDevices, 4, 8, 32, 64, 128, 256, 256, 256, 256, 256);
  EXPECT_FIELD(triesPhases, Y, Y, Y, Y, N, N, N, N, N, N);
}

/// The cluster sizes at which the numbers change.
TEST(SearchEffort, Borders) {
  auto of = [](size_t devices) { return SearchEffort::forDevices(devices); };
  EXPECT_EQ(of(6).patience, 60u);
  EXPECT_EQ(of(7).patience, 200u);
  EXPECT_TRUE(of(16).bestNeighbour && of(16).triesPhases && !of(16).adaptsMoves);
  EXPECT_FALSE(of(17).bestNeighbour || of(17).triesPhases || !of(17).adaptsMoves);
  EXPECT_EQ(of(256).work, 8e6);
  EXPECT_EQ(of(33).seedsAgain, 16u);
  EXPECT_EQ(of(33).assumptions, SearchEffort::Assumptions::Few);
  EXPECT_EQ(of(48).wholeGroups, 25);
  EXPECT_EQ(of(49).wholeGroups, 60);
  EXPECT_EQ(of(65).descentWork, 0);
  EXPECT_EQ(of(65).subclusters, 16u);
  EXPECT_EQ(of(129).seedOrders, 6u);
  EXPECT_EQ(of(129).seedsAgain, 0u);
  EXPECT_EQ(of(257).boundaryVariants, 1);
  EXPECT_EQ(of(257).judged, 1u);
  EXPECT_EQ(of(257).work, 1e6 * 257 / 512);
  EXPECT_TRUE(of(256).searchesWithOptimizations && !of(256).estimatesRecomputation);
  EXPECT_TRUE(!of(257).searchesWithOptimizations && of(257).estimatesRecomputation);
  EXPECT_EQ(of(513).copiedTries, 1u);
  EXPECT_TRUE(of(257).onePerEstimate && of(257).uniformStages);
  EXPECT_EQ(of(1025).seedWork, 2e6);
  EXPECT_EQ(of(1025).simulatedAtOnce, 2u);
  EXPECT_EQ(of(1025).maxStarts, 0u);
  EXPECT_EQ(of(1025).minInitialSolutions, 6u);
  EXPECT_EQ(of(1025).minLeaders, 1u);
  EXPECT_EQ(of(1025).addedDevices, 0u);
}

TEST(SearchEffort, Repairs) {
  EXPECT_REPAIR(work, 1.6e6, 1.6e6, 1.6e6, 1.6e6, 1.6e6, 1.6e6, 8e5, 3e5, 1e5, 1e5);
  EXPECT_REPAIR(minBudget, 16, 16, 16, 16, 16, 16, 16, 16, 4, 4);
  EXPECT_REPAIR(descentWork, 4e5, 4e5, 4e5, 4e5, 0, 0, 0, 0, 0, 0);
  EXPECT_REPAIR(seedWork, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e5, 1e5);
  EXPECT_REPAIR(scheduleWork, 3e5, 3e5, 3e5, 3e5, 3e5, 3e5, 3e5, 3e5, 5e4, 5e4);
  EXPECT_REPAIR(simulatedAtOnce, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2);
  EXPECT_REPAIR(thoroughSeeds, Y, Y, Y, Y, Y, Y, Y, Y, N, N);
  EXPECT_REPAIR(uniformStages, N, N, N, N, N, N, N, N, N, N);
  EXPECT_REPAIR(onePerEstimate, N, N, N, N, N, N, N, N, N, N);
  EXPECT_REPAIR(seedOrders, 6, 6, 6, 6, 6, 6, 6, 6, 2, 2);
  EXPECT_REPAIR(copyOrders, 2, 2, 2, 2, 2, 2, 2, 6, 1, 1);
  EXPECT_REPAIR(roughFirst, Y, Y, Y, Y, Y, Y, Y, Y, Y, Y);
  EXPECT_REPAIR(singlePieces, Y, Y, Y, Y, Y, Y, N, N, N, N);
  EXPECT_REPAIR(seedsInPieces, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3);
  EXPECT_REPAIR(seedsAgain, 6, 6, 6, 6, 6, 6, 12, 6, 0, 0);
  EXPECT_REPAIR(subclusters, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  EXPECT_REPAIR(laterSubclusters, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  EXPECT_REPAIR(minInitialSolutions, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40);
  EXPECT_REPAIR(maxLeaders, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2);
  EXPECT_REPAIR(maxStarts, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2);
  EXPECT_REPAIR(repairs, 32, 32, 32, 32, 32, 32, 32, 32, 8, 8);
  EXPECT_REPAIR(easedSolutions, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1);
  EXPECT_REPAIR(repairsCompared, 4, 4, 4, 4, 4, 4, 4, 2, 1, 1);
  EXPECT_REPAIR(judged, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1);
  EXPECT_REPAIR(judgedBesides, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4);
  EXPECT_REPAIR(judgesReplicas, Y, Y, Y, Y, Y, Y, Y, Y, Y, Y);
  EXPECT_REPAIR(placesFirst, N, N, N, N, N, N, N, N, N, N);
  EXPECT_REPAIR(placesFull, Y, Y, Y, Y, Y, Y, Y, Y, Y, Y);
  EXPECT_REPAIR(searchesWithOptimizations, N, N, N, N, N, N, N, N, N, N);
  EXPECT_REPAIR(shortInitialSolutions, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3);
  EXPECT_REPAIR(shortPieces, N, N, N, N, N, N, N, N, N, N);
}

/// With up to six devices, the limits also depend on units and samples.
TEST(SearchEffort, SmallProblems) {
  auto of = [](size_t devices, int64_t units, int64_t samples) {
    return SearchEffort::forDevices(devices, units, samples);
  };
  EXPECT_FALSE(of(1, 1, 17).everyRow || of(7, 1, 1).everyRow ||
               SearchEffort::forDevices(1).everyRow);
  EXPECT_TRUE(of(6, 100, 16).everyRow);
  EXPECT_FALSE(of(6, 11, 16).small || of(6, 10, 17).small || of(7, 10, 16).small ||
               SearchEffort::forDevices(1).small);
  EXPECT_FALSE(of(6, 4, 5).everyTile || of(7, 4, 4).everyTile ||
               SearchEffort::forDevices(1).everyTile);
  EXPECT_TRUE(of(6, 4, 4).everyTile && of(6, 16, 1).everyTile);
  const SearchEffort small = of(6, 10, 16);
  EXPECT_TRUE(small.small);
  EXPECT_EQ(small.descentWork, 1.2e7);
  EXPECT_EQ(small.maxDescents, 40000u);
  EXPECT_EQ(small.descentPatience, 12u);
  EXPECT_EQ(small.judged, 12u);
  EXPECT_EQ(small.fragmentationDivisor, 0u);
}

/// Walks and descents keep their proportion, and together take the seconds.
TEST(SearchEffort, LimitedToSeconds) {
  const SearchEffort before = SearchEffort::forDevices(20);
  SearchEffort effort = before;
  effort.limitTo(8);
  EXPECT_DOUBLE_EQ(effort.work + effort.descentWork, 8 * SearchEffort::kWorkPerSecond);
  EXPECT_DOUBLE_EQ(effort.work / effort.descentWork, before.work / before.descentWork);
  EXPECT_GT(effort.maxBudget, before.maxBudget);
  EXPECT_GT(effort.maxDescents, before.maxDescents);
  effort.limitTo(1e-9);
  EXPECT_EQ(effort.maxBudget, before.minBudget);
  EXPECT_EQ(effort.budgetFor(1), before.minBudget);
}

TEST(SearchEffort, NumbersOfEveryProblem) {
  const SearchEffort effort = SearchEffort::forDevices(20);
  const std::array<size_t, 22> sizes = {
      effort.seedsPart,        effort.laterPart,      effort.maxCopies,       effort.seedsInPieces,
      effort.seedsAgainOfKind, effort.singles,        effort.maxLeaders,      effort.maxStarts,
      effort.movesAtOnce,      effort.attempts,       effort.hillClimbStarts, effort.sharingStarts,
      effort.stagesStarts,     effort.keptStarts,     effort.kicks,           effort.dividedMax,
      effort.maxPipelines,     effort.judgedBesides,  effort.judgedMore,      effort.judgeRounds,
      effort.phasesRefined,    effort.simulatedAtOnce};
  EXPECT_EQ(sizes, (std::array<size_t, 22>{4, 8, 16, 3, 2, 64, 12, 8, 16, 6,  8,
                                           4, 4, 4,  4, 6, 3,  20, 3, 12, 12, 16}));
  EXPECT_EQ(SearchEffort::kMaxFewDevices, 256u);
  EXPECT_EQ(effort.maxRows, 256);
  EXPECT_EQ(std::pair(effort.minBudget, effort.maxBudget), std::pair(16u, 6000u));
  EXPECT_EQ(std::pair(effort.copiedMin, effort.copiedMax), std::pair(size_t(128), size_t(512)));
  EXPECT_EQ(effort.copiedCandidates, 24u);
  EXPECT_EQ(effort.phaseHintWork, 6e5);
  EXPECT_EQ(std::pair(effort.phaseWork, effort.phaseRowWork), std::pair(5e6, 1.2e6));
  EXPECT_EQ(std::pair(effort.phaseDescentWork, effort.phaseDescents), std::pair(3e6, 1000.0));
  EXPECT_EQ(effort.pricedCounted, 65536u);
  EXPECT_EQ(std::pair(effort.pricedSearched, effort.pricedWithin), std::pair(size_t(3), 1.15));
  EXPECT_EQ(std::pair(effort.pricedSmall, effort.pricedFew), std::pair(size_t(4), size_t(2)));
}

TEST(SearchEffort, BudgetsAndWalks) {
  const SearchEffort effort = SearchEffort::forDevices(64);
  EXPECT_EQ(effort.budgetFor(1e9), 16u);
  EXPECT_EQ(effort.budgetFor(8e3), 1000u);
  EXPECT_EQ(effort.budgetFor(1), 6000u);
  EXPECT_EQ(effort.walksFor(99), 2u);
  EXPECT_EQ(effort.walksFor(100), 4u);
  EXPECT_EQ(effort.walksFor(399), 4u);
  EXPECT_EQ(effort.walksFor(400), 8u);
}

TEST(SearchEffort, PiecesOfPipelines) {
  using Sizes = std::vector<size_t>;
  struct Case {
    size_t devices;
    Sizes atoms, finer;
    uint32_t maxInStage;
  };
  const Case cases[] = {{1, {1, 2, 4}, {}, UINT32_MAX},
                        {32, {1, 2, 4}, {}, UINT32_MAX},
                        {33, {4}, {1, 2}, 8},
                        {64, {4}, {1, 2}, 16},
                        {65, {4}, {1, 2, 8}, 16},
                        {128, {4}, {1, 2, 8}, 32},
                        {129, {8}, {}, 32},
                        {256, {8}, {}, 64},
                        {512, {16}, {}, 128},
                        {1024, {32}, {}, 256}};
  for (const Case &of : cases) {
    const SearchEffort::Pieces pieces = SearchEffort::forDevices(256).piecesOf(of.devices);
    EXPECT_EQ(pieces.deviceSets, of.atoms) << of.devices;
    EXPECT_EQ(pieces.finer, of.finer) << of.devices;
    EXPECT_EQ(pieces.maxInStage, of.maxInStage) << of.devices;
  }
  // With more than 256 devices, atoms have more than one device.
  EXPECT_EQ(SearchEffort::forDevices(257).piecesOf(64).finer, Sizes({2}));
  EXPECT_EQ(SearchEffort::forDevices(257).piecesOf(128).finer, Sizes({2, 8}));
  EXPECT_EQ(SearchEffort::forDevices(257).piecesOf(32).finer, Sizes());
}

TEST(SearchEffort, Cuts) {
  EXPECT_EQ(CutEffort::kMixed, 16u);
  EXPECT_EQ(CutEffort::kStrides, 60);
  for (size_t atoms = 1; atoms <= 100; ++atoms) {
    const bool every = atoms <= 16 || (atoms <= 32 ? atoms % 2 == 0 : atoms % 4 == 0);
    EXPECT_EQ(CutEffort::passesOver(atoms, false), !every) << atoms;
    EXPECT_EQ(CutEffort::passesOver(atoms, true), !every || (atoms > 8 && atoms % 2 != 0)) << atoms;
  }
}

} // namespace
