// A layout's step on the simulated clock, without the step: no entries, slots or buffers, only tasks, transfers and counters of bytes.
//
//   QuickDeal      cells of the stages, chunks, transfers between them
//   QuickState     readers and owners of state, memory that lasts the step
//   QuickOrders    1F1B, GPipe, timed
//   QuickAdmission samples taken in as memory lasts
//   QuickTransfers links and collectives
//   QuickSimulation the clock
//
// It follows the expansion (lib/Step) rule by rule: cells as makePlan deals them, orders by the same functions, transfers by the same Traffic, and is
// some hundred times faster. Where the two differ the expansion is right (test/unit/planning compares them). Internal to Planning.
#pragma once

#include "Twins.h"
#include "UnitTables.h"

#include "zorse/Planning/Layout.h"
#include "zorse/Simulation/Network.h"
#include "zorse/Step/Deal.h"
#include "zorse/Step/Orders.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Owners of state groups: who reads a group, and which elements each of them owns. One entry per set of groups with the same readers.
struct OwnerShares {
  std::vector<uint32_t> readers; ///< ascending
  std::vector<double> weights;   ///< by reader, StateRule::Proportional and Equal: relative; FreeMemory: parts of the moments, sum 1
  std::vector<uint32_t> groups;
};

/// One per thread; memory is reused from run to run.
class QuickSimulation {
public:
  /// Placed buffers usually leave gaps of one part of the activations in so many.
  static constexpr uint64_t kGaps = 50;

  /// \param gaps  memory counts one part of the activations in so many for gaps; 0: none, plans may turn out not to fit, and none that fits seems not
  /// to
  QuickSimulation(const Problem &problem, const UnitTables &tables, uint64_t gaps = kGaps);

  struct Result {
    bool ran = false;             ///< false: the order cannot run
    double step = 0;              ///< seconds
    uint64_t excess = 0;          ///< bytes that devices lack, summed
    std::vector<uint64_t> memory; ///< per device of the cluster, gaps included
    std::vector<uint64_t> gaps;   ///< per device: what was counted for them
    std::vector<double> busy;     ///< per device: seconds of compute
    uint32_t tasks = 0;           ///< simulated: F, B, W and transfers
  };
  struct Mode {
    bool freeLinks = false; ///< bytes arrive at once, state costs nothing
  };
  const Result &run(const Layout &layout, Mode mode);
  const Result &run(const Layout &layout) { return run(layout, Mode()); }

  /// Owners as makePlan lists them; valid after prepare() or run().
  const std::vector<OwnerShares> &owners() const { return shares; }
  /// Cells, orders and owners only; of all pipelines, twins too.
  void prepare(const Layout &layout);
  const std::vector<step::Cell> &dealtCells() const { return cells; }

  UnitTimes &times() { return unitTimes; }

private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Tasks: kind << 30 | cell.
  static constexpr uint32_t kCellMask = (1u << 30) - 1, kForwardTask = 0, kBackwardTask = 1u << 30, kWeightsTask = 2u << 30;
  // What waits for queues: kind << 30 | index.
  static constexpr uint32_t kCollectiveOp = 0, kTransferOp = 1u << 30, kGradientOp = 2u << 30;
  // Events: kind << 29 | index.
  enum : uint32_t { kComputeEnd, kSent, kArrived, kGradientSent, kGradientArrived, kCollectiveSent, kCollectiveArrived, kLoaded };
  static constexpr uint32_t kWhatBits = 29;
  static constexpr uint32_t what(uint32_t kind, uint32_t index) { return kind << kWhatBits | index; }

  struct Kind { ///< of cell: equal stage, device class and rows
    double forward, backward, weights, inputBytes;
    CellBytes bytes;
    uint32_t deviceClass;
    int64_t rows;
  };
  struct StageInfo { ///< of one way
    const Stage *stage;
    int32_t unitBegin, unitEnd;
    uint32_t cellBegin, cellEnd, kindBegin, kindEnd;
    int32_t front, behind; ///< neighbours, -1: none
    uint32_t gathers;      ///< still to come
    uint32_t cellsLeft;    ///< with gradients to add
  };
  struct Chunk { ///< a device's cells of one range of units
    int32_t unitBegin, unitEnd;
    uint32_t first; ///< cell, by samples
    uint32_t band;
  };
  struct Band { ///< a device's chunks whose ranges overlap
    uint32_t device;
    int32_t unitEnd;
    uint32_t begin, end; ///< of its list of cells
    int64_t rows;
  };
  struct Transfer {
    uint32_t from, to; ///< cells
    double bytes;
  };
  struct Collective {
    uint32_t group, shares;
    bool gather;
    double seconds;
    uint32_t pending;
  };
  struct Event {
    double time;
    uint32_t what;
  };
  struct Waiting { ///< for a queue; the least first
    uint64_t priority;
    uint32_t op; ///< kind << 30 | index
    bool operator>(const Waiting &o) const { return priority != o.priority ? priority > o.priority : op > o.op; }
  };
  static constexpr auto later = [](const Waiting &a, const Waiting &b) { return a > b; };
  enum class Orders : uint8_t { Chain, AllForwardsFirst, Timed };
  struct Range {
    uint32_t begin, end;
  };

  double secondsOfUpdate(uint32_t device, uint32_t group, int64_t elements) const;
  void lay(const Layout &layout);
  void deal(const Layout &layout);
  void addStage(StageInfo info);
  void findChunks();
  void connect();
  void order(const Layout &layout);
  void orderStages(const step::Schedule &schedule);
  void boundWeights();
  void orderByTime(const Layout &layout);
  void admit(uint32_t device);
  void enter(uint32_t cell);
  void leave(uint32_t cell, bool backward, bool last);
  bool admitOldest();
  bool defers(uint32_t device, uint32_t task) const;
  void layOutState(const Layout &layout);
  void weighOwners(const Layout &layout);
  void staticMemory(const Layout &layout);
  void ownedMemory();
  uint64_t orderedPeak(uint32_t device) const;
  void start();
  void loop();
  void commit();

  void push(double time, uint32_t what);
  Event pop();
  void startCompute(uint32_t device);
  void endCompute(uint32_t device);
  bool weightsFirst(uint32_t device) const;
  void begin(uint32_t device, uint32_t task);
  void startTransfers();
  void offer(size_t queue);
  void arrived(uint32_t transfer, bool gradient);
  void sent(uint32_t transfer, bool gradient);
  void take(uint32_t device, uint64_t bytes) {
    alive[device] += bytes;
    if (alive[device] > peak[device])
      peak[device] = alive[device];
  }
  void stageDone(uint32_t stage);
  void collectiveDone(uint32_t index);
  void readyTask(uint32_t task);
  void readyTransfer(uint32_t transfer, bool gradient);
  void addCandidate(uint64_t priority, uint32_t op);
  const std::vector<sim::Piece> &pieces(const OwnerShares &set, uint32_t group);

  const Problem &problem;
  const UnitTables &tables;
  UnitTimes unitTimes;
  sim::Traffic traffic;
  TwinFinder twins; ///< pipelines that are not simulated themselves
  const uint64_t gaps;
  Mode mode;
  bool split = false, chained = true;
  Orders orders = Orders::Chain;
  Result result;

  // The layout.
  std::vector<step::Cell> cells;
  std::vector<uint32_t> kindOf, stageOf;
  std::vector<Kind> kinds;
  std::vector<StageInfo> stages;
  std::vector<step::StageDevice> stageDevices;
  std::vector<Transfer> transfers, gradients;
  std::vector<Range> sends, gradientSends;     ///< by cell
  std::vector<uint32_t> cellsOfBegin, cellsOf; ///< by device: its cells by (sample, unit)
  std::vector<uint32_t> devicesUsed;
  bool oneStageEach = true;  ///< no device has cells of two stages
  std::vector<Chunk> chunks; ///< by device; timed orders only
  std::vector<Band> bands;
  std::vector<uint32_t> chunkOf, bandOf;        ///< by cell
  std::vector<uint32_t> bandsBegin, chunkOrder; ///< by device; of one device, to sort
  std::vector<uint32_t> bandCells;              ///< the bands' lists, if they are not those of the devices
  std::vector<uint32_t> passing;                ///< cells in an order in which samples can pass them

  // Orders: tasks are kind << 30 | cell.
  std::vector<uint32_t> chain, chainBegin, position;
  std::vector<std::vector<Waiting>> readyTasks;   ///< without a chain: heaps
  std::vector<std::vector<Waiting>> readyWeights; ///< W, where it fills gaps
  std::vector<uint32_t> forwardsLeft;
  std::vector<uint64_t> forwardPriority, backwardPriority, weightsPriority; ///< Timed: by cell
  std::vector<uint64_t> transferPriority, gradientPriority;
  std::vector<double> forwardTime, backwardTime, entryTime, loads;
  std::vector<uint32_t> weightBound, weightsDone, forwardsBegun; ///< 1F1B with W: cells between F and W at most; counts
  // Admission, by band: its cells in order.
  std::vector<uint8_t> admitted;
  std::vector<double> mostRows;               ///< by band
  std::vector<uint32_t> admitNext;            ///< by band
  std::vector<int64_t> rowsInFlight;          ///< by band
  std::vector<uint64_t> heldBytes, budget;    ///< by device
  std::vector<uint64_t> deferring, aside;     ///< by device: deferred bytes between B and W; what is kept for them
  std::vector<std::vector<Waiting>> heldBack; ///< by device: backwards that wait for a W
  std::vector<Waiting> oldest;                ///< heap of cells that could start but are not admitted
  std::vector<uint32_t> blockedAt;            ///< by cell: transfers that wait for its admission, as a list through blockedNext
  std::vector<uint32_t> blockedNext;

  // State.
  std::vector<OwnerShares> shares;
  std::vector<uint32_t> sharesOfGroup, scratchGroups;
  std::vector<std::vector<uint32_t>> stagesOfGroup;
  std::vector<uint32_t> stagesLeft; ///< by group: with gradients to add
  std::vector<Collective> collectives;
  std::vector<uint64_t> resident, owned, accumulators;
  std::vector<uint8_t> accumulates;
  std::vector<double> loadFree;
  std::vector<sim::Piece> pieceList;
  std::vector<double> normEnd, updateSeconds;
  std::vector<uint32_t> cellsLeftOf; ///< per device

  // The clock.
  double now = 0;
  uint32_t tasksDone = 0;
  std::vector<Event> events;
  std::vector<uint32_t> pendingForward, pendingBackward, sendsLeft, gradientSendsLeft;
  std::vector<uint8_t> received, gradientReceived, busyQueue;
  std::vector<uint32_t> current;
  std::vector<double> computeEnd;
  std::vector<uint64_t> alive, peak;
  std::vector<Waiting> candidates;
  std::vector<std::vector<Waiting>> waiting;
  std::vector<uint32_t> touched;
};

} // namespace zorse::planning
