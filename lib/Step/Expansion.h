// What the phases of expandPlan share. Internal to lib/Step.
//
//   CellTemplates   what equal cells have in common: sums for planning, calls for programs
//   layoutState     who reads, contributes to and owns every group; their buffers
//   findWindows     which tasks read one image of a group's parameters
//   expandCells     F and B of every cell, values between them, inputs, transfers
//   sendToHost, bringBack   what a cell that offloads leaves for its backward
//   expandState     gathers, reductions, norms, the decision, the report
//   expandUpdates   updates, and what comes from the host and goes back for them
//   routeTransfers  what goes directly from GPU to GPU
//   stageTransfers  copies between a device and its host, where transports reach the host alone
//   ScheduleRule    the schedule as edges, priorities and admission (zorse/Step/Schedules.h)
//   simulate        one global list
//   measureMemory   the peak of what is alive; a planner stops here
//   packArenas      a place for every buffer
//   writeEntries    what each device does for each op
//   addCellCalls    calls of cells' tasks
//   computeWaits    what the places and the list still need
#pragma once

#include "CellTemplates.h"
#include "Order.h"

#include "zorse/Step/Costs.h"
#include "zorse/Step/Orders.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace zorse::step {

// What follows from the summary alone, for files that use this namespace.
using zorse::alignRegion;
using zorse::Compact;
using zorse::elementBytes;
using zorse::kRegionAlignment;
using zorse::kScalarsBlock;
using zorse::kScalarsBytes;
using zorse::kStateAlignment;
using zorse::kSumsBytes;
using zorse::Shard;
using zorse::wideType;

inline constexpr uint32_t kNone = UINT32_MAX;

struct TaskSeconds;
struct Buffer {
  uint64_t bytes = 0;
  uint32_t device = 0;
  uint32_t number = 0;              ///< in programs, which count the buffers inside cells, too: breaks ties where buffers are placed
  uint32_t first = kNone, last = 0; ///< known once the list is: places of the first and last entry that touch it
  bundle::MemoryKind memory = bundle::DEVICE;
  Purpose purpose = Purpose::Activations;
  bool persistent = false; ///< never shares bytes
  bool late = false;       ///< of updates: in use while the next step has begun, and shares bytes with its like alone where there is room
};

/// Where packArenas puts a buffer, and when the last entry that touches it ends.
struct Place {
  double freeTime = 0;
  uint32_t arena = 0; ///< of its device
  uint64_t offset = 0;
};

/// Buffers and their places, by number; bytes are 0 where nothing is touched.
struct Placement {
  std::vector<Buffer> buffers;
  std::vector<Place> places;
};

/// The queues that a device can have; Entry.queue holds an index of this table until placeEntries numbers those that are used.
enum QueueIndex : uint8_t { kCompute, kSend, kReceive, kCollective, kLoad, kReport, kDirect, kUpdate, kHostUpdate, kFetch, kStore, kQueues };
inline constexpr Queue kQueueTable[kQueues] = {{bundle::COMPUTE, 0},          {bundle::SEND_QUEUE, 0},     {bundle::RECEIVE_QUEUE, 0},
                                               {bundle::COLLECTIVE_QUEUE, 0}, {bundle::HOST_TO_DEVICE, 0}, {bundle::DEVICE_TO_HOST, 0},
                                               {bundle::DIRECT, 0},           {bundle::COMPUTE, 1},        {bundle::COMPUTE, 2},
                                               {bundle::HOST_TO_DEVICE, 1},   {bundle::DEVICE_TO_HOST, 1}};

/// What a queue needs besides itself: a device computes one thing at a time, and brings one thing at a time from its host and there, on whichever of
/// its queues. Updates have queues of their own so that what comes next does not stand behind them.
inline constexpr QueueIndex besides(size_t queue) {
  return queue == kUpdate ? kCompute : queue == kFetch ? kLoad : queue == kStore ? kReport : kQueues;
}

/// What an op asks of the simulation.
enum class Work : uint8_t { Fixed, Transfer, Gather, Scatter, Sum };

/// What an op does. Op::subject says with what.
enum class OpKind : uint8_t {
  Join, ///< nothing: it is ordered and not listed
  Forward,
  Backward,
  Weights,
  SumLoss,   ///< of a cell
  LoadInput, ///< in Expansion::inputs
  LoadScalars,
  ScaleSeeds, ///< of a device
  Move,       ///< in Expansion::moves
  Copy,       ///< in Expansion::copies
  Cast,       ///< likewise, into another type
  Collective, ///< in Expansion::parts: that of its first half
  Norm,       ///< of a group
  Decide,     ///< 1: before there are sums
  Update,     ///< in Expansion::updates
  Report,     ///< 1: scalars that have been decided about
};

/// One entry of the global list. `halves` are those of its devices; none: a barrier that is ordered but not listed.
struct Op {
  Span halves;
  double duration = 0;       ///< seconds; of a transfer alone on an idle network, latency included; of a collective 0
  uint64_t priority = 0;     ///< in an order without a schedule: see Order::priority
  double bytes = 0;          ///< Transfer, Sum
  uint32_t from = 0, to = 0; ///< Transfer: devices. Collectives: `from` is the index in StepGraph::collectives
  uint32_t cell = kNone;     ///< that it is a task of, or brings something to
  uint32_t subject = 0;      ///< see OpKind
  OpKind kind = OpKind::Join;
  Work work = Work::Fixed;
  bool enters = false; ///< it takes memory for the cell's forward: waits until the cell is admitted
  bool direct = false; ///< goes from memory of GPUs to memory of GPUs
};

/// What a device has to do with a state group.
struct Holding {
  uint32_t group = 0;
  bool reads = false; ///< has cells that use it; for trainable groups it then contributes
  Compact owned;      ///< elements
  double weight = 0;  ///< units x samples it contributes
  Residence at;
  uint32_t home = kNone;                ///< buffer: where parameters live from step to step, in the group's type: what is owned, but for `readsHome`
  bool readsHome = false;               ///< units read, and gathers fill, the home: the whole group for readers, else what is owned
  uint32_t firstImage = kNone;          ///< of Expansion::images, one for each of the group's windows: what units read, in the compute type, as large
  uint32_t gradients = kNone;           ///< buffer: as large, in the group's type
  uint32_t reduced = kNone;             ///< buffer of their sum over all contributors: `gradients`, or what is owned alone
  uint32_t left = kNone;                ///< buffer on the host: reduced gradients of what is owned, from their norm to the update
  uint32_t moments[2] = {kNone, kNone}; ///< of what is owned
  bool owns() const { return !owned.empty(); }
  /// The place of an owned run in images and in `gradients`, and that in `reduced`; elsewhere it is the run's own.
  int64_t place(const Compact::Run &run) const { return reads ? run.begin : run.place; }
  int64_t reducedPlace(const Compact::Run &run) const { return reduced == gradients ? place(run) : run.place; }
};

/// The update of what a device owns of a group.
struct GroupUpdate {
  const Holding *holding = nullptr;
  std::vector<uint32_t> left;  ///< ops, by owned run, that have taken its reduced gradients to the host; none: they are on the device
  std::vector<uint32_t> after; ///< ops
};

/// Tasks of a group's readers that read one image of its parameters.
struct Window {
  uint32_t group = 0;
  int32_t unit = 0;      ///< the first that reads it
  bool backward = false; ///< only backwards read it
  std::vector<uint32_t> readers;
  uint32_t gather = kNone; ///< op
};

/// Which window tasks of one direction read whose cell's first unit that uses the group is `unit`.
struct WindowUse {
  bool backward = false;
  int32_t unit = 0;
  uint32_t window = 0;
};

/// What a first list says of cells that offload.
struct OffloadHints {
  /// By cell: its F comes when so few cells before it still have activations on the device that they stay there.
  std::vector<uint8_t> stays;
  struct Limit {
    uint32_t cell; ///< whose activations come back after a task
    TaskName after;
  };
  std::vector<Limit> back;
  std::vector<std::pair<uint32_t, uint32_t>> out; ///< (cell, later cell): the activations of the one have left before the F of the other
  std::vector<std::vector<TaskName>> order;       ///< by device: tasks in the first list, with which all of these agree
};

/// What a first list says of windows, and of cells that offload. Numbers of windows count those of their group.
struct WindowHints {
  struct Limit {
    uint32_t group = 0, window = 0, device = 0;
    std::vector<TaskName> tasks; ///< of the device, after which the window's image may come
  };
  std::vector<std::vector<uint32_t>> same; ///< by group and use: the window
  std::vector<Limit> limits;
  OffloadHints offload;
};

/// A value at a cut of a cell, in forward or backward direction.
struct Source {
  uint32_t op = kNone;
  int64_t begin = 0, end = 0; ///< samples it makes ready
};
struct Port {
  uint32_t value = 0;
  uint32_t buffer = kNone;
  int64_t rowBase = 0; ///< sample at the buffer's first row
  Span sources;
};

/// Cells of one device and unit range, by first sample.
struct Chunk {
  uint32_t device = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  std::vector<uint32_t> cells;
  int64_t rows = 0;
  uint32_t band = 0;
};

/// Chunks of one device whose unit ranges overlap: different samples go different ways through one stage. In a steady state they recur together.
struct Band {
  uint32_t device = 0;
  int32_t unitBegin = 0, unitEnd = 0;
  std::vector<uint32_t> cells; ///< by samples
  int64_t rows = 0;
};

/// The ops of a cell's task: it needs what comes before the one that begins it, and has made everything after the one that ends it.
struct CellTask {
  uint32_t begin = kNone, end = kNone;
  bool exists() const { return begin != kNone; }
};

struct CellInfo {
  CellTask forward, backward;
  CellTask weights; ///< where the plan splits the backward
  const CellTask &of(TaskKind kind) const { return kind == TaskKind::Forward ? forward : kind == TaskKind::Backward ? backward : weights; }
  /// The task after which the cell's gradients are complete and its activations free.
  const CellTask &last() const { return weights.exists() ? weights : backward; }
  Span in, out;         ///< ports at the first and last cut, in the order of liveAt
  Span gradIn, gradOut; ///< ports of gradients at the last and first cut, in the order of gradsAt
  Span produced;        ///< ports of values produced here
  Span loads;           ///< of Expansion::loads, in the order of CellTemplate::inputs
  Span offloads;        ///< of Expansion::offloads, in the order of CellTemplate::leaving
  // Numbers of buffers: the first of those that F needs, of those that B and W need besides, and of saved blocks that come back from the host.
  uint32_t numberOfF = kNone, numberOfB = kNone, numberOfImages = kNone;
};

/// One of a cell's CellTemplate::leaving.
struct Offloaded {
  bool block;
  uint32_t id;
  TaskSet later;
  uint32_t image = kNone, host = kNone; ///< buffers; the image is the original where it stays
  uint32_t out = kNone, back = kNone;   ///< ops; none where it stays
};

/// Samples of a value, or of its gradient, from one cell's buffer to another's.
struct Move {
  uint32_t from = kNone, to = kNone; ///< buffers
  int64_t fromBase = 0, toBase = 0;  ///< samples at their first rows
  int64_t begin = 0, end = 0;
  uint32_t value = 0;
  uint32_t cut = kNone; ///< of a gradient: see bundle::Value; kNone: it is the value
};

/// A copy on one device, or between it and its host. Regions are of buffers.
struct CopyOp {
  Region from, to;
  Value value;
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
};

/// A device's part in a collective, of buffers: the whole where it is a member, its shard where it is an owner.
struct Part {
  Region whole, shard;
};

/// The update of elements [begin, end) of a group.
struct UpdateOp {
  /// An array of the group: its element `base` is the buffer's first.
  struct Where {
    uint32_t buffer = kNone;
    int64_t base = 0;
  };
  uint32_t group = 0;
  int64_t begin = 0, end = 0;
  Where arrays[4];                        ///< parameters, reduced gradients, moments
  uint32_t scalars = kNone, step = kNone; ///< buffers of what has been decided
};

/// Rows of a graph input that one op brings for all cells of a device within them.
struct InputRows {
  uint32_t input = 0;
  int64_t begin = 0, end = 0;
  uint32_t buffer = kNone, op = kNone;
};

/// Costs from FLOPs over the plan's speeds and its links. Refers to both.
std::unique_ptr<Costs> planCosts(const bundle::ModelSummary &summary, const Plan &plan);

/// The arrays of an expansion that grow with its cells. The next expansion under the same tables uses their memory: fresh pages would take a
/// planner's candidate longer than what is written to them.
struct ExpansionArrays {
  std::vector<Buffer> buffers; ///< but for those inside cells
  Placement placement;         ///< of what is listed, once packArenas has run
  std::vector<Op> ops;
  std::vector<uint32_t> halfQueues;                  ///< per half: device * kQueues + queue
  std::vector<std::pair<uint32_t, uint32_t>> edges;  ///< (before, after)
  IndexLists next;                                   ///< the same by the op before, once all are there
  enum class Side : uint8_t { Both, Before, After }; ///< of a transfer: what it takes from a buffer, or leaves there
  struct Touch {
    uint32_t op, buffer;
    Side side;
  };
  std::vector<Touch> touches; ///< what ops touch, but for what CellTemplate says of a cell

  Order order;         ///< what the schedule asked for last
  ListSchedule listed; ///< what became of it

  IndexLists cellsByBegin, cellsByEnd;        ///< per cut, by first sample
  IndexLists cellsOf;                         ///< per device, by (first sample, first unit)
  std::vector<const CellTemplate *> shapeOf;  ///< per cell
  std::vector<const TaskSeconds *> secondsOf; ///< per cell
  std::vector<uint32_t> chunkOf;              ///< per cell
  std::vector<CellInfo> cells;
  std::vector<Port> ports;
  std::vector<Source> sources;
  std::vector<InputRows> inputs; ///< by op, likewise the next two
  std::vector<Move> moves;
  std::vector<CopyOp> copies;
  std::vector<Part> parts;         ///< of collectives, by half
  std::vector<uint32_t> loads;     ///< lists of indices in `inputs` by cell
  std::vector<Offloaded> offloads; ///< lists by cell

  // Scratch of measureMemory.
  std::vector<uint64_t> taken, given;
  std::vector<int32_t> cellsBegun;

  void clear();
};

struct Expansion : ExpansionArrays {
  Expansion(const bundle::ModelSummary &summary, const Plan &plan, const StepOptions &options, ExpansionTables &tables,
            const WindowHints *hints = nullptr, const Twins *twins = nullptr);
  ~Expansion();
  Expansion(const Expansion &) = delete;

  const bundle::ModelSummary &summary;
  const Plan &plan;
  const StepOptions &options;
  ExpansionTables &tables;
  const Costs *costs;
  StepGraph graph; ///< until placeRegions, Region.arena is a buffer and offset is relative to it

  uint32_t numbers = 0;          ///< of all buffers
  std::vector<double> linkLoads; ///< by resource of the network: seconds that transfers between cells keep it busy
  uint32_t cellOps = 0;          ///< ops below are of cells: each has a higher index than what it needs, but for state and scalars

  // Facts about plan and model.
  const std::vector<std::vector<uint32_t>> &liveAt, &gradsAt; ///< per cut: values live across it; those with gradients
  const std::vector<std::vector<uint32_t>> &groupsOf;         ///< per unit, ascending
  std::vector<Chunk> chunks;                                  ///< by device
  std::vector<Band> bands;                                    ///< by device
  std::vector<uint32_t> bandsOf;                              ///< per device: how many
  std::vector<std::vector<Holding>> holdings;                 ///< per device, by group
  std::vector<std::vector<uint32_t>> readersOf, ownersOf;     ///< per group: devices; owners in the order of their extents
  std::vector<uint32_t> scalars;                              ///< per device: buffer of the scalars block, kNone for idle devices
  std::vector<uint32_t> loadScalars;                          ///< per device: op
  std::vector<uint32_t> workspace;                            ///< per device: buffer
  std::vector<uint32_t> optimizerStep;                        ///< per device: buffer, kNone where nothing is decided
  std::vector<std::vector<uint32_t>> sumLoss;                 ///< per device: ops
  std::vector<Window> windows;                                ///< by group
  std::vector<uint32_t> firstWindow;                          ///< per group, and the end
  std::vector<std::vector<WindowUse>> usesOf;                 ///< per group; none: it has one window
  std::vector<uint32_t> images;                               ///< buffers, kNone for windows that the device has nothing to do with
  const WindowHints *hints;                                   ///< null: no list is known
  std::vector<UpdateOp> updates;                              ///< by op
  /// By half of transfers and collectives. Where devices are staged: what it works on in the host's memory, in place of its regions. Where sums are
  /// direct: where their terms arrive.
  std::map<uint32_t, std::pair<Region, Region>> staged;
  std::map<uint32_t, Region> terms;
  void touch(uint32_t op, uint32_t buffer, Side side = Side::Both) { touches.push_back({op, buffer, side}); }
  void touch(const CellTask &task, uint32_t buffer) {
    touch(task.begin, buffer);
    if (task.end != task.begin)
      touch(task.end, buffer);
  }

  uint32_t addBuffer(uint32_t device, uint64_t bytes, Purpose purpose, bool persistent = false, Tier tier = Tier::Device);
  /// An activation of a cell whose number has been taken.
  uint32_t addNumbered(uint32_t device, uint64_t bytes, uint32_t number);
  /// \returns the first of `count` numbers of buffers
  uint32_t takeNumbers(uint32_t count) { return std::exchange(numbers, numbers + count); }
  uint32_t addOp(double duration, uint8_t rank, int64_t sample, int32_t unit);
  /// A send and its receive; the halves are added by the caller.
  uint32_t addTransfer(uint32_t from, uint32_t to, uint64_t bytes, uint8_t rank, int64_t sample, int32_t unit);
  /// A copy between a device and its host, on a queue from or to the host. Regions are of buffers.
  uint32_t addTierCopy(uint32_t device, QueueIndex queue, bundle::Phase phase, Region from, Region to, Value value, uint64_t priority);
  /// Adds a half to the op added last.
  void addHalf(uint32_t device, QueueIndex queue);
  /// Of the op added last.
  void describe(OpKind kind, uint32_t subject) {
    ops.back().kind = kind;
    ops.back().subject = subject;
  }
  /// Likewise.
  void describeCopy(Region from, Region to, const Value &value, bundle::Phase phase, OpKind kind = OpKind::Copy) {
    describe(kind, static_cast<uint32_t>(copies.size()));
    copies.push_back({from, to, value, phase});
  }
  /// Likewise; its halves are its parts.
  void describeCollective(Work work, Collective collective);
  void addPart(uint32_t device, Region whole, Region shard) {
    addHalf(device, kCollective);
    parts.push_back({whole, shard});
  }
  void addEdge(uint32_t before, uint32_t after) { edges.push_back({before, after}); }
  Holding *findHolding(uint32_t device, uint32_t group);
  /// The window of tasks of cells that begin at a unit; kNone if none of them reads the group.
  uint32_t windowOf(uint32_t group, int32_t unitBegin, bool backward) const;
  uint32_t imageOf(const Holding &holding, uint32_t window) const { return images[holding.firstImage + window - firstWindow[holding.group]]; }
  /// The place of an owned run in an image. Who does not read it has its runs there one behind the other, as gathers find them.
  int64_t placeInImage(uint32_t device, const Holding &holding, uint32_t window, const Compact::Run &run) const {
    const auto &readers = windows[window].readers;
    return std::binary_search(readers.begin(), readers.end(), device) ? holding.place(run) : holding.place(holding.owned.runs()[0]) + run.place;
  }
  /// Groups that units [begin, end) use, each once.
  std::vector<uint32_t> groupsIn(int32_t unitBegin, int32_t unitEnd);

  /// Type of a group's parameters as units read them and gathers carry them.
  bundle::ElementType computeType(uint32_t group) const { return zorse::computeType(summary.groups(static_cast<int>(group))); }
  /// Units read copies in another type; owners of trainable groups keep the parameters in the group's type besides, which updates write.
  bool hasMaster(uint32_t group) const { return computeType(group) != summary.groups(group).type(); }

  /// Owners cast copies in every step. Models of which only dimensions are known (planning::ModelShape) have no body for it: their updates are taken
  /// to write the copies, too.
  bool casts(uint32_t group) const { return hasMaster(group) && summary.cast_body() != 0; }

  int32_t firstUnit(uint32_t group) const {
    const auto &units = summary.groups(static_cast<int>(group)).units();
    return units.empty() ? 0 : static_cast<int32_t>(units[0]);
  }

  struct Run {
    int64_t begin, end; ///< elements
    bool decays;
  };
  /// Elements [begin, end) of a group without padding, cut where weight decay changes.
  std::vector<Run> runsOf(uint32_t group, int64_t begin, int64_t end) const;
  /// Whether there are any.
  bool hasRuns(uint32_t group, int64_t begin, int64_t end) const;

  /// Some unit of the cell computes the loss: its backward begins with seeds.
  bool hasLoss(const Cell &cell) const {
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (summary.units(u).loss_terms_size())
        return true;
    return false;
  }

  /// Calls belong to the entry added last; slots to the call added last. A slot the body does not have is left out.
  Call &addCall(uint32_t body, int32_t unit, int64_t rows, int64_t sampleBase);
  void addSlot(bundle::SlotKind kind, uint32_t index, bundle::AccessMode mode, Region region, Value value, bool overwrite = false);
  bool bodyHas(uint32_t body, bundle::SlotKind kind, uint32_t index) const;

  const Twins &twins; ///< see TimeOptions

  double taskSeconds(uint32_t cell, TaskKind kind);
  bool hasWork(uint32_t cell, TaskKind kind);

private:
  void listCells();
  void findChunks();

  std::vector<uint32_t> stamps;
  uint32_t stamp = 0;
};

inline Region region(uint32_t buffer, uint64_t offset, uint64_t bytes) { return {buffer, offset, bytes}; }

/// So many elements of a group from a place in a buffer on.
inline Region elementRegion(uint32_t buffer, int64_t place, int64_t elements, uint64_t elementSize) {
  return region(buffer, static_cast<uint64_t>(place) * elementSize, static_cast<uint64_t>(elements) * elementSize);
}

/// Bytes of a cell's loss rows of one term.
uint64_t lossRowsBytes(const bundle::ModelSummary &summary, const Cell &cell);

/// Cells of one rectangle are on several devices, which exchange values. In the order of the plan, a cell's own included.
std::vector<uint32_t> membersOf(const Expansion &x, uint32_t cell);
/// The rows of such a cell that are a member's where they divide them.
Samples shareOf(const Cell &cell, size_t member, size_t members);

Status checkSummary(const bundle::ModelSummary &summary);
/// Whether the plan's cells keep sizes within what the arithmetic of sizes bears. Precondition: both have been checked.
Status checkSizes(const bundle::ModelSummary &summary, const Plan &plan);
void layoutState(Expansion &x);
/// After readers are known: fills windows and which uses are theirs.
void findWindows(Expansion &x);
/// What the list of an expansion says of its windows: which are one, and which tasks the next image of a device waits for.
WindowHints hintWindows(Expansion &x);
/// Likewise of cells that offload.
OffloadHints hintOffloads(const Expansion &x);
Status expandCells(Expansion &x);
/// Of a cell that offloads, after its F: what leaves for the host. \param originalOf  where F has it
void sendToHost(Expansion &x, uint32_t cell, const std::function<Region(const CellTemplate::Leaving &)> &originalOf);
/// Before its B: it comes back.
void bringBack(Expansion &x, uint32_t cell);
/// After all cells are expanded: as hints say.
void limitOffloads(Expansion &x);
/// \param reductions  and what follows them; else only loads and gathers
void expandState(Expansion &x, bool reductions = true);
/// The updates of what a device owns, in the order given, after the op that decides.
void expandUpdates(Expansion &x, uint32_t device, uint32_t decision, const std::vector<GroupUpdate> &updates);
/// After all entries and edges are there but those of the schedule: moves transfers and collectives to the queue for what is direct, where all their
/// devices are of one group of PlanDevice::direct.
void routeTransfers(Expansion &x);
/// Then: of all others.
void stageTransfers(Expansion &x);

/// The list of an expansion under an order. The error describes a cycle.
Status simulate(const Expansion &x, const Order &order, ListSchedule &listed);

/// A half's entry, but for calls. Regions are of buffers.
Entry entryOf(const Expansion &x, const Op &op, uint32_t half);
/// Adds the entries of all ops, with the calls of those that are of no cell. Regions are of buffers.
void writeEntries(Expansion &x);
/// Adds calls with their slots to the entries of cells' tasks, in the order of the list. Regions are final, or absent as long as there are no places.
void addCellCalls(Expansion &x);
/// Places every buffer in its device's arena and says how memory is used.
void packArenas(Expansion &x, bool shareBytes);
/// MemoryUse::least, activations, host and cellsAlive, and the places of buffers in the list.
void measureMemory(Expansion &x);
/// Itemises the devices that lack memory.
Status checkMemory(const Expansion &x);
/// Turns regions of buffers into regions of arenas.
void placeRegions(Expansion &x);
/// Places entries per device in list order and numbers queues.
void placeEntries(Expansion &x);
void computeWaits(StepGraph &graph, bool blocking);

} // namespace zorse::step
