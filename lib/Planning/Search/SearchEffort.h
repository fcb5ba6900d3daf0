// Search limits: all numbers that limit a search, in one table. Internal to Planning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Limits of a search. Fields with a default have it for every problem; forDevices sets the others.
/// Comments give the reason for a number if it is known. bin/heuristic-study measures the loss of
/// plans without a heuristic.
struct SearchEffort {
  /// More devices are many: there is no time for a second search with memory optimizations, and
  /// missing memory is scaled to this number of devices, because a little on each of thousands is
  /// as easily avoided as on a few.
  static constexpr size_t kMaxFewDevices = 256;

  // Small problems, up to 6 devices: everything is tried.
  bool everyRow; ///< up to 16 samples: micro-batches of 1, 2, 3, 4, 6, 8, 12 and 16 rows instead of
                 ///< only powers of two
  bool small;    ///< up to 16 samples and 10 units: evaluating a strategy places its buffers, which
                 ///< doubles the planning time
  bool everyTile; ///< up to 16 unit x sample pairs: descents try different paths of samples through
                  ///< the same devices

  // Budget. Work is counted in instructions of simulated lists, so that a seed gives the same plan
  // on any machine.
  static constexpr double kWorkPerSecond = 3e6; ///< of one core, about
  double work;                                  ///< of walks, summed over all strategies
  uint32_t minBudget = 16, maxBudget = 6000;    ///< independent of the size of a strategy
  uint32_t seedsPart, laterPart = 8; ///< 1/seedsPart of the budget is for the first seeds,
                                     ///< 1/laterPart for moves after the later search of subsets
  int64_t maxRows = 256;             ///< of a micro-batch, if the user sets no limit
  int32_t boundaryVariants; ///< ways of samples if stages share units; 16 ways were slower and gave
                            ///< no faster plans
  bool everySchedule;       ///< includes GPipe

  // Seeds (InitialSolutions.cpp).
  size_t seedOrders, copyOrders; ///< orders of kinds of devices, for one pipeline and for several
                                 ///< equal ones; 24 are all orders of four kinds
  uint32_t maxCopies;            ///< equal pipelines
  bool everyCopies;              ///< also 3 and 5 pipelines, and 16 small ones, not only 2, 4, 8,
                                 ///< one per site, and more with at least 16 devices each
  bool uniformStages; ///< also stages of equal numbers of devices, and 2, 4 or 8 pipelines per
                      ///< site. Walks of few devices find them
  bool bothSides;     ///< with two kinds of devices, also places one on both sides of the other
  size_t seedRows; ///< number of micro-batch sizes tried for all stages together, which is faster;
                   ///< 0: each stage chooses its own
  size_t seedsInPieces = 3; ///< for each number of pipelines: seeds with split nodes
  double piecesWithin; ///< factor on the best estimate; seeds beyond it keep whole nodes. Without
                       ///< it, partitioning took half of the time for 512 devices
  bool singlePieces;   ///< atoms may be single devices. With many devices, whole nodes are better,
                       ///< because a node's card then transfers a sum once
  bool roughFirst;     ///< the first partition is approximate, for comparisons
  size_t seedsAgain;   ///< partitioned again with other assumptions, the most promising first
  size_t seedsAgainOfKind = 2; ///< for each atom size, number of pipelines and row count
  enum class Assumptions : uint8_t { Few, Either, Both };
  Assumptions assumptions; ///< Few: other memory, and one other start; Either: other memory or
                           ///< other starts; Both: also combined
  size_t seedsInParts;     ///< number of those also partitioned in parts of units. That is slow;
                           ///< otherwise only moves share units

  bool onePerEstimate; ///< of seeds with equal estimates and numbers of stages, only one

  // Subsets of the cluster (Subclusters.cpp).
  size_t subclusters, laterSubclusters; ///< before and after the walks
  size_t seedsOfEach;                   ///< for each subset
  bool lessOne;                         ///< also subsets without one device of a class
  bool wholeStages;                     ///< also all devices of a subset as one stage

  // Symmetric copies (SymmetricCopies.cpp): devices of a copy, numbers of copies that are tried,
  // and candidates of the search for the plan of a copy.
  size_t copiedMin = 128, copiedMax = 512, copiedTries;
  uint32_t copiedCandidates = 24;

  // First simulations (Search.cpp).
  size_t singles = 64;                ///< single devices and row counts
  size_t minInitialSolutions;         ///< independent of the budget
  size_t minLeaders, maxLeaders = 12; ///< best strategies tried with all schedules; one above 1,024
                                      ///< devices, because planning must take only seconds
  double seedWork, scheduleWork; ///< of the first simulations, and of those with other schedules
  size_t simulatedAtOnce;        ///< simulations between checks of such a limit; constant, so that
                                 ///< plans do not depend on the number of threads

  // Walks (LocalSearch.cpp).
  size_t maxStarts;
  size_t movesAtOnce = 16; ///< moves between two comparisons; constant, so that plans do not depend
                           ///< on the number of threads
  uint64_t attempts = 6;   ///< draws per move, because some fail
  size_t patience;         ///< rounds without a better plan
  bool adaptsMoves; ///< helpful kinds of moves become more frequent; walks of few devices are too
                    ///< short for that
  int wholeGroups;  ///< percentage of group moves that move all devices of a node and class

  // Descents (IteratedLocalSearch.cpp, Neighborhood.cpp).
  double descentWork;   ///< of descents, in addition to the budget; 0: no descents, because each
                        ///< strategy has too many instructions
  uint32_t maxDescents; ///< strategies
  bool bestNeighbour;   ///< use the best of all small changes instead of the first better one
  size_t hillClimbStarts = 8;     ///< from strategies of whole units of different structure
  size_t sharingStarts = 4;       ///< from strategies that share units
  size_t stagesStarts = 4;        ///< from strategies with other numbers of stages
  size_t keptStarts = 4;          ///< after the first round
  uint64_t kicks = 4;             ///< random moves with a descent after each, per walk and round
  size_t descentPatience;         ///< rounds without a better plan
  size_t dividedMax = 6;          ///< maximum devices of a stage that is split in all 62 ways
  size_t maxPipelines = 3;        ///< also after one device became a separate pipeline
  bool deviceMemoryOptimizations; ///< memory optimizations may differ by device

  // Judgement (SelectBest.cpp).
  size_t judged;             ///< plans that fit, by the full expansion
  size_t judgedBesides = 20; ///< plans that do not fit
  size_t judgedMore = 3;     ///< plans that are expanded to find one more that fits
  size_t judgeRounds = 12;   ///< number of these expansions
  bool judgesReplicas; ///< without simulating replicas, which are equal; with many devices, the
                       ///< full expansion takes seconds
  bool placesFirst; ///< place buffers before comparing plans; for many devices, placing takes half
                    ///< of the time
  bool placesFull;  ///< place only plans that nearly fill a device with a single micro-batch; the
                    ///< others can reduce the samples in flight
  uint64_t fragmentationDivisor; ///< 1/gaps of the activations is added for gaps between buffers;
                                 ///< 0: no addition, buffers are placed

  // Memory optimizations (MemoryOptimizations.cpp, Phases.cpp).
  bool searchesWithOptimizations; ///< also if a plan fits without them
  bool estimatesRecomputation; ///< instead: estimates decide whether all devices recompute, before
                               ///< the search
  size_t relievedStages; ///< stages that are tried without memory optimizations if there are no
                         ///< descents
  double phaseWork = 5e6, phaseRowWork = 1.2e6, phaseDescentWork = 3e6;
  double phaseHintWork = 6e5;  ///< to find out whether any plan fits
  size_t phasesRefined = 12;   ///< candidates with varied rows
  double phaseDescents = 1000; ///< strategies

  // Repairs (lib/Planning/Repair).
  bool thoroughSeeds = true;   ///< otherwise initial solutions are brief
  size_t repairs = 32;         ///< strategies near the old plan
  size_t repairOrders = 2;     ///< orders of device types if devices are dealt again
  double repairsWithin = 1.02; ///< factor on the best score; of these plans, the one that moves the
                               ///< least state is taken
  size_t easedSolutions = 3;   ///< of each memory optimization of activations
  size_t easedCompared = 2;    ///< memory optimizations that fit, if nothing fits without
  size_t repairsCompared = 4;  ///< number of these

  // Subsets of the cluster if prices count (PricedParts.cpp).
  size_t pricedCounted = 1 << 16; ///< subsets with computed price and speed
  size_t pricedParts;             ///< short searches
  size_t pricedSearched = 3;      ///< searched in full, the most promising
  double pricedWithin = 1.15;     ///< factor on the best score; subsets beyond it are not searched
  size_t pricedSmall = 4; ///< smallest subsets, also searched because short searches estimate them
                          ///< worst
  size_t pricedFew = 2;   ///< maximum devices of these

  // If nothing fits (MemoryHints.cpp).
  size_t shortInitialSolutions; ///< of a short search
  bool shortPieces;             ///< short searches also split nodes
  size_t addedDevices;          ///< the message suggests up to this number of additional devices
  bool triesPhases; ///< the message states whether parameters gathered by phase would fit

  /// \param units, samples  of the problem; default: many
  static SearchEffort forDevices(size_t devices, int64_t units = 1 << 20,
                                 int64_t samples = 1 << 20);

  /// Limits walks and descents to about this many seconds of one core, in their usual proportion.
  /// First solutions and the judgement of the best are not included.
  void limitTo(double seconds);

  /// Limits of the repair of a plan (lib/Planning/Repair): at most about a second on two cores.
  static SearchEffort forRepair(size_t devices, int64_t units = 1 << 20, int64_t samples = 1 << 20);

  /// Returns the number of strategies that the budget allows. \param workOfOne  work of one
  /// strategy
  uint32_t budgetFor(double workOfOne) const;
  /// Returns the number of parallel walks: fewer for fewer simulations, so that each has enough.
  size_t walksFor(uint32_t simulations) const;

  /// How seeds divide the devices of a pipeline.
  struct Pieces {
    std::vector<size_t> deviceSets; ///< maximum devices of an atom, for one seed each
    std::vector<size_t> finer;      ///< the same for split nodes
    uint32_t maxInStage;            ///< maximum devices of a stage other than the last
  };
  Pieces piecesOf(size_t devicesOfPipeline) const;
};

/// Resolution at which StagePartitioner partitions an order of atoms.
struct CutEffort {
  static constexpr size_t kMixed = 16; ///< stages of longer orders have at most two classes
  static constexpr int kStrides = 60;  ///< maximum growth steps of the time until it suffices;
                                       ///< otherwise nothing fits
  /// Whether stages must not have this number of atoms. Not every large number is tried.
  static constexpr bool passesOver(size_t deviceSets, bool rough) {
    return (deviceSets > 8 && rough && deviceSets % 2 != 0) ||
           (deviceSets > 16 && deviceSets % (deviceSets > 32 ? 4 : 2) != 0);
  }
};

} // namespace zorse::planning
