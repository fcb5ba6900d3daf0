#include "SearchEffort.h"

#include "../Layout/StrategySimulator.h"

#include <algorithm>
#include <cmath>

using namespace zorse::planning;

SearchEffort SearchEffort::forDevices(size_t devices, int64_t units, int64_t samples) {
  const size_t n = devices;
  const bool few = n <= 6;
  SearchEffort effort;
  effort.everyRow = few && samples <= 16;
  effort.small = few && samples <= 16 && units <= 10;
  effort.everyTile = few && units * samples <= 16;
  // Planning must take about 3 s for 16 devices, 1 s for 512 and 10 s for 4,096 (claim
  // planning_is_quick). For many devices, most of that time is not counted here.
  effort.work = n <= 256 ? 8e6 : 1e6 * static_cast<double>(n) / 512;
  effort.boundaryVariants = n >= 2 && n <= 256 ? 4 : 1;
  effort.everySchedule = n <= 16;

  effort.seedOrders = n <= 128 ? 24 : 6;
  effort.copyOrders = n <= 128 ? 6 : 2;
  effort.maxCopies = n <= 128 ? 16 : 40;
  effort.everyCopies = n <= 128;
  effort.uniformStages = n > 256 && n <= 1024;
  effort.bothSides = n <= 128;
  effort.seedRows = n <= 128 ? 0 : 2;
  effort.piecesWithin = n <= 256 ? INFINITY : 1.1;
  effort.singlePieces = n <= 256;
  effort.seedsPart = n <= 256 ? 4 : 8;
  effort.roughFirst = n > 16;
  effort.seedsAgain = n <= 32 ? 24 : n <= 128 ? 16 : 0;
  effort.assumptions = n <= 16   ? Assumptions::Both
                       : n <= 32 ? Assumptions::Either
                                 : Assumptions::Few;
  effort.seedsInParts = n <= 32 ? SIZE_MAX : n <= 64 ? 6 : 0;

  effort.onePerEstimate = n > 256;

  effort.subclusters = n <= 16 ? 48 : n <= 64 ? 24 : n <= 256 ? 16 : 2;
  effort.laterSubclusters = (effort.subclusters + 1) / 2;
  effort.seedsOfEach = n <= 256 ? 2 : 1;
  effort.lessOne = n <= 16;
  effort.wholeStages = n <= 64;

  effort.copiedTries = n > 512 ? 1 : 0;

  effort.minInitialSolutions = n <= 256 ? 8 : n <= 1024 ? 24 : 6;
  effort.minLeaders = n <= 1024 ? 2 : 1;
  effort.simulatedAtOnce = n <= 256 ? 16 : n <= 1024 ? 4 : 2;
  effort.seedWork = n <= 1024 ? INFINITY : 2e6;
  effort.scheduleWork = n <= 256 ? INFINITY : 1.5e6;

  effort.maxStarts = n <= 256 ? 8 : n <= 1024 ? 2 : 0; // moves break the symmetry of pipelines
  effort.patience = few ? 60 : 200;
  effort.adaptsMoves = n > 16;
  effort.wholeGroups = n <= 48 ? 25 : 60;

  effort.descentWork = effort.small ? 1.2e7 : n <= 16 ? 3.6e6 : n <= 64 ? 5e6 : 0;
  effort.maxDescents = effort.small ? 40000 : 20000;
  effort.bestNeighbour = n <= 16;
  effort.descentPatience = effort.small ? 12 : 3;
  effort.deviceMemoryOptimizations = n <= 16;

  effort.judged = effort.small ? 12 : n <= 256 ? 4 : 1;
  effort.judgesReplicas = n > 256;
  effort.placesFirst = n <= 64;
  effort.placesFull = n > 256;
  effort.fragmentationDivisor = effort.small ? 0
                                : n <= 256   ? StrategySimulator::kFragmentationDivisor
                                             : 20;

  effort.searchesWithOptimizations = n <= kMaxFewDevices;
  effort.estimatesRecomputation = !effort.searchesWithOptimizations;
  effort.relievedStages = n <= 64 ? 0 : 32;
  effort.pricedParts = n <= 256 ? 24 : 8;

  effort.shortInitialSolutions = n <= 16 ? 24 : 6;
  effort.shortPieces = n <= 16;
  effort.addedDevices = n <= 1024 ? std::min<size_t>(4 * n, 256) : 0;
  effort.triesPhases = n <= 16;
  return effort;
}

SearchEffort SearchEffort::forRepair(size_t devices, int64_t units, int64_t samples) {
  const size_t n = devices;
  SearchEffort effort = forDevices(devices, units, samples);
  // About half a second on two cores; with many devices, a simulation costs more than its
  // instructions.
  effort.work = n <= 64 ? 1.6e6 : n <= 128 ? 8e5 : n <= 256 ? 3e5 : 1e5;
  effort.minBudget = n <= 256 ? 16 : 4;
  effort.descentWork = n <= 16 ? 4e5 : 0;
  effort.seedWork = n <= 256 ? 1e6 : 1e5;
  effort.scheduleWork = n <= 256 ? 3e5 : 5e4;
  effort.simulatedAtOnce = n <= 256 ? 4 : 2;

  // Partitions are quicker than simulations, unless atoms are single devices.
  effort.thoroughSeeds = n <= 256;
  effort.uniformStages = false;
  effort.onePerEstimate = n > 1024;
  effort.seedOrders = n <= 256 ? 6 : 2;
  effort.copyOrders = n <= 128 ? 2 : n <= 256 ? 6 : 1;
  effort.roughFirst = true;
  effort.singlePieces = n <= 64;
  effort.seedsInPieces = n <= 64 ? 1 : 3;
  effort.seedsAgain = n <= 64 ? 6 : n <= 128 ? 12 : n <= 256 ? 6 : 0;
  effort.assumptions = Assumptions::Few;
  effort.subclusters = effort.laterSubclusters = 0;
  effort.minInitialSolutions = 40;
  effort.maxLeaders = 2;
  effort.maxStarts = n <= 256 ? 4 : 2;
  effort.repairs = n <= 256 ? 32 : 8;
  effort.easedSolutions = n <= 256 ? 3 : 1;
  effort.repairsCompared = n <= 128 ? 4 : n <= 256 ? 2 : 1;

  // Buffers are placed only where that decides whether a plan fits.
  effort.judged = n <= 256 ? 2 : 1;
  effort.judgedBesides = 4;
  effort.judgesReplicas = true;
  effort.placesFirst = false;
  effort.placesFull = true;
  effort.searchesWithOptimizations = false;
  effort.shortInitialSolutions = 3;
  effort.shortPieces = false;
  return effort;
}

void SearchEffort::limitTo(double seconds) {
  const double factor = seconds * kWorkPerSecond / (work + descentWork);
  work *= factor;
  descentWork *= factor;
  const auto scaled = [&](uint32_t limit) {
    return static_cast<uint32_t>(std::clamp(limit * factor, 1.0, 1e9));
  };
  maxBudget = std::max(minBudget, scaled(maxBudget));
  maxDescents = scaled(maxDescents);
}

uint32_t SearchEffort::budgetFor(double workOfOne) const {
  return static_cast<uint32_t>(
      std::clamp(work / workOfOne, static_cast<double>(minBudget), static_cast<double>(maxBudget)));
}

size_t SearchEffort::walksFor(uint32_t simulations) const {
  return std::min<size_t>(maxStarts, simulations >= 400 ? 8 : simulations >= 100 ? 4 : 2);
}

SearchEffort::Pieces SearchEffort::piecesOf(size_t devices) const {
  if (devices <= 32)
    return {{1, 2, 4}, {}, UINT32_MAX};
  Pieces pieces{{4}, {}, static_cast<uint32_t>(devices / 4)};
  if (devices <= 64)
    pieces.finer = {1, 2};
  else if (devices <= 128)
    pieces.finer = {1, 2, 8};
  else
    pieces.deviceSets = {std::max<size_t>(8, devices / 32)};
  if (!singlePieces && !pieces.finer.empty())
    pieces.finer.erase(pieces.finer.begin());
  return pieces;
}
