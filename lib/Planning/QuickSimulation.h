// A layout's step on the simulated clock, without the step: no entries, slots or buffers, only tasks, transfers and counters of bytes.
//
// It follows the expansion (lib/Step) rule by rule: cells as makePlan deals them, orders by the same functions, transfers by the same Traffic, and is
// some hundred times faster. Where the two differ the expansion is right (test/unit/planning compares them). Internal to Planning.
#pragma once

#include "UnitTables.h"

#include "zorse/Planning/Layout.h"
#include "zorse/Simulation/Network.h"
#include "zorse/Step/Deal.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Owners of state groups: who reads a group, and which elements each of them owns. One entry per set of groups with the same readers.
struct OwnerShares {
  std::vector<uint32_t> readers;   ///< ascending
  std::vector<double> weights;     ///< by reader, StateRule::Proportional and Equal: relative; FreeMemory: parts of the moments, sum 1
  std::vector<uint32_t> groups;
};

/// One per thread; memory is reused from run to run.
class QuickSimulation {
public:
  QuickSimulation(const Problem &problem, const UnitTables &tables);

  struct Result {
    bool ran = false;                ///< false: the order cannot run
    double step = 0;                 ///< seconds
    uint64_t excess = 0;             ///< bytes that devices lack, summed
    std::vector<uint64_t> memory;    ///< per device of the cluster, reserve included
    std::vector<double> busy;        ///< per device: seconds of compute
    uint32_t tasks = 0;              ///< simulated: F, B, W and transfers
  };
  struct Mode {
    bool freeLinks = false;          ///< bytes arrive at once, state costs nothing
  };
  const Result &run(const Layout &layout, Mode mode);
  const Result &run(const Layout &layout) { return run(layout, Mode()); }

  /// Owners as makePlan lists them; valid after prepare() or run().
  const std::vector<OwnerShares> &owners() const { return shares; }
  /// Cells, orders and owners only.
  void prepare(const Layout &layout);
  const std::vector<step::Cell> &dealtCells() const { return cells; }

  UnitTimes &times() { return unitTimes; }

private:
  struct Kind {                      ///< of cell: equal stage, device class and rows
    double forward, backward, weights;
    CellBytes bytes;
    uint32_t deviceClass;
    int64_t rows;
  };
  struct StageInfo {
    const Stage *stage;
    uint32_t pipeline, cellBegin, cellEnd, kindBegin, kindEnd;
    int32_t front, behind;           ///< neighbours, -1: none
    uint32_t gathers;                ///< still to come
    uint32_t cellsLeft;              ///< with gradients to add
  };
  struct Transfer {
    uint32_t from, to;               ///< cells
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
  struct Range {
    uint32_t begin, end;
  };

  void deal(const Layout &layout);
  void connect();
  void order(const Layout &layout);
  void orderStages();
  void layOutState(const Layout &layout);
  void weighOwners(const Layout &layout);
  void staticMemory(const Layout &layout);
  uint64_t orderedPeak(uint32_t device) const;
  void start();
  void loop();
  void commit();

  void push(double time, uint32_t what);
  Event pop();
  void startCompute(uint32_t device);
  void endCompute(uint32_t device);
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
  const std::vector<sim::Piece> &pieces(const OwnerShares &set, uint32_t group);

  const Problem &problem;
  const UnitTables &tables;
  UnitTimes unitTimes;
  sim::Traffic traffic;
  Mode mode;
  bool split = false, chained = true;
  Result result;

  // The layout.
  std::vector<step::Cell> cells;
  std::vector<uint32_t> kindOf, stageOf;
  std::vector<Kind> kinds;
  std::vector<StageInfo> stages;
  std::vector<step::StageDevice> stageDevices;
  std::vector<Transfer> transfers, gradients;
  std::vector<Range> sends, gradientSends;      ///< by cell
  std::vector<uint32_t> cellsOfBegin, cellsOf;  ///< by device: its cells by (sample, unit)
  std::vector<uint32_t> devicesUsed;

  // Orders: tasks are kind << 30 | cell.
  std::vector<uint32_t> chain, chainBegin, position;
  std::vector<std::vector<uint64_t>> readyTasks; ///< without a chain: heaps of (rank, sample, task)
  std::vector<uint32_t> forwardsLeft;

  // State.
  std::vector<OwnerShares> shares;
  std::vector<uint32_t> sharesOfGroup, scratchGroups;
  std::vector<std::vector<uint32_t>> stagesOfGroup;
  std::vector<Collective> collectives;
  std::vector<uint64_t> resident, withoutMoments;
  std::vector<sim::Piece> pieceList;
  std::vector<double> normEnd, updateSeconds;
  std::vector<uint32_t> cellsLeftOf;            ///< per device

  // The clock.
  double now = 0;
  uint32_t tasksDone = 0;
  std::vector<Event> events;
  std::vector<uint32_t> pendingForward, pendingBackward, sendsLeft, gradientSendsLeft;
  std::vector<uint8_t> received, gradientReceived, busyQueue;
  std::vector<uint32_t> current;
  std::vector<double> computeEnd;
  std::vector<uint64_t> alive, peak;
  std::vector<uint64_t> candidates;
  std::vector<std::vector<uint64_t>> waiting;
  std::vector<uint32_t> touched;
};

} // namespace zorse::planning
