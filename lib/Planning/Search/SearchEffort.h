// How much a search does: every number that limits it, in one table. Internal to Planning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Limits of a search. Fields with a value here have it for every problem; forDevices sets the others. The reason for a number stands beside it where
/// one is known. bin/heuristic-study measures what plans lose without a heuristic.
struct SearchEffort {
  // Small problems, of up to 6 devices: everything is tried.
  bool everyRow;  ///< up to 16 samples: micro-batches of 1, 2, 3, 4, 6, 8, 12 and 16 rows, not of powers of two alone
  bool small;     ///< up to 16 samples and 10 units: weighing a layout places its buffers, which doubles the time of planning
  bool everyTile; ///< up to 16 pieces of units x samples: descents let samples go different ways through the same devices

  // Budget, in layouts that are simulated.
  double tasks;                                 ///< of all layouts together, by default; 3e6 take half a second of two cores or less
  uint32_t leastBudget = 16, mostBudget = 6000; ///< whatever a layout takes
  uint32_t seedsPart = 4, laterPart = 8; ///< 1/seedsPart of the budget is for the first seeds, 1/laterPart for moves after the later search of parts
  int64_t mostRows = 256;                ///< of a micro-batch, where no limit is asked for
  int32_t ways;                          ///< ways of samples where stages share out units: with 16 plans were no faster, and took longer
  bool everySchedule;                    ///< GPipe, too

  // Seeds (Seeds.cpp).
  size_t seedOrders, copyOrders; ///< orders of kinds of devices, of one pipeline and of several alike: 24 are all orders of four kinds
  uint32_t mostCopies = 16;      ///< pipelines alike
  bool everyCopies;              ///< 3, 5 and 16 of them, not 2, 4, 8 and one for each site alone
  bool bothSides;                ///< of two kinds of devices, one stands on both sides of the other, too
  size_t seedRows;               ///< number of micro-batch sizes that are tried for all stages alike, which is quicker; 0: each stage chooses its own
  size_t seedsInPieces = 3;      ///< of each number of pipelines: whose nodes are taken apart
  double piecesWithin;           ///< of the best estimate, as a factor: others stay whole. Cutting took half of the time for 512 devices without
  bool singlePieces;             ///< pieces may be single devices. With many devices whole nodes do better: a node's card then carries a sum once
  bool roughFirst;               ///< the first cut is a rough one, to compare
  size_t seedsAgain;             ///< cut again under other assumptions, the most promising first
  size_t seedsAgainOfKind = 2;   ///< of each size of atoms, number of pipelines and rows
  enum class Assumptions : uint8_t { Few, Either, Both };
  Assumptions assumptions; ///< Few: other memory, and one other start; Either: other memory or other starts; Both: also together
  size_t seedsInParts; ///< of those that are cut again, the first are cut in parts of units, too. That takes long: elsewhere moves share units out

  // Parts of the cluster (Subclusters.cpp).
  size_t subclusters, laterSubclusters; ///< before the walks and after them
  size_t seedsOfEach;                   ///< of each part
  bool lessOne;                         ///< parts without one device of a class, too
  bool wholeStages;                     ///< all devices of a part as one stage, too

  // First simulations (Search.cpp).
  size_t singles = 64;                   ///< devices alone and row counts
  size_t leastSeeds;                     ///< whatever the budget
  size_t leastLeaders, mostLeaders = 12; ///< of the best, under all schedules; of more than 1,024 devices one, as planning shall take seconds

  // Walks (Walks.cpp).
  size_t mostWalks = 8;
  size_t movesAtOnce = 16; ///< between two comparisons; the same for any number of threads, so that plans are, too
  uint64_t attempts = 6;   ///< draws for one move, as some lead nowhere
  size_t patience;         ///< rounds without a better plan
  bool adaptsMoves;        ///< kinds of moves that help become more frequent; walks of few devices are too short for that
  int wholeGroups;         ///< percent of the moves of groups that take all devices of a node and class

  // Descents (Descent.cpp, Neighbours.cpp).
  double descentTasks;      ///< that descents simulate, beyond the budget; 0: there are none, as each layout has too many
  uint32_t mostDescents;    ///< layouts
  bool bestNeighbour;       ///< the best of all small changes is taken, not the first that is better
  size_t descentWalks = 8;  ///< from layouts of whole units of different structure
  size_t sharingWalks = 4;  ///< from layouts that share out units
  size_t stagesWalks = 4;   ///< from layouts with other numbers of stages
  size_t keptWalks = 4;     ///< after the first round
  uint64_t kicks = 4;       ///< random moves, and down again, of each walk in a round
  size_t descentPatience;   ///< rounds without a better plan
  size_t dividedMost = 6;   ///< devices of a stage that is divided in all ways, which are 62
  size_t mostPipelines = 3; ///< also after one device has become a separate pipeline
  bool deviceTechniques;    ///< memory techniques may differ by device

  // Judgement (Judgement.cpp).
  size_t judged;             ///< plans that fit, by the full expansion
  size_t judgedBesides = 20; ///< plans that do not
  size_t judgedMore = 3;     ///< plans that are expanded to find one more that fits
  size_t judgeRounds = 12;   ///< of these
  bool placesFirst;          ///< buffers are placed before plans are compared; placing them takes as long as the rest for many devices
  bool placesFull;           ///< only plans are placed that nearly fill a device which holds one micro-batch already: the others give way
  uint64_t gaps;             ///< 1/gaps of the activations is added for gaps between buffers; 0: nothing is added, buffers are placed

  // Memory techniques (Techniques.cpp, Phases.cpp).
  bool easesMemory;                                                      ///< also where a plan fits without
  size_t relievedStages;                                                 ///< stages that are tried without techniques, where descents do not
  double phaseTasks = 1e7, phaseRowTasks = 4e6, phaseDescentTasks = 1e7; ///< listed twice, with copies to hosts: about 15 seconds of two cores
  size_t phasesRefined = 12, phasesAtOnce = 16;                          ///< whose rows are varied; simulated between looks at what is spent
  double phaseDescents = 1000;                                           ///< layouts

  // Parts of the cluster where prices count (PricedParts.cpp).
  size_t pricedCounted = 1 << 16; ///< whose price and speed are compared
  size_t pricedParts;             ///< short searches
  size_t pricedSearched = 3;      ///< searched in full, the most promising
  double pricedWithin = 1.15;     ///< of the best score, as a factor: others are not
  size_t pricedSmall = 4;         ///< the smallest parts are searched, too: short searches know least about them
  size_t pricedFew = 2;           ///< devices of these

  // Where nothing fits (Remedies.cpp).
  size_t shortSeeds = 24; ///< of a short search
  bool shortPieces;       ///< short searches take nodes apart, too
  size_t addedDevices;    ///< the message says up to how many more would do
  bool triesPhases;       ///< the message says whether parameters by phase would do

  /// \param units, samples  of the problem; left out: many
  static SearchEffort forDevices(size_t devices, int64_t units = 1 << 20, int64_t samples = 1 << 20);

  /// Layouts that the budget is enough for. \param tasksOfOne  tasks of one layout
  uint32_t budgetFor(double tasksOfOne) const;
  /// Walks that begin side by side: of fewer simulations fewer, so that each gets somewhere.
  size_t walksFor(uint32_t simulations) const;

  /// How seeds divide the devices of a pipeline.
  struct Pieces {
    std::vector<size_t> atoms; ///< most devices of an atom, for one seed each
    std::vector<size_t> finer; ///< the same, where nodes are taken apart
    uint32_t mostInStage;      ///< devices of a stage that is not the last
  };
  Pieces piecesOf(size_t devicesOfPipeline) const;
};

/// How coarsely CutSolver divides an order of atoms.
struct CutEffort {
  static constexpr size_t kMixed = 16; ///< stages of longer orders have two classes at most
  static constexpr int kStrides = 60;  ///< in which times grow until one suffices; otherwise nothing fits
  /// Whether no stage may have this number of atoms. Not every large number is tried.
  static constexpr bool passesOver(size_t atoms, bool rough) {
    return (atoms > 8 && rough && atoms % 2 != 0) || (atoms > 16 && atoms % (atoms > 32 ? 4 : 2) != 0);
  }
};

} // namespace zorse::planning
