// The plan: placement of work and state on devices, made by the user, the planner or a test. Plain
// data; docs/reference/plan-json.md describes the file.
#pragma once

#include "zorse/Base/Status.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zorse::bundle {
class ModelSummary;
}

namespace zorse::step {

/// A device in the plan and the simulation. Names are for users; programs use the index.
struct PlanDevice {
  std::string name;
  double flopsPerSecond = 0; ///< FLOP/s; 0: unknown, all devices are assumed equally fast.
  uint64_t memory = 0;       ///< bytes; 0: unlimited.
  std::string node; ///< devices of one node use the intra-node link; "": all devices are in one
                    ///< node.
  std::string site = {}; ///< devices of one site are closer to each other than to those of others;
                         ///< "": all nodes are in one site.
  /// Transports access only host memory, so sent and received data is copied between device and
  /// host (DeviceKind::stages). Set when programs are made, not in plan.json; the search assumes
  /// direct transfers.
  bool hostStaged = false;
  /// Devices of one group exchange data directly, from memory to memory; -1: the device has no
  /// direct peer. At most one device per GPU is in a group. Set when programs are made.
  int32_t d2dGroup = -1;
};

/// Speed of a link, only for simulated time.
struct LinkSpeed {
  double bandwidth = 0; ///< bytes/s; 0: infinitely fast.
  double latency = 0;   ///< seconds.
};

/// Handling of the activations that a cell's forward saves for its backward.
enum class Activations : uint8_t {
  Keep,      ///< stay on the device
  Recompute, ///< only the values at the first cut are kept, the others are recomputed: B begins
             ///< with the forward
  Offload,   ///< copied to the host after F, and back for B
};

/// One rectangle of the tiling: units [unitBegin, unitEnd) x samples [sampleBegin, sampleEnd) on
/// one device.
struct Cell {
  int32_t unitBegin = 0, unitEnd = 0;
  int64_t sampleBegin = 0, sampleEnd = 0;
  uint32_t device = 0;
  Activations activations = Activations::Keep;
  int32_t group = -1;  ///< index in Plan::groups; -1: the device computes the cell alone
  uint32_t member = 0; ///< position of the device in the group

  int64_t rows() const { return sampleEnd - sampleBegin; }
};

/// Tensor parallelism: devices that divide cells. Each of them has a cell with the same rectangle.
/// The summary's group with the same index (ModelSummary.device_groups) describes their units.
struct DeviceGroup {
  std::string name;
  std::vector<uint32_t> devices;
  std::vector<double> shares; ///< by device; the division of an axis is by largest remainders
};

/// One owner of a state group: by fraction (of the group's elements, in the order of the list) or
/// by an explicit range of elements.
struct Owner {
  uint32_t device = 0;
  double fraction = 0;          ///< fraction of the group; 0 is allowed and owns nothing.
  int64_t begin = -1, end = -1; ///< elements; -1: computed from the share.
};

struct GroupOwners {
  uint32_t group = 0;
  std::vector<Owner> owners; ///< in the order of their extents.
};

/// Which of the devices that contribute to the gradient of a group own its state.
enum class ShardSizing : uint8_t {
  Equal,        ///< all, equal shares
  Proportional, ///< all, in proportion to the samples they add to the group's gradient
  ByFreeMemory, ///< all, in proportion to their free memory; only in strategies of the planner,
                ///< which lists the owners in the plan
  FirstOnly, ///< the contributor with the group's first cell owns all of it; not in strategies of
             ///< the planner
};

/// The values of Plan::defaultSharding, in the order of their names in plan.json.
inline constexpr ShardSizing kDefaultShardings[] = {ShardSizing::Proportional, ShardSizing::Equal,
                                                    ShardSizing::FirstOnly};

/// Memory that a device can access: its own, or that of its host.
enum class MemoryTier : uint8_t { Device, Host };

/// Memory in which a device keeps its shard of a state group between uses. State on the host is
/// copied to the device for use: parameters before units read them, all state, part by part, for
/// the update.
struct StatePlacement {
  MemoryTier parameters = MemoryTier::Device, moments = MemoryTier::Device;
  MemoryTier gradients = MemoryTier::Device; ///< reduced gradients, from the reduction to the
                                             ///< update
  /// Device that updates the shard. The host's CPU can update it if parameters and moments are on
  /// the host; reduced gradients are then also copied to the host, and nothing else moves.
  MemoryTier update = MemoryTier::Device;

  bool onDevice() const {
    return parameters == MemoryTier::Device && moments == MemoryTier::Device &&
           gradients == MemoryTier::Device;
  }
};

/// When the optimizer updates a state group.
/// - Step: after all gradients are reduced. Their norm decides the clipping and whether the step is
///   skipped.
/// - Group: inside the backward, as soon as the group's own gradients are reduced. The update
///   cannot be undone, so it must not depend on other groups (no clipping by norm and no skipping).
enum class OptimizerStep : uint8_t { AfterBackward, InBackward };

/// The type in which the terms of a sum of gradients travel (docs/concepts/precision.md). In the
/// marked sums every term is rounded to bf16 once, also one that stays on its device; sums are f32.
/// The bits of a step therefore follow from the plan, not from who adds or from the transport.
enum class GradientWire : uint8_t {
  Unrounded,        ///< in the type of the gradients
  Bf16BetweenNodes, ///< bf16 in sums of devices of several nodes
  Bf16BetweenSites, ///< bf16 in sums of devices of several sites
};

/// The names of GradientWire in plan.json and of --gradient-wire, in its order.
inline constexpr std::array<const char *, 3> kGradientWireNames = {"f32", "bf16", "bf16:sites"};

/// Returns the value with a name, or an error that lists the names.
Result<GradientWire> gradientWireNamed(const std::string &name);

/// Refuses models with gradients that are not f32: those of two bytes travel in two anyway, and f64
/// is for tests of exactness.
Status checkGradientWire(GradientWire wire, const bundle::ModelSummary &summary);

/// Residency of some groups on some devices. Fields that are not set keep their previous values.
struct OffloadRule {
  std::vector<uint32_t> devices, groups; ///< ascending; empty: all
  std::optional<MemoryTier> parameters, optimizerStates, gradients, optimizer;
  /// true: a group's parameters are gathered by phase, that is, before the forwards and again
  /// before the backwards of every chunk, and freed in between. false: once a step. Applies to all
  /// devices.
  std::optional<bool> reshardAfterForward;
  /// Applies to all groups of the devices: maximum number of chunks with parameters gathered by
  /// phase, and of cells with offloaded activations, that are on the device at the same time.
  std::optional<uint32_t> bufferCount;
};

/// Kinds of schedules. Each has a rule in the table of zorse/Step/Schedules.h.
enum class ScheduleKind : uint8_t {
  OneForwardOneBackward, ///< "1f1b": few micro-batches in flight. Counts samples, not
                         ///< micro-batches, so grids may be uneven.
  GPipe,                 ///< "gpipe": on each device every forward before the first backward.
  SteadyState,  ///< "steady_state": tasks by the time they would run at in a steady state, from
                ///< actual times and link delays; any tiling.
  Interleaved,  ///< "interleaved": loops around a ring of devices that hold several ranges of units
                ///< each.
  Wave,         ///< "wave": loops back and forth.
  BreadthFirst, ///< "breadth_first": on each device all micro-batches of a chunk before the next
                ///< chunk's, mirrored for backwards.
  Explicit,     ///< the plan lists every device's tasks. The last one.
};

/// A schedule: the name and parameters of a rule for the order of tasks. Cells with a split
/// backward run B early and fill idle time with W.
struct Schedule {
  ScheduleKind kind = ScheduleKind::OneForwardOneBackward;
  bool splitBackward = false;    ///< the backward of every cell is two tasks, B and W, if its units
                                 ///< support it
  double inFlightFactor = 1;     ///< Timed, Interleaved, Folded: samples admitted before their
                                 ///< backward, as a multiple of those that the steady state needs
  double maxWeightGradDelay = 0; ///< Timed, split: maximum wait of W for idle time, in steady-state
                                 ///< periods; 0: unlimited
  /// Timed: samples enter in groups of `microbatchGroupSize` cells, the cells of a group without
  /// gaps, as in interleaved 1F1B if devices have several chunks (a good value is the number of
  /// devices in the ring); 0: evenly.
  uint32_t microbatchGroupSize = 0;
  /// OneForwardOneBackward: forwards before the first backward, per device of the plan (HARP's
  /// launch counts); empty: the minimum that can run.
  std::vector<uint32_t> warmupForwards;

  bool operator==(const Schedule &o) const {
    return kind == o.kind && splitBackward == o.splitBackward &&
           inFlightFactor == o.inFlightFactor && maxWeightGradDelay == o.maxWeightGradDelay &&
           microbatchGroupSize == o.microbatchGroupSize && warmupForwards == o.warmupForwards;
  }
};

/// F, B or W of a cell, in an explicit order.
enum class TaskKind : uint8_t { Forward, Backward, Weights };
struct TaskId {
  TaskKind kind = TaskKind::Forward;
  uint32_t cell = 0;
};

/// Measured or predicted seconds of one task. If absent, times are computed from FLOPs and the
/// device's speed.
struct CellDurations {
  std::vector<double> forward, backward; ///< one per cell.
  std::vector<double> weights; ///< seconds of W if the plan splits the backward; empty: a share of
                               ///< `backward`, by FLOPs.
};

/// Limits that keep sizes within 64 bits, and a typing error from exhausting memory.
inline constexpr int64_t kMaxSamples = int64_t(1) << 31;
inline constexpr int64_t kMaxCells = int64_t(1) << 20;
inline constexpr uint32_t kDefaultBufferCount = 2, kMaxBufferCount = 1 << 16;
inline constexpr size_t kMaxRules = size_t(1) << 16; ///< residency rules
inline constexpr size_t kMaxPlanBytes = size_t(256) << 20;

/// Whether a device computes while it sends and receives, and what a send waits for.
enum class Communication : uint8_t {
  Overlapped, ///< transfers and collectives have separate queues and overlap with compute
  Rendezvous, ///< They block their devices: none of them computes, or takes part in another
              ///< transfer, until they end. A transfer starts when both ends are ready.
  Eager,      ///< They block their devices, and the ends of a transfer separately: the sender while
              ///< it sends, the receiver while it receives. A send does not wait for the receiver.
              ///< Only simulated: it describes frameworks whose transports buffer.
};
/// Values of `send_protocol` in plan.json, without overlap.
inline constexpr std::initializer_list<const char *> kSendProtocols = {"rendezvous", "eager"};

struct Plan {
  std::string model; ///< ModelSummary.content_hash of the plan's model; "": any model with that
                     ///< number of units.
  int64_t batch = 0; ///< rows
  /// Samples per row (ModelSummary.samples_per_row). Files and messages count samples; all fields
  /// here count rows.
  int64_t samplesPerRow = 1;
  std::vector<PlanDevice> devices;
  std::vector<DeviceGroup> groups;
  std::vector<Cell> cells;
  std::vector<GroupOwners> owners; ///< groups that are not listed use defaultSharding.
  ShardSizing defaultSharding = ShardSizing::Proportional;
  OptimizerStep optimizerStep = OptimizerStep::AfterBackward;
  GradientWire gradientWire = GradientWire::Unrounded;
  std::vector<OffloadRule> offload; ///< if several rules set the same field, the last one applies;
                                    ///< none: all state stays on the device
  Schedule schedule;
  Communication communication = Communication::Overlapped;
  std::vector<std::vector<TaskId>> order; ///< Explicit only: per device, every F and B (and W) of
                                          ///< its cells exactly once.
  std::optional<CellDurations> durations;
  LinkSpeed intraNode, interNode;
  /// Bytes per node for the state that its devices keep in host memory together; a node that is not
  /// listed is unlimited. From the cluster, not in plan.json.
  std::map<std::string, uint64_t> hostMemory;

  /// Returns the index of the device named `name`, or -1.
  int32_t findDevice(const std::string &name) const;

  StatePlacement placementOf(uint32_t device, uint32_t group) const;
  bool reshardAfterForward(uint32_t group) const;
  uint32_t bufferCountOf(uint32_t device) const;
};

/// Whether plan.json has the cell: the cells of a group's devices are one, that of the first.
inline bool isListed(const Cell &cell) { return cell.group < 0 || cell.member == 0; }
/// Returns the number of a cell in plan.json.
uint32_t numberInFile(const Plan &plan, uint32_t cell);

/// Returns the form in which every message names a cell: "cell 3 (units 0-6, samples 8-16, device
/// t4:1)".
std::string describeCell(const Plan &plan, uint32_t cell);

// Errors of this library have one message per line. Each contains the user's object, the expected
// and the found value and, if possible, how to fix it. Messages have no "error:" prefix and no file
// name; the tool adds both.

/// Reads a plan from JSON text (docs/reference/plan-json.md), including shorthand. The last end of
/// "stages" may be omitted; it is then the number of units of the model. State groups may be given
/// by index or by name. Checks syntax and names; `validatePlan` checks the rest.
Result<Plan> readPlan(const std::string &json, const bundle::ModelSummary &summary);

/// The parts of a plan that can be checked before the model is known.
struct PlanHead {
  int64_t batch = 0; ///< samples
  std::vector<std::string> devices;
};
Result<PlanHead> readPlanHead(const std::string &path);

/// Returns the message for a plan with another batch than requested, both in samples.
std::string otherBatch(const std::string &path, int64_t planned, int64_t asked);

/// Returns the message for a batch that is not a multiple of the samples of a group
/// (--batch-norm-group-size), with valid numbers.
std::string brokenGroups(int64_t batch, int64_t group);

/// Reads a plan file. Messages start with the path.
Result<Plan> readPlanFile(const std::string &path, const bundle::ModelSummary &summary);

/// Writes canonical JSON: one explicit cell per line, the same bytes for equal plans.
/// readPlan(writePlan(p)) == p.
std::string writePlan(const Plan &plan, const bundle::ModelSummary &summary);

/// Checks that the plan tiles units x samples exactly, and that batch, devices, owners and order
/// are consistent with the model. lowerPlan checks by simulation whether an explicit order can run
/// and whether memory suffices.
Status validatePlan(const Plan &plan, const bundle::ModelSummary &summary);

/// Returns why OptimizerStep::InBackward is refused for a model: decisions that depend on all
/// gradients, each with its remedy. Empty: it is possible.
std::vector<std::string> whyNotInBackward(const bundle::ModelSummary &summary);

} // namespace zorse::step
