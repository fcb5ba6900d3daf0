// One step, expanded: what every device does, in one global order, with places in memory. Flat arrays that mirror schema/bundle.proto one to one.
//
//   expandPlan(summary, plan) -> StepGraph -> bundle::Program per device
//
// Step is the only place that turns a plan into tasks, transfers, collectives, copies, values and buffers (docs/architecture.md). A Span is a range
// of one of the arrays of StepGraph; entries of one device are contiguous and in ascending id, and ids are places in the global list.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::step {

struct Plan;
struct Cell;
class Costs;

/// [begin, end) of an array of StepGraph.
struct Span {
  uint32_t begin = 0, end = 0;
  uint32_t size() const { return end - begin; }
};

struct Region {
  uint32_t arena = 0; ///< index in DeviceProgram.arenas
  uint64_t offset = 0;
  uint64_t bytes = 0; ///< 0: absent
};

/// Samples [begin, end) of a step.
struct Samples {
  int64_t begin = 0, end = 0;
};

/// Elements [begin, end) of a state group.
struct Elements {
  int64_t begin = 0, end = 0;
};

/// What bytes mean: bundle::Value. A name, and the samples or elements of it that are there.
struct Value {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0, version = 0;
  int64_t begin = 0, end = 0;

  using Kind = bundle::Value;
  /// As units read them: the copy in the compute type where the group has one.
  static Value parametersToRead(bool copied, uint32_t group, Elements e) { return {copied ? Kind::PARAMETER_COPY : Kind::PARAMETERS, group, 0, e}; }
  static Value parameters(uint32_t group, Elements e) { return {Kind::PARAMETERS, group, 0, e}; }
  static Value gradients(uint32_t group, Elements e) { return {Kind::GRADIENTS, group, 0, e}; }
  static Value reducedGradients(uint32_t group, Elements e) { return {Kind::REDUCED_GRADIENTS, group, 0, e}; }
  static Value moments(uint32_t group, uint32_t which, Elements e) { return {Kind::MOMENTS, group, which, e}; }
  static Value activation(uint32_t value, Samples s) { return {Kind::ACTIVATION, value, 0, s}; }
  /// \param cut  units from it on have contributed
  static Value activationGradient(uint32_t value, uint32_t cut, Samples s) { return {Kind::ACTIVATION_GRADIENT, value, cut, s}; }
  static Value savedBlock(uint32_t unit, Samples s) { return {Kind::SAVED_BLOCK, unit, 0, s}; }
  static Value deferredBlock(uint32_t unit, Samples s) { return {Kind::DEFERRED_BLOCK, unit, 0, s}; }
  static Value inputRows(uint32_t input, Samples s) { return {Kind::INPUT_ROWS, input, 0, s}; }
  static Value lossRows(uint32_t unit, uint32_t term, Samples s) { return {Kind::LOSS_ROWS, unit, term, s}; }
  /// \param stage  0: as loaded, 1: with the decision, 2: with scaled seeds
  static Value scalars(uint32_t stage = 0) { return {Kind::STEP_SCALARS, stage, 0, Samples()}; }
  static Value sums() { return {Kind::SUMS, 0, 0, Samples()}; }
  static Value globalSum() { return {Kind::GLOBAL_SUM, 0, 0, Samples()}; }
  static Value optimizerStep() { return {Kind::OPTIMIZER_STEP, 0, 0, Samples()}; }
  /// Of the next step: what an update leaves.
  Value next() const {
    Value value = *this;
    value.version = 1;
    return value;
  }

  Value() = default;
  bool operator==(const Value &o) const {
    return kind == o.kind && id == o.id && cut == o.cut && begin == o.begin && end == o.end && version == o.version;
  }

private:
  template <typename Range>
  Value(Kind::Kind kind, uint32_t id, uint32_t cut, Range range) : kind(kind), id(id), cut(cut), begin(range.begin), end(range.end) {}
};

/// One slot of a call. Calls list every slot the function could have, in the order of (kind, index): whoever writes bundle::Call looks the slots
/// of its Body up by (kind, index) and drops those the body does not have (a backward that does not read its boundary input, say).
struct Slot {
  Region region;
  Value value;
  uint32_t index = 0;
  bundle::SlotKind kind : 8; // large steps have millions of slots: 64 bytes each
  bundle::AccessMode mode : 8;
  bool overwrite : 1; ///< ACCUMULATE: first contribution of the step in list order.

  Slot() : kind(bundle::SLOT_UNSPECIFIED), mode(bundle::ACCESS_UNSPECIFIED), overwrite(false) {}
};

struct Call {
  uint32_t body = 0;
  int32_t unit = -1;
  int64_t rows = 0;
  int64_t sampleBase = 0;
  uint64_t instanceBase = 0;
  Span slots;
};

enum class EntryKind : uint8_t { Compute, Copy, Send, Receive, LoadInput, LoadScalars, AllGather, ReduceScatter, AllReduce, Report };

/// One device's half of an entry of the global list. Which fields mean something depends on `kind`:
///
///   Compute        task, cell, group, calls
///   Copy           region (from), to, value
///   Send, Receive  peer, region, value
///   LoadInput      input, sampleBase, rows, region, value
///   LoadScalars    region, value
///   AllGather      collective, region (full), to (shard), value
///   ReduceScatter  collective, region (full), to (shard), parts, value
///   AllReduce      collective, region, parts, value (from), toValue
///   Report         region, value
struct Entry {
  uint32_t id = 0;    ///< place in the global list; the halves of a transfer or collective share it
  uint32_t queue = 0; ///< index in DeviceProgram.queues
  EntryKind kind = EntryKind::Compute;
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
  bundle::Compute::Task task = bundle::Compute::TASK_UNSPECIFIED;
  int32_t cell = -1, group = -1;
  uint32_t peer = 0, input = 0, collective = 0;
  int64_t sampleBase = 0, rows = 0;
  Region region, to;
  Region parts; ///< where the terms of a sum arrive, on a queue of kind DIRECT
  Value value, toValue;
  Span calls, waits;
  double plannedStart = 0, plannedEnd = 0;
};

struct Wait {
  uint32_t queue = 0;    ///< of this device
  uint32_t position = 0; ///< in that queue
  bool previousStep = false;
};

/// What the halves of a collective have in common. For AllGather `members` are the readers, for ReduceScatter the contributors in the order of
/// summation, for AllReduce all members in rank order; `shards` are what owners have, ascending elements (empty for AllReduce).
struct Collective {
  Value value; ///< of the whole
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
  bundle::ElementType type = bundle::F32;
  bundle::ReductionOrder order = bundle::RANKED;
  std::vector<uint32_t> members;
  std::vector<Shard> shards;
  int64_t chunk = 0; ///< elements of a shard that one round of a direct reduction adds
};

struct Arena {
  bundle::MemoryKind kind = bundle::DEVICE;
  uint64_t bytes = 0;
};

struct Queue {
  bundle::QueueKind kind = bundle::COMPUTE;
  uint32_t id = 0; ///< numbers the queues of one kind
};

/// State that lives across steps: parameter shards (and whole frozen groups), moments, the optimizer step.
struct PersistentState {
  Region region;
  Value value;
  bundle::ElementType type = bundle::F32;
};

/// Bytes by purpose, most at once, for reports and for the message when memory does not suffice. `total` is the arena.
struct MemoryUse {
  uint64_t state = 0;       ///< parameters and moments that live across steps
  uint64_t gathered = 0;    ///< parameters held for the step, or a part of it, only; what comes for an update
  uint64_t gradients = 0;   ///< accumulators and reduced shards
  uint64_t activations = 0; ///< peak of saved blocks, values, their gradients and inputs
  uint64_t workspace = 0;
  uint64_t total = 0;
  uint64_t host = 0;       ///< in the host's memory: state at home there, images of transfers
  uint64_t least = 0;      ///< peak of the bytes alive in list order: no placement could need less
  uint32_t cellsAlive = 0; ///< most cells between their forward and their backward at once
};

/// What a buffer is for. Images: state that has come from the host for an update. Staging: what waits in host memory for a transfer.
enum class Purpose : uint8_t { State, Gathered, Gradients, Activations, Workspace, Images, Staging };

/// A buffer's life on the simulated clock, for pictures of memory over the step.
struct BufferLife {
  uint32_t device = 0;
  Purpose purpose = Purpose::Activations;
  uint64_t bytes = 0;
  double begin = 0, end = 0; ///< seconds; persistent ones live for the whole step
};

/// What a device does in a step, and what it holds.
struct DeviceUse {
  MemoryUse memory;
  double busy = 0; ///< seconds of compute on the simulated clock
};

struct DeviceProgram : DeviceUse {
  std::string name;
  std::vector<Arena> arenas;
  std::vector<Queue> queues;
  Span entries;
  Span state;
  uint64_t plannedBytes = 0;
};

struct StepGraph {
  std::vector<DeviceProgram> devices; ///< one per device of the plan, idle ones included
  std::vector<Entry> entries;
  std::vector<Wait> waits;
  std::vector<Call> calls;
  std::vector<Slot> slots;
  std::vector<Collective> collectives;
  std::vector<PersistentState> state;
  uint32_t listLength = 0;         ///< ids are [0, listLength)
  double stepTime = 0;             ///< seconds on the simulated clock, first to last entry
  std::vector<BufferLife> buffers; ///< if ExpandOptions::keepBuffers
};

/// After what an expansion stops, for a look at it. Before the list there is, the entries of a device are numbered as they were made; before memory
/// there is no arena and every region is absent; only after all are there waits.
enum class ExpandUntil : uint8_t {
  Stages,      ///< tasks of cells, inputs, transfers between cells
  Offload,     ///< and parameters as they come: from hosts, and gathered. What activations do is of the stages
  Collectives, ///< and reductions, norms, updates, what goes back to hosts, the report
  Order,       ///< and one global list with times
  Memory,      ///< and a place for every buffer
  All,         ///< and waits
};

/// What expansions of one model have in common, found once: facts about its units, shapes of cells and their times. One thread at a time.
struct ExpansionTables;
/// \param summary, bodies, costs  as in every expansion that the tables are given to; they must outlive them
std::shared_ptr<ExpansionTables> makeExpansionTables(const bundle::ModelSummary &summary, const bundle::BodyLibrary *bodies, const Costs *costs);

/// What a cell takes of its device's memory, in bytes, as orders count it when they admit cells. Buffers count in multiples of 64.
struct CellMemory {
  uint64_t hold = 0;      ///< from its first receive to its last task, at most
  uint64_t deferred = 0;  ///< of it, what only begins with B, for W
  uint64_t passing = 0;   ///< besides, while one of its tasks runs or its results leave, at most
  uint64_t workspace = 0; ///< of its tasks, at most
};
CellMemory cellMemory(ExpansionTables &tables, const Cell &cell, bool splitBackward);

/// What expanding a plan and timing it have in common.
struct StepOptions {
  /// Bodies whose slot lists decide what a task really touches: a boundary input the backward does not have is freed after the forward. Without it,
  /// every slot the architecture allows is taken to exist: a correct program with a little more memory.
  const bundle::BodyLibrary *bodies = nullptr;
  /// Times of tasks and transfers, by the plan's devices; without it, FLOPs over the plan's speeds and its two links.
  const Costs *costs = nullptr;
  std::shared_ptr<ExpansionTables> tables; ///< null: made for this step
  bool checked = false;                    ///< the summary, the plan and the sizes that follow are known to be valid
  /// Orders that take samples in as memory lasts leave one part in so many of what activations may take to the gaps between placed buffers; 0: none.
  uint64_t gaps = 0;
  /// How often such orders are tried with fewer samples in flight, where a device lacks memory in the end.
  int tries = 6;
  /// Bytes of a shard that a direct reduction adds at once; a multiple of 512, which tests choose. 0: as many as bring an owner about 64 MiB from all
  /// contributors, at least 4 MiB: what crosses the quickest links (450 GB/s) in 150 us, several times as long as NCCL takes to begin.
  uint64_t directChunk = 0;
  /// Bytes of an array that come from the host for one update; a multiple of 512. Of groups of more than 32 such parts, one part in 32 comes at
  /// once. Tests choose less.
  uint64_t updatePart = 4 << 20;
};

/// Devices that do what others do at the same time: (like, twin), ascending.
using Twins = std::vector<std::pair<uint32_t, uint32_t>>;

struct TimeOptions : StepOptions {
  /// The plan has no cells for twins, and they take part in what concerns state alone. Their memory is that of the device they are like, but for
  /// what they own.
  const Twins *twins = nullptr;
};

struct StepTimes {
  double stepTime = 0;            ///< seconds on the simulated clock, first to last entry
  uint32_t listLength = 0;        ///< entries of the global list
  std::vector<DeviceUse> devices; ///< by the plan's devices; of memory `least`, `cellsAlive`, `host` and what they are made of are known
};

/// What a planner asks of a plan: its times, and the most that devices hold at once, without a place for any buffer. The list is that of expandPlan,
/// but where a timed order is made again because memory does not suffice: here `least` is compared with the device's memory, there what is placed.
/// An error for an invalid plan, or an order that cannot run.
Result<StepTimes> timeStep(const bundle::ModelSummary &summary, const Plan &plan, const TimeOptions &options = {});

struct ExpandOptions : StepOptions {
  bool keepBuffers = false;
  /// Refuse a plan that does not fit the devices' memory (the planner turns this off to grade candidates).
  bool checkMemory = true;
  ExpandUntil until = ExpandUntil::All;
  /// Buffers whose lives do not meet share bytes. Measurements compare with steps that share none.
  bool shareBytes = true;
};

/// Expands a plan: tasks, values, state, order, memory, waits. Validates first. The result depends on the arguments alone.
/// An error (see Plan.h) for an invalid plan, an order that cannot run (the cycle is printed) or too little memory (itemised).
Result<StepGraph> expandPlan(const bundle::ModelSummary &summary, const Plan &plan, const ExpandOptions &options = {});

} // namespace zorse::step
