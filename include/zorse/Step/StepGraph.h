// The expanded step: all instructions of every device in one global order, with memory offsets.
// Flat arrays with the same structure as schema/bundle.proto.
//
//     lowerPlan(summary, plan) -> StepGraph -> bundle::Program per device
//
// Only Step converts a plan to tasks, transfers, collectives, copies, values and buffers
// (docs/internals/step-lowering.md). A Span is a range of one of the arrays of StepGraph. The
// instructions of one device are contiguous and in ascending id; ids are positions in the global
// list.
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

/// Meaning of a buffer's bytes, as bundle::Value: a name, and the range of its samples or elements.
struct Value {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0, version = 0;
  int64_t begin = 0, end = 0;

  using Kind = bundle::Value;
  /// Parameters as units read them: the copy in the compute type if the group has one.
  static Value parametersToRead(bool copied, uint32_t group, Elements e) {
    return {copied ? Kind::LOW_PRECISION_PARAMETERS : Kind::PARAMETERS, group, 0, e};
  }
  static Value parameters(uint32_t group, Elements e) { return {Kind::PARAMETERS, group, 0, e}; }
  static Value gradients(uint32_t group, Elements e) { return {Kind::GRADIENTS, group, 0, e}; }
  static Value reducedGradients(uint32_t group, Elements e) {
    return {Kind::REDUCED_GRADIENTS, group, 0, e};
  }
  /// \param treeGroup  group of the reduction's tree that the sum is of
  static Value partialGradients(uint32_t group, uint32_t treeGroup, Elements e) {
    return {Kind::REDUCED_GRADIENTS, group, treeGroup + 1, e};
  }
  static Value moments(uint32_t group, uint32_t which, Elements e) {
    return {Kind::MOMENTS, group, which, e};
  }
  static Value activation(uint32_t value, Samples s) { return {Kind::ACTIVATION, value, 0, s}; }
  /// \param cut  units from `cut` on have contributed
  static Value activationGradient(uint32_t value, uint32_t cut, Samples s) {
    return {Kind::ACTIVATION_GRADIENT, value, cut, s};
  }
  static Value savedBlock(uint32_t unit, Samples s) { return {Kind::SAVED_BLOCK, unit, 0, s}; }
  static Value deferredBlock(uint32_t unit, Samples s) {
    return {Kind::SAVED_FOR_WEIGHT_GRAD_BLOCK, unit, 0, s};
  }
  /// What the devices of a group exchange in a task of a unit. \param done  the devices' parts have
  /// been exchanged
  static Value exchange(uint32_t unit, uint32_t number, bool done, Samples s) {
    Value value{Kind::EXCHANGED, unit, number, s};
    value.version = done;
    return value;
  }
  /// A part of what devices exchange, in a copy. \param block  number of blocks of
  /// kRegionAlignment bytes before it
  Value exchangePart(uint32_t block) const {
    Value value = *this;
    value.version = (version & 1) | block << 1;
    return value;
  }
  uint32_t exchangeVersion() const { return version & 1; }
  uint32_t exchangeBlock() const { return version >> 1; }
  static Value inputRows(uint32_t input, Samples s) { return {Kind::INPUT_ROWS, input, 0, s}; }
  static Value lossRows(uint32_t unit, uint32_t term, Samples s) {
    return {Kind::LOSS_ROWS, unit, term, s};
  }
  /// \param stage  0: as loaded, 1: with the decision, 2: with scaled loss gradients
  static Value scalars(uint32_t stage = 0) { return {Kind::STEP_SCALARS, stage, 0, Samples()}; }
  static Value sums() { return {Kind::LOCAL_METRICS, 0, 0, Samples()}; }
  static Value globalSum() { return {Kind::GLOBAL_METRICS, 0, 0, Samples()}; }
  static Value optimizerStep() { return {Kind::OPTIMIZER_STEP, 0, 0, Samples()}; }
  /// The value in the next step, which an update writes.
  Value next() const {
    Value value = *this;
    value.version = 1;
    return value;
  }

  Value() = default;
  bool operator==(const Value &o) const {
    return kind == o.kind && id == o.id && cut == o.cut && begin == o.begin && end == o.end &&
           version == o.version;
  }

private:
  template <typename Range>
  Value(Kind::Kind kind, uint32_t id, uint32_t cut, Range range)
      : kind(kind), id(id), cut(cut), begin(range.begin), end(range.end) {}
};

/// One argument of a call. Calls list every argument that the function could have, ordered by
/// (kind, index). writeProgram looks up the arguments of the function by (kind, index) and drops
/// those that the function does not have (for example the boundary input of a backward that does
/// not read it).
struct FunctionArgument {
  Region region;
  Value value;
  uint32_t index = 0;
  bundle::ArgumentKind kind : 8; // large steps have millions of arguments: 64 bytes each
  bundle::AccessMode mode : 8;
  bool overwrite : 1; ///< ACCUMULATE: first contribution of the step in list order.

  FunctionArgument()
      : kind(bundle::ARGUMENT_UNSPECIFIED), mode(bundle::ACCESS_UNSPECIFIED), overwrite(false) {}
};

struct Call {
  uint32_t function = 0;
  int32_t unit = -1;
  int64_t rows = 0;
  int64_t sampleBase = 0;
  uint64_t rngIdBase = 0;
  uint32_t segment = 0; ///< number of exchanges of the function before its launches
  Span arguments;
};

enum class InstructionKind : uint8_t {
  Compute,
  Copy,
  Send,
  Receive,
  LoadInput,
  LoadScalars,
  AllGather,
  ReduceScatter,
  AllReduce,
  ReadMetrics
};

/// One device's half of an instruction of the global list. `kind` determines which fields are used:
///
///   Compute        task, cell, group, calls
///   Copy           region (from), to, value
///   Send, Receive  peer, region, value
///   LoadInput      input, sampleBase, rows, region, value
///   LoadScalars    region, value
///   AllGather      collective, region (full), to (shard), value
///   ReduceScatter  collective, region (full), to (shard), parts, sends, value
///   AllReduce      collective, region, parts, value (from), toValue
///   ReadMetrics    region, value
struct Instruction {
  uint32_t id = 0; ///< position in the global list; the halves of a transfer or collective share it
  uint32_t queue = 0; ///< index in DeviceProgram.queues
  InstructionKind kind = InstructionKind::Compute;
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
  bundle::Compute::Task task = bundle::Compute::TASK_UNSPECIFIED;
  int32_t cell = -1, group = -1;
  uint32_t peer = 0, input = 0, collective = 0;
  int64_t sampleBase = 0, rows = 0;
  Region region, to;
  Region parts; ///< buffer for the terms of a sum, on a queue of kind DEVICE_TO_DEVICE
  Region sends; ///< the same for rounded terms that the device sends
  Value value, toValue;
  Span calls, waits;
  double plannedStart = 0, plannedEnd = 0;
};

struct Wait {
  uint32_t queue = 0;    ///< queue of this device
  uint32_t position = 0; ///< position in that queue
  bool previousStep = false;
};

/// Data shared by the halves of a collective. `members`: the readers of an AllGather, the
/// contributors of a ReduceScatter in summation order, all members of an AllReduce in rank order.
/// `shards`: the owners' elements, ascending (empty for an AllReduce). `parts`: the members'
/// elements, ascending per member; empty: each has all of them. A shard is completely in a member's
/// part or not at all.
struct Collective {
  Value value; ///< of the whole
  bundle::Phase phase = bundle::PHASE_UNSPECIFIED;
  bundle::ElementType type = bundle::F32;
  bundle::ReductionOrder order = bundle::FIXED_ORDER;
  std::vector<uint32_t> members;
  std::vector<Shard> shards, parts;
  int64_t chunk = 0;      ///< elements of a shard that one round of a direct reduction adds
  bool bf16Terms = false; ///< of a ReduceScatter: ReduceScatter.term_type is BF16

  /// Bytes of an element of a term of a sum of several terms.
  double termBytes() const;
};

struct Arena {
  bundle::MemoryKind kind = bundle::DEVICE;
  uint64_t bytes = 0;
};

struct Queue {
  bundle::QueueKind kind = bundle::COMPUTE;
  uint32_t id = 0; ///< number among the queues of one kind
};

/// State that persists across steps: parameter shards (and whole frozen groups), moments, the
/// optimizer step.
struct PersistentState {
  Region region;
  Value value;
  bundle::ElementType type = bundle::F32;
};

/// Peak bytes by purpose, for reports and for the message if memory does not suffice. `total` is
/// the arena.
struct MemoryUse {
  uint64_t state = 0;       ///< parameters and moments that persist across steps
  uint64_t gathered = 0;    ///< parameters gathered for the step or a part of it, and state fetched
                            ///< for an update
  uint64_t gradients = 0;   ///< accumulators and reduced shards
  uint64_t activations = 0; ///< peak of saved blocks, values, their gradients and inputs
  uint64_t workspace = 0;
  uint64_t total = 0;
  uint64_t host = 0; ///< bytes in the host's memory: state kept there, staging buffers of transfers
  uint64_t peakLiveBytes = 0;     ///< peak of live bytes in list order: a lower bound for every
                                  ///< placement
  uint32_t peakInFlightCells = 0; ///< maximum number of cells between their forward and their
                                  ///< backward
};

/// Purpose of a buffer. Images: state fetched from the host for an update. Staging: data in host
/// memory for a transfer.
enum class MemoryCategory : uint8_t {
  State,
  Gathered,
  Gradients,
  Activations,
  Workspace,
  UpdateStaging,
  Staging
};

/// Live range of a buffer on the simulated clock, for charts of memory over the step.
struct BufferLife {
  uint32_t device = 0;
  MemoryCategory category = MemoryCategory::Activations;
  uint64_t bytes = 0;
  double begin = 0, end = 0; ///< seconds; persistent buffers live for the whole step
};

/// Compute time and memory of a device in a step.
struct DeviceUse {
  MemoryUse memory;
  double busy = 0; ///< seconds of compute on the simulated clock
};

struct DeviceProgram : DeviceUse {
  std::string name;
  std::vector<Arena> arenas;
  std::vector<Queue> queues;
  Span instructions;
  Span state;
  uint64_t plannedBytes = 0;
};

struct StepGraph {
  std::vector<DeviceProgram> devices; ///< one per device of the plan, idle ones included
  std::vector<Instruction> instructions;
  std::vector<Wait> waits;
  std::vector<Call> calls;
  std::vector<FunctionArgument> arguments;
  std::vector<Collective> collectives;
  std::vector<PersistentState> state;
  uint32_t numInstructions = 0;    ///< ids are [0, numInstructions)
  double stepTime = 0;             ///< seconds on the simulated clock, first to last instruction
  std::vector<BufferLife> buffers; ///< if LoweringOptions::keepBuffers
};

/// The phase after which an expansion stops, for inspection. Before Order, the instructions of a
/// device are numbered in the order of creation. Before Memory, there is no arena and all regions
/// are absent. Only All has waits.
enum class LoweringStage : uint8_t {
  Stages,  ///< tasks of cells, inputs, transfers between cells
  Offload, ///< and parameters: fetched from hosts, and gathered. Copies of activations are part of
           ///< Stages
  Collectives, ///< and reductions, norms, updates, copies to hosts, the report
  Order,       ///< and one global list with times
  Memory,      ///< and an offset for every buffer
  All,         ///< and waits
};

/// Cached data shared by expansions of one model: its units, shapes of cells and their times. Not
/// thread-safe.
struct LoweringTables;
/// \param summary, bodies, costs  the same as in every expansion that uses the tables; they must
///   outlive them
std::shared_ptr<LoweringTables> makeLoweringTables(const bundle::ModelSummary &summary,
                                                   const bundle::FunctionLibrary *functions,
                                                   const Costs *costs);

/// Returns the elements of every state group that devices keep between steps, by device: those that
/// owners update, and those of frozen groups that their readers read. Precondition: the plan is
/// valid.
std::vector<std::vector<Shard>> findHeldState(const bundle::ModelSummary &summary,
                                              const Plan &plan);

/// Bytes of a device's memory that a cell needs, as used by schedules when they admit cells.
/// Buffers count in multiples of 64.
struct CellMemory {
  uint64_t residentBytes = 0;  ///< maximum from its first receive to its last task
  uint64_t deferred = 0;       ///< part of `residentBytes` that is allocated by B for W
  uint64_t transientBytes = 0; ///< maximum additional bytes while one of its tasks runs or its
                               ///< results are sent
  uint64_t workspace = 0;      ///< maximum workspace of its tasks
};
CellMemory cellMemory(LoweringTables &tables, const Cell &cell, bool splitBackward);

/// Options of both lowerPlan and timeStep.
struct StepOptions {
  /// Functions with argument lists that determine which buffers a task accesses: for example, a
  /// boundary input that the backward does not have is freed after the forward. If null, every
  /// argument that the architecture allows is assumed to exist: a correct program with slightly
  /// more memory.
  const bundle::FunctionLibrary *functions = nullptr;
  /// Times of tasks and transfers, by the plan's devices. If null, FLOPs, the plan's speeds and its
  /// two links are used.
  const Costs *costs = nullptr;
  std::shared_ptr<LoweringTables> tables; ///< null: created for this step
  bool checked = false; ///< the summary, the plan and the resulting sizes are known to be valid
  /// Schedules that admit samples as memory allows leave 1/gaps of the memory for activations to
  /// gaps between placed buffers; 0: none.
  uint64_t fragmentationDivisor = 0;
  /// Number of retries of such schedules with fewer samples in flight if a device's memory is
  /// insufficient.
  int tries = 6;
  /// Bytes of a shard that a direct reduction adds in one round; a multiple of 512, which tests
  /// choose. 0: such that the terms of a round take 32 MiB on an owner, but at least 1 MiB each.
  /// The fastest links (450 GB/s) transfer that in 75 us, several times NCCL's startup time.
  uint64_t directChunk = 0;
  /// Bytes of an array that are fetched from the host for one update; a multiple of 512. Groups
  /// with more than 32 such parts fetch 1/32 at a time. Tests choose less.
  uint64_t updateBucketBytes = 4 << 20;
  /// At least 1: updates of state on the host are lowered in at most this number of ops per owned
  /// run, each with the time of the parts that it stands for and the device memory of one part.
  /// Two keep the overlap of copies with updates. For times and peaks only; 0: all parts.
  uint32_t simulatedUpdateParts = 0;
};

/// Devices that do the same work at the same time as others: (device, twin), ascending.
using Replicas = std::vector<std::pair<uint32_t, uint32_t>>;

struct TimeOptions : StepOptions {
  /// The plan has no cells for twins; twins take part only in operations on state. Their memory is
  /// that of the corresponding device, except for the state that they own.
  const Replicas *replicas = nullptr;
};

struct StepTimes {
  double stepTime = 0;            ///< seconds on the simulated clock, first to last instruction
  uint32_t numInstructions = 0;   ///< instructions of the global list
  uint64_t listed = 0;            ///< those of all lists that were made, also of preliminary ones
  std::vector<DeviceUse> devices; ///< by the plan's devices; MemoryUse has only `peakLiveBytes`,
                                  ///< `peakInFlightCells`, `host` and their components
};

/// Computes the data that the planner needs: a plan's times and the devices' peak live bytes,
/// without placing buffers. The list is that of lowerPlan, except if a timed order is repeated
/// because memory does not suffice: timeStep compares `peakLiveBytes` with the device's memory,
/// lowerPlan the placed arena. Fails for an invalid plan or an order that cannot run.
Result<StepTimes> timeStep(const bundle::ModelSummary &summary, const Plan &plan,
                           const TimeOptions &options = {});

struct LoweringOptions : StepOptions {
  bool keepBuffers = false;
  /// Refuse a plan that exceeds the devices' memory (the planner turns this off to grade
  /// candidates).
  bool checkMemory = true;
  LoweringStage until = LoweringStage::All;
  /// Buffers with disjoint live ranges share bytes. Measurements compare with steps that share
  /// none.
  bool shareBytes = true;
};

/// Expands a plan: tasks, values, state, order, memory, waits. Validates it first. The result
/// depends only on the arguments. Fails (see Plan.h) for an invalid plan, an order that cannot run
/// (the cycle is printed) or insufficient memory (itemized).
Result<StepGraph> lowerPlan(const bundle::ModelSummary &summary, const Plan &plan,
                            const LoweringOptions &options = {});

} // namespace zorse::step
