// Data and functions shared by the phases of lowerPlan. Internal to lib/Step.
//
// - CellTemplates: data shared by equal cells (sums for planning, calls for programs)
// - layoutState: readers, contributors and owners of every state group; their buffers
// - findUnshardIntervals: windows (unshard intervals), which are the tasks that read one gathered
//   copy of a group's parameters
// - lowerCells: F and B of every cell, values between them, inputs, transfers
// - offloadToHost, prefetchFromHost: copies of offloaded activations to the host and back
// - lowerState: gathers, reductions, norms, the clip/skip decision, the report
// - lowerUpdates: updates, and copies of state from the host and back for them
// - routeTransfers: transfers directly from GPU to GPU
// - insertHostStaging: copies between a device and its host, for transports that access only host
//   memory
// - ScheduleRule: the schedule as edges, priorities and admission (zorse/Step/Schedules.h)
// - simulate: one global list
// - measureMemory: peak of live bytes; a planner stops here
// - packArenas: an offset for every buffer
// - writeInstructions: the instructions of every op on each device
// - addCellCalls: calls of cells' tasks
// - insertWaits: the remaining dependencies, which follow from the list and from reused memory
#pragma once

#include "CellTemplates.h"
#include "GroupState.h"
#include "Order.h"
#include "Queues.h"

#include "zorse/Step/Costs.h"
#include "zorse/Step/Orders.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace zorse::step {

// Names that depend only on the summary, for files that use this namespace.
using zorse::accumulationType;
using zorse::alignRegion;
using zorse::Compact;
using zorse::elementBytes;
using zorse::kRegionAlignment;
using zorse::kScalarsBlock;
using zorse::kScalarsBytes;
using zorse::kStateAlignment;
using zorse::kSumsBytes;
using zorse::Shard;

struct TaskSeconds;
struct Buffer {
  uint64_t bytes = 0;
  uint32_t device = 0;
  uint32_t number = 0; ///< in programs, which also count the buffers inside cells; breaks ties
                       ///< during packing
  uint32_t first = kNone,
           last = 0; ///< positions of the first and last instruction that access it; set after the
                     ///< list
  bundle::MemoryKind memory = bundle::DEVICE;
  MemoryCategory category = MemoryCategory::Activations;
  bool persistent = false;  ///< never shares bytes
  bool crossesStep = false; ///< used by updates that overlap the next step; shares bytes only with
                            ///< other late buffers if memory permits
};

/// Offset of a buffer, and the end time of the last op that accesses it.
struct Allocation {
  double freeTime = 0;
  uint32_t arena = 0; ///< index among its device's arenas
  uint64_t offset = 0;
};

/// Buffers and their offsets, by number; bytes are 0 for a buffer that is not accessed.
struct Placement {
  std::vector<Buffer> buffers;
  std::vector<Allocation> allocations;
};

/// How an op's duration is simulated.
enum class Work : uint8_t { Fixed, Transfer, Gather, Scatter, Sum };

/// Kind of an op. ScheduledOp::subject is an index or an id, as listed here.
enum class OpKind : uint8_t {
  Join, ///< no work: ordered but not listed
  Forward,
  Backward,
  Weights,
  SumLoss,   ///< cell
  LoadInput, ///< index in PlanLowering::inputs
  LoadScalars,
  ScaleLossGradient, ///< device
  Move,              ///< index in PlanLowering::moves
  Copy,              ///< index in PlanLowering::copies
  Cast,              ///< index in PlanLowering::copies; converts to another type
  Collective,        ///< index in PlanLowering::parts of its first half
  Norm,              ///< group
  ClipAndCheck,      ///< 1: decides before the sums are available
  Update,            ///< index in PlanLowering::updates
  ReadMetrics,       ///< 1: after a decision about the scalars
};

/// One instruction of the global list. `instructions` are the halves of its devices; none: a
/// barrier, ordered but not listed.
struct ScheduledOp {
  Span instructions;
  double duration = 0;   ///< seconds; for a transfer on an idle network, with latency; for a
                         ///< collective 0
  uint64_t priority = 0; ///< for an order without a schedule: see Order::priority
  double bytes = 0;      ///< Transfer, Sum
  uint32_t from = 0,
           to = 0;       ///< Transfer: devices. Collectives: `from` is the index in
                         ///< StepGraph::collectives
  uint32_t cell = kNone; ///< cell that it is a task of, or provides data for
  uint32_t subject = 0;  ///< see OpKind
  OpKind kind = OpKind::Join;
  Work work = Work::Fixed;
  bool needsAdmission = false; ///< allocates memory for the cell's forward, so it waits until the
                               ///< cell is admitted
  bool deviceToDevice = false; ///< transfers from GPU memory to GPU memory
};

/// A value at a cut of a cell, in forward or backward direction.
struct Producer {
  uint32_t op = kNone;
  int64_t begin = 0, end = 0; ///< samples that the op makes available
};
struct BoundaryValue {
  uint32_t value = 0;
  uint32_t buffer = kNone;
  int64_t rowBase = 0; ///< sample at the buffer's first row
  Span producers;
};

/// Cells of one device and unit range, by first sample.
struct ModelChunk {
  uint32_t device = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  int32_t group = -1; ///< Cell::group
  std::vector<uint32_t> cells;
  int64_t rows = 0;
  uint32_t chunkGroup = 0;
};

/// Chunks of one device with overlapping unit ranges: one stage with boundaries that differ by
/// sample. In a steady state they recur together.
struct ChunkGroup {
  uint32_t device = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  std::vector<uint32_t> cells; ///< by samples
  int64_t rows = 0;
};

/// First and last op of a cell's task. Predecessors of the task precede `begin`; its results are
/// complete after `end`.
struct CellTask {
  uint32_t begin = kNone, end = kNone;
  double seconds = 0; ///< of all its ops
  bool exists() const { return begin != kNone; }
};

struct CellInfo {
  CellTask forward, backward;
  CellTask weights; ///< if the plan splits the backward
  const CellTask &of(TaskKind kind) const {
    return kind == TaskKind::Forward ? forward : kind == TaskKind::Backward ? backward : weights;
  }
  /// Returns the task after which the cell's gradients are complete and its activations are free.
  const CellTask &last() const { return weights.exists() ? weights : backward; }
  Span in, out;         ///< ports at the first and last cut, in the order of liveAt
  Span gradIn, gradOut; ///< ports of gradients at the last and first cut, in the order of gradsAt
  Span produced;        ///< ports of values produced here
  Span loads;           ///< range of PlanLowering::loads, in the order of CellTemplate::inputs
  Span offloads;        ///< range of PlanLowering::offloads, in the order of CellTemplate::leaving
  // First numbers of buffers: those of F, the additional ones of B and W, and those of saved blocks
  // copied back from the host.
  uint32_t numberOfF = kNone, numberOfB = kNone, numberOfPrefetchBuffers = kNone;
};

/// One item of a cell's CellTemplate::leaving.
struct OffloadedValue {
  bool block;
  uint32_t id;
  TaskSet later;
  uint32_t prefetchBuffer = kNone,
           host = kNone; ///< buffers; the image is the original if the cell's activations stay
  uint32_t out = kNone, back = kNone; ///< ops; none if they stay
};

/// Samples of a value, or of its gradient, that are moved from one cell's buffer to another's.
struct Move {
  uint32_t from = kNone, to = kNone; ///< buffers
  int64_t fromBase = 0, toBase = 0;  ///< samples at their first rows
  int64_t begin = 0, end = 0;
  uint32_t value = 0;
  uint32_t cut = kNone; ///< for a gradient: see bundle::Value; kNone: it is the value
};

/// A copy on one device, or between it and its host. Region.arena is a buffer.
struct CopyOp {
  Region from, to;
  Value value;
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
};

/// Buffers of one device in a collective: the whole if it is a member, its shard if it is an owner.
struct Part {
  Region whole, shard;
  Value term = {}; ///< of a reduction of gradients: what the device contributes
};

/// The update of elements [begin, end) of a group.
struct UpdateOp {
  /// An array of the group: element or entry `base` is the first in the buffer.
  struct BufferRange {
    uint32_t buffer = kNone;
    int64_t base = 0;
  };
  /// Parameters, reduced gradients, optimizer states.
  using Arrays = std::array<BufferRange, 2 + zorse::kMaxOptimizerStates>;
  uint32_t group = 0;
  int64_t begin = 0, end = 0;
  Arrays arrays;
  uint32_t scalars = kNone, step = kNone; ///< buffers that the decision has written
  uint32_t workspace = kNone;             ///< buffer; kNone: its functions need none
};

/// Rows of a graph input that one op loads, for all cells of a device with rows in this range.
struct InputRows {
  uint32_t input = 0;
  int64_t begin = 0, end = 0;
  uint32_t buffer = kNone, op = kNone;
};

/// Returns costs from FLOPs, the plan's speeds and its links. Refers to both arguments.
std::unique_ptr<Costs> planCosts(const bundle::ModelSummary &summary, const Plan &plan);

/// Arrays of an expansion that grow with its cells. The next expansion with the same tables reuses
/// their memory: page faults of new memory would cost a planner's candidate more time than writing
/// the data.
struct LoweringArrays {
  std::vector<Buffer> buffers; ///< except those inside cells
  Placement placement;         ///< of buffers in use, after packArenas
  std::vector<ScheduledOp> ops;
  std::vector<uint32_t> instructionQueues;          ///< per half: device * kQueues + queue
  std::vector<std::pair<uint32_t, uint32_t>> edges; ///< (before, after)
  IndexLists next; ///< the same by the op before; set when all edges exist
  enum class AccessSide : uint8_t {
    Both,
    Before,
    After
  }; ///< of a transfer: reads the buffer before, or writes it after
  struct BufferAccess {
    uint32_t op, buffer;
    AccessSide side;
  };
  std::vector<BufferAccess> accesses; ///< buffers that ops access, except accesses listed in
                                      ///< CellTemplate

  Order order;              ///< last order that the schedule set
  ListSchedule globalOrder; ///< its result

  IndexLists cellsByBegin, cellsByEnd;        ///< per cut, by first sample
  IndexLists cellsOf;                         ///< per device, by (first sample, first unit)
  std::vector<const CellTemplate *> shapeOf;  ///< per cell
  std::vector<const TaskSeconds *> secondsOf; ///< per cell
  std::vector<uint32_t> chunkOf;              ///< per cell
  std::vector<CellInfo> cells;
  std::vector<BoundaryValue> boundaryValues;
  std::vector<Producer> producers;
  std::vector<InputRows> inputs; ///< by op; so are the next two
  std::vector<Move> moves;
  std::vector<CopyOp> copies;
  std::vector<Part> parts;              ///< of collectives, by half
  std::vector<uint32_t> loads;          ///< lists of indices in `inputs` by cell
  std::vector<OffloadedValue> offloads; ///< lists by cell

  // Scratch of measureMemory.
  std::vector<uint64_t> taken, given;
  std::vector<int32_t> cellsBegun;

  void clear();
};

struct PlanLowering : LoweringArrays {
  PlanLowering(const bundle::ModelSummary &summary, const Plan &plan, const StepOptions &options,
               LoweringTables &tables, const UnshardHints *hints = nullptr,
               const Replicas *replicas = nullptr);
  ~PlanLowering();
  PlanLowering(const PlanLowering &) = delete;

  const bundle::ModelSummary &summary;
  const Plan &plan;
  const StepOptions &options;
  LoweringTables &tables;
  const Costs *costs;
  StepGraph graph; ///< until resolveOffsets, Region.arena is a buffer and offset is relative to it

  uint32_t numbers = 0;          ///< number of buffers, with those inside cells
  std::vector<double> linkLoads; ///< by network resource: seconds that transfers between cells
                                 ///< occupy it
  uint32_t cellOps = 0; ///< ops below this belong to cells: predecessors have lower indices, except
                        ///< state and scalars

  // Properties of the plan and the model.
  const std::vector<std::vector<uint32_t>> &liveAt,
      &gradsAt;                        ///< per cut: values live across it; those with gradients
  std::vector<ModelChunk> chunks;      ///< by device
  std::vector<ChunkGroup> chunkGroups; ///< by device
  std::vector<uint32_t> chunkGroupsOf; ///< per device: number of bands
  std::vector<std::vector<GroupState>> groupStates; ///< per device, by group
  std::vector<std::vector<uint32_t>> readersOf, contributorsOf,
      ownersOf;                        ///< per group: devices; owners in the order of their extents
  std::vector<uint32_t> scalars;       ///< per device: buffer of the scalars block, kNone for idle
                                       ///< devices
  std::vector<uint32_t> loadScalars;   ///< per device: op
  std::vector<uint32_t> workspace;     ///< per device: buffer
  std::vector<uint32_t> optimizerStep; ///< per device: buffer, kNone if the device decides nothing
  std::vector<std::vector<uint32_t>> sumLoss;    ///< per device: ops
  std::vector<UnshardInterval> unshardIntervals; ///< by group
  std::vector<uint32_t> firstUnshardInterval;    ///< per group, and the end
  std::vector<std::vector<UnshardUse>> usesOf;   ///< per group; empty: it has one window
  std::vector<uint32_t> unshardedParams; ///< buffers; kNone: the device does not take part in the
                                         ///< window
  const UnshardHints *hints;             ///< null: there is no preliminary list
  std::vector<UpdateOp> updates;         ///< by op
  std::vector<std::vector<zorse::StateLayout>> stateLayouts =
      std::vector<std::vector<zorse::StateLayout>>(
          static_cast<size_t>(summary.groups_size())); ///< per group, as they are first asked for
  /// By half of transfers and collectives. `hostStaged`: buffers in host memory that a half uses in
  /// place of its regions, if its device is staged. `terms`, `sends`: the buffers for received
  /// terms and for rounded terms that are sent, if a sum is direct.
  std::map<uint32_t, std::pair<Region, Region>> hostStaged;
  std::map<uint32_t, Region> terms, sends;
  void addAccess(uint32_t op, uint32_t buffer, AccessSide side = AccessSide::Both) {
    accesses.push_back({op, buffer, side});
  }
  void addAccess(const CellTask &task, uint32_t buffer) {
    addAccess(task.begin, buffer);
    if (task.end != task.begin)
      addAccess(task.end, buffer);
  }

  uint32_t addBuffer(uint32_t device, uint64_t bytes, MemoryCategory category,
                     bool persistent = false, MemoryTier tier = MemoryTier::Device);
  /// Adds an activation of a cell under a reserved number.
  uint32_t addNumbered(uint32_t device, uint64_t bytes, uint32_t number);
  /// Reserves `count` numbers of buffers. \returns the first
  uint32_t takeNumbers(uint32_t count) { return std::exchange(numbers, numbers + count); }
  uint32_t addOp(double duration, uint8_t rank, int64_t sample, int32_t unit);
  /// Adds a send and its receive. The caller adds the halves.
  uint32_t addTransfer(uint32_t from, uint32_t to, uint64_t bytes, uint8_t rank, int64_t sample,
                       int32_t unit);
  /// Adds a copy between a device and its host, on a queue from or to the host. Region.arena is a
  /// buffer.
  uint32_t addTierCopy(uint32_t device, QueueIndex queue, bundle::Phase phase, Region from,
                       Region to, Value value, uint64_t priority);
  /// Adds a half to the op added last.
  void addInstruction(uint32_t device, QueueIndex queue);
  /// Sets the kind and subject of the op added last.
  void describe(OpKind kind, uint32_t subject) {
    ops.back().kind = kind;
    ops.back().subject = subject;
  }
  /// Makes the op added last a copy.
  void describeCopy(Region from, Region to, const Value &value, bundle::Phase phase,
                    OpKind kind = OpKind::Copy) {
    describe(kind, static_cast<uint32_t>(copies.size()));
    copies.push_back({from, to, value, phase});
  }
  /// Makes the op added last a collective. Its halves are its parts.
  void describeCollective(Work work, Collective collective);
  void addPart(uint32_t device, Region whole, Region shard, const Value &term = {}) {
    addInstruction(device, kCollective);
    parts.push_back({whole, shard, term});
  }
  void addEdge(uint32_t before, uint32_t after) { edges.push_back({before, after}); }
  GroupState *findGroupState(uint32_t device, uint32_t group);
  /// Returns the ends of the runs that readers have of a group, ascending; empty: each reads all of
  /// it.
  std::vector<int64_t> readCuts(uint32_t group);
  /// Returns the window of tasks of cells that begin at a unit; kNone if none of them reads the
  /// group.
  uint32_t unshardIntervalOf(uint32_t group, int32_t unitBegin, bool backward) const;
  uint32_t unshardedParamOf(const GroupState &groupState, uint32_t interval) const {
    return unshardedParams[groupState.firstUnshardedParam + interval -
                           firstUnshardInterval[groupState.group]];
  }
  /// Returns the position of an owned run in an image. If the device does not read the image, its
  /// runs are concatenated there, as gathers expect them.
  int64_t offsetInUnsharded(uint32_t device, const GroupState &groupState, uint32_t interval,
                            const Compact::Run &run) const {
    const auto &readers = unshardIntervals[interval].readers;
    return std::binary_search(readers.begin(), readers.end(), device)
               ? groupState.position(run)
               : groupState.position(groupState.owned.runs()[0]) + run.place;
  }
  /// Returns the groups that a chunk uses, each once.
  std::vector<uint32_t> groupsIn(const ModelChunk &chunk);
  /// Returns the calls of a cell, and its buffers that only they access.
  const CellInside &insideOf(uint32_t cell);
  /// Returns the tables of a chunk's units.
  const LoweringTables &tablesOf(const ModelChunk &chunk);

  /// Returns the type of a group's parameters in units and in gathers.
  bundle::ElementType computeType(uint32_t group) const {
    return zorse::computeType(summary.groups(static_cast<int>(group)));
  }
  /// Whether units read copies in another type. Owners of a trainable group then also keep master
  /// weights in the group's type, which updates write.
  bool hasMaster(uint32_t group) const {
    return computeType(group) != summary.groups(group).type();
  }

  /// Whether owners cast copies in every step. Tables of layers (layers.json) have no cast
  /// function: their updates are assumed to also write the copies.
  bool casts(uint32_t group) const { return hasMaster(group) && summary.cast_function() != 0; }

  int32_t firstUnit(uint32_t group) const {
    const auto &units = summary.groups(static_cast<int>(group)).units();
    return units.empty() ? 0 : static_cast<int32_t>(units[0]);
  }

  /// Gradients of late units are complete first; those of a group with several units after the
  /// backward of its first unit.
  int32_t completionRank(uint32_t group) const { return -firstUnit(group); }

  /// Order of the gathers of windows: that in which their readers start.
  int32_t gatherRank(uint32_t window) const {
    const UnshardInterval &interval = unshardIntervals[window];
    return interval.backward ? -interval.unit : interval.unit;
  }
  bundle::Phase gatherPhase(uint32_t window) const {
    return unshardIntervals[window].backward ? bundle::BACKWARD : bundle::GATHER;
  }

  /// Returns the devices in `members` and the owners of a group, ascending.
  std::vector<uint32_t> participants(uint32_t group, const std::vector<uint32_t> &members) const;

  struct Run {
    int64_t begin, end; ///< elements
    uint32_t rule;      ///< ModelSummary.update_rules
    int64_t rows;       ///< of the call that updates them: elements, or matrices
  };
  /// Returns elements [begin, end) of a group without padding, one run per call of an update: split
  /// where the update rule changes, and so that the workspace of a call stays small.
  std::vector<Run> runsOf(uint32_t group, int64_t begin, int64_t end) const;
  std::vector<Run> splitRuns(const std::vector<Run> &whole) const;
  /// Whether runsOf is not empty.
  bool hasRuns(uint32_t group, int64_t begin, int64_t end) const;
  UpdateWork updateWork(uint32_t group, int64_t begin, int64_t end) const;
  /// Returns the bytes of workspace of the largest call.
  uint64_t updateWorkspace(uint32_t group, int64_t begin, int64_t end) const;
  /// Returns the number of optimizer states of a group.
  uint32_t statesOf(uint32_t group) const {
    return optimizerStates(summary, summary.groups(static_cast<int>(group)));
  }
  const zorse::StateLayout &stateLayout(uint32_t group, uint32_t state) {
    std::vector<zorse::StateLayout> &layouts = stateLayouts[group];
    while (layouts.size() <= state)
      layouts.emplace_back(summary, group, static_cast<uint32_t>(layouts.size()));
    return layouts[state];
  }

  /// Whether some unit of the cell computes the loss, so that its backward begins with the loss
  /// gradient.
  bool hasLoss(const Cell &cell) const {
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (summary.units(u).loss_terms_size())
        return true;
    return false;
  }

  /// Calls belong to the instruction added last, arguments to the call added last. `addArgument`
  /// omits an argument that the function does not have.
  Call &addCall(uint32_t function, int32_t unit, int64_t rows, int64_t sampleBase);
  void addArgument(bundle::ArgumentKind kind, uint32_t index, bundle::AccessMode mode,
                   Region region, const Value &value);
  bool functionHas(uint32_t function, bundle::ArgumentKind kind, uint32_t index) const;

  const Replicas &replicas; ///< see TimeOptions

  double taskSeconds(uint32_t cell, TaskKind kind);
  bool hasWork(uint32_t cell, TaskKind kind);

private:
  void listCells();
  void findChunks();

  std::vector<uint32_t> stamps;
  uint32_t stamp = 0;
};

inline Region region(uint32_t buffer, uint64_t offset, uint64_t bytes) {
  return {buffer, offset, bytes};
}

/// Returns the region of `elements` elements that starts at position `place` of a buffer.
inline Region elementRegion(uint32_t buffer, int64_t position, int64_t elements,
                            uint64_t elementSize) {
  return region(buffer, static_cast<uint64_t>(position) * elementSize,
                static_cast<uint64_t>(elements) * elementSize);
}

/// Returns the bytes of a cell's loss rows of one term.
uint64_t lossRowsBytes(const bundle::ModelSummary &summary, const Cell &cell);

Status checkSummary(const bundle::ModelSummary &summary);
/// Checks that sizes of the plan's cells do not overflow. Precondition: both arguments are valid.
Status checkSizes(const bundle::ModelSummary &summary, const Plan &plan);
/// Sets readers, contributors and owners of every state group, without buffers.
void findOwners(PlanLowering &x);
void layoutState(PlanLowering &x);
/// Sets windows and their uses. Precondition: readers are set.
void findUnshardIntervals(PlanLowering &x);
/// Returns the hints from an expansion's list: which windows are merged, and which tasks precede a
/// device's next image.
UnshardHints findUnshardHints(PlanLowering &x);
/// Returns the hints for cells that offload.
OffloadHints hintOffloads(const PlanLowering &x);
Status lowerCells(PlanLowering &x);
/// For a cell that offloads, adds the copies to the host after its F. \param originalOf  returns
/// F's buffer of an item
void offloadToHost(PlanLowering &x, uint32_t cell,
                   const std::function<Region(const CellTemplate::OffloadedBuffer &)> &originalOf);
/// Adds the copies back from the host before the cell's B.
void prefetchFromHost(PlanLowering &x, uint32_t cell);
/// Applies the hints for offloads. Precondition: all cells are expanded.
void limitOffloads(PlanLowering &x);
/// \param reductions  also add reductions, norms, updates and the report; false: only loads and
/// gathers
void lowerState(PlanLowering &x, bool reductions = true);
/// Adds the updates of a device's shards, in the given order, after the op that decides.
void lowerUpdates(PlanLowering &x, uint32_t device, uint32_t decision,
                  const std::vector<GroupUpdate> &updates);
/// Moves transfers and collectives to the queue for direct transfers if all their devices are in
/// one group of PlanDevice::deviceToDevice. Precondition: all ops and edges exist except those of
/// the schedule.
void routeTransfers(PlanLowering &x);
/// Adds host staging to all other transfers. Follows routeTransfers.
void insertHostStaging(PlanLowering &x);

/// Computes the list of an expansion under an order. The error describes a cycle.
Status simulate(const PlanLowering &x, const Order &order, ListSchedule &listed);
/// Returns the message for an order that cannot run. \param finished  by op
std::string describeCycle(const PlanLowering &x, const Order &order,
                          const std::vector<uint8_t> &finished);

/// Returns the instruction of a half, without calls. Region.arena is a buffer.
Instruction instructionOf(const PlanLowering &x, const ScheduledOp &op, uint32_t instructionIndex);
/// Adds the instructions of all ops, with the calls of ops that belong to no cell. Region.arena is
/// a buffer.
void writeInstructions(PlanLowering &x);
/// Adds calls with their arguments to the instructions of cells' tasks, in list order. Regions are
/// final, or absent if there are no offsets.
void addCellCalls(PlanLowering &x);
/// Assigns an offset in its device's arena to every buffer, and sets MemoryUse.
void packArenas(PlanLowering &x, bool shareBytes);
/// Sets MemoryUse::least, activations, host and cellsAlive, and the list positions of buffers.
void measureMemory(PlanLowering &x);
/// Returns an itemized error for the devices with insufficient memory.
Status checkMemory(const PlanLowering &x);
/// Converts regions of buffers to regions of arenas.
void resolveOffsets(PlanLowering &x);
/// Sorts instructions by device and list order, and numbers queues.
void placeInstructions(PlanLowering &x);
void insertWaits(StepGraph &graph, bool overlapCommunication);

} // namespace zorse::step
