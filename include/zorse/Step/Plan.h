// The plan: what the user, the planner or a test says about where work and state go. Plain data; docs/plan.md documents the file.
#pragma once

#include "zorse/Base/Status.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zorse::bundle {
class ModelSummary;
}

namespace zorse::step {

/// A device as the plan and the simulation see it. Names are what people write; programs use the index.
struct PlanDevice {
  std::string name;
  double speed = 0;    ///< FLOP/s; 0: unknown, every device is taken to be equally fast.
  uint64_t memory = 0; ///< bytes; 0: not limited.
  std::string node;    ///< devices of one node use the intra-node link; "": one node for all.
  /// Transports reach its host's memory alone: what it sends and receives is copied there and back (DeviceKind::stages). Set where programs are made,
  /// not in plan.json; the search takes devices to exchange directly.
  bool staged = false;
  /// Devices of one group exchange directly, from memory to memory; -1: with nobody. Of one GPU at most one device is in a group. Set as `staged` is.
  int32_t direct = -1;
};

/// A link class, for simulated time only.
struct LinkSpeed {
  double bandwidth = 0; ///< bytes/s; 0: infinitely fast.
  double latency = 0;   ///< seconds.
};

/// What happens to what a cell's forward leaves for its backward.
enum class Activations : uint8_t {
  Keep,      ///< stays on the device
  Recompute, ///< but for the values at the first cut it is made again: B begins with the forward
  Offload,   ///< leaves for the host after F, and is back for B
};

/// One rectangle of the tiling: units [unitBegin, unitEnd) x samples [sampleBegin, sampleEnd) on one device.
struct Cell {
  int32_t unitBegin = 0, unitEnd = 0;
  int64_t sampleBegin = 0, sampleEnd = 0;
  uint32_t device = 0;
  Activations activations = Activations::Keep;

  int64_t rows() const { return sampleEnd - sampleBegin; }
};

/// One owner of a state group: by fraction (of the group's elements, in the order of the list) or by an explicit range of elements.
struct Owner {
  uint32_t device = 0;
  double share = 0;             ///< percent; 0 is allowed and owns nothing.
  int64_t begin = -1, end = -1; ///< elements; -1: follows from the share.
};

struct GroupOwners {
  uint32_t group = 0;
  std::vector<Owner> owners; ///< in the order of their extents.
};

enum class DefaultOwners : uint8_t {
  Proportional, ///< the contributors, in proportion to the samples they add to the group's gradient.
  Equal,        ///< the contributors, equal shares.
  First,        ///< the contributor that holds the group's first cell owns all of it.
};

/// A kind of memory that a device reaches. Its own, or that of its host.
enum class Tier : uint8_t { Device, Host };

/// Where a device keeps its part of a state group between uses. What is kept on the host comes to the device when it is used: parameters before units
/// read them, all of it, part by part, for the update.
struct Residence {
  Tier parameters = Tier::Device, moments = Tier::Device;
  Tier gradients = Tier::Device; ///< reduced: from the reduction to the update
  /// Whose processor updates it. The host's, where parameters and moments are: then reduced gradients leave for it, too, and nothing else moves.
  Tier update = Tier::Device;

  bool onDevice() const { return parameters == Tier::Device && moments == Tier::Device && gradients == Tier::Device; }
};

/// When updates follow the gradients. By step: when all are reduced, and their norm has decided by how much they are clipped and whether the step is
/// skipped. By group: a group's own, inside the backward. It then cannot be taken back, so nothing of the other groups may decide about it.
enum class Commit : uint8_t { Step, Group };

/// How often a group's parameters come to those that read them: once a step, or before the forwards and again before the backwards of every chunk,
/// whose image is given back in between.
enum class Gather : uint8_t { Step, Phase };

/// What some devices do with some groups; what a rule does not name stays as it was.
struct ResidencyRule {
  std::vector<uint32_t> devices, groups; ///< ascending; empty: all
  std::optional<Tier> parameters, moments, gradients, update;
  std::optional<Gather> gather; ///< of groups on all devices
  /// Of devices, for all groups: chunks whose parameters, gathered by phase, are on the device at once, and cells whose activations, offloaded, are.
  std::optional<uint32_t> images;
};

/// Each has a rule in the table of zorse/Step/Schedules.h.
enum class ScheduleKind : uint8_t {
  OneForwardOneBackward, ///< "1f1b": few micro-batches alive. Counts samples, not micro-batches, so grids may be uneven.
  GPipe,                 ///< "gpipe": on each device every forward before the first backward.
  Timed,                 ///< "steady_state": tasks by the time they would run at in a steady state, from actual times and link delays; any tiling.
  Interleaved,           ///< "interleaved": laps around a ring of devices that hold several ranges of units each.
  Folded,                ///< "wave": laps back and forth.
  Ministages,            ///< "breadth_first": on each device all micro-batches of a chunk before the next chunk's, mirrored for backwards.
  Explicit,              ///< the plan lists every device's tasks. The last one.
};

/// The order of tasks, as a named function with parameters. Cells that split their backward run B early and W as filler.
struct Schedule {
  ScheduleKind kind = ScheduleKind::OneForwardOneBackward;
  bool splitBackward = false; ///< every cell's backward is two tasks, B and W, where its units can
  double inFlight = 1;        ///< Timed, Interleaved, Folded: samples admitted before their backward, as a multiple of what the steady state needs
  double weightDelay = 0;     ///< Timed, split: W waits at most so many steady-state periods for an idle moment; 0: not limited
  /// Timed: samples enter in groups of so many cells, a group's right after each other, as interleaved 1F1B has it where devices hold several chunks
  /// (a good choice then is the number of devices in the ring); 0: evenly.
  uint32_t interleave = 0;
  /// OneForwardOneBackward: forwards ahead of the first backward, by device of the plan (HARP's launch counts); empty: as few as can run.
  std::vector<uint32_t> ahead;

  bool operator==(const Schedule &o) const {
    return kind == o.kind && splitBackward == o.splitBackward && inFlight == o.inFlight && weightDelay == o.weightDelay &&
           interleave == o.interleave && ahead == o.ahead;
  }
};

/// F, B or W of a cell, in an explicit order.
enum class TaskKind : uint8_t { Forward, Backward, Weights };
struct TaskName {
  TaskKind kind = TaskKind::Forward;
  uint32_t cell = 0;
};

/// Measured or predicted seconds of one task; absent: from FLOPs and the device's speed.
struct CellDurations {
  std::vector<double> forward, backward; ///< one per cell.
  std::vector<double> weights;           ///< of W where the plan splits the backward; empty: a part of `backward`, by FLOPs.
};

/// Limits that keep sizes inside 64 bits and a typing error from exhausting the machine.
inline constexpr int64_t kMostSamples = int64_t(1) << 31;
inline constexpr int64_t kMostCells = int64_t(1) << 20;
inline constexpr uint32_t kDefaultImages = 2, kMostImages = 1 << 16;
inline constexpr size_t kMostRules = size_t(1) << 16; ///< of residency
inline constexpr size_t kMostPlanBytes = size_t(256) << 20;

struct Plan {
  std::string model; ///< ModelSummary.content_hash it was made for; "": any model with that many units.
  int64_t batch = 0; ///< rows
  /// Samples in a row (ModelSummary.samples_per_row). Files and messages count samples; everything here counts rows.
  int64_t samplesPerRow = 1;
  std::vector<PlanDevice> devices;
  std::vector<Cell> cells;
  std::vector<GroupOwners> owners; ///< groups that are not listed follow defaultOwners.
  DefaultOwners defaultOwners = DefaultOwners::Proportional;
  Commit commit = Commit::Step;
  std::vector<ResidencyRule> residency; ///< of rules that name the same, the last counts; none: everything stays on the device
  Schedule schedule;
  /// Transfers and collectives between devices hold their devices: none of them computes, or takes part in another, until it is over. False: queues
  /// of their own, beside computing.
  bool blocking = false;
  std::vector<std::vector<TaskName>> order; ///< Explicit only: per device, every F and B (and W) of its cells once.
  std::optional<CellDurations> durations;
  LinkSpeed intraNode, interNode;
  std::map<std::string, uint64_t> hostMemory; ///< bytes by node, for what its devices keep in host memory together; a node that is not listed: not
                                              ///< limited. From the cluster, not in plan.json

  /// Index of the device called `name`, or -1.
  int32_t findDevice(const std::string &name) const;

  Residence residenceOf(uint32_t device, uint32_t group) const;
  Gather gatherOf(uint32_t group) const;
  uint32_t imagesOf(uint32_t device) const;
};

/// "cell 3 (units 0-6, samples 8-16, device t4:1)": how every message names a cell.
std::string describeCell(const Plan &plan, uint32_t cell);

// Errors of this library: one message per line, each naming the user's object, what was expected, what was found and, where there is one, the remedy.
// Messages carry no "error:" prefix and no file name; the tool adds both.

/// Reads a plan from JSON text (docs/plan.md), shorthand included. `units` is the number of units of the model: "stages" may leave the last end
/// open. State groups may be named by index or by name when `summary` is given. Checks syntax and names; `validatePlan` checks the rest.
Result<Plan> readPlan(const std::string &json, const bundle::ModelSummary &summary);

/// What a plan says that can be checked before the model is known.
struct PlanHead {
  int64_t batch = 0; ///< samples
  std::vector<std::string> devices;
};
Result<PlanHead> readPlanHead(const std::string &path);

/// The message about a plan of another batch than was asked for, both in samples.
std::string otherBatch(const std::string &path, int64_t planned, int64_t asked);

/// The message about a batch that is no multiple of the samples of a group (--batch-norm-rows), with numbers that are.
std::string brokenGroups(int64_t batch, int64_t group);

/// Reads a file; messages start with the path.
Result<Plan> readPlanFile(const std::string &path, const bundle::ModelSummary &summary);

/// Writes canonical JSON: cells spelled out, one per line, the same bytes for equal plans. readPlan(writePlan(p)) == p.
std::string writePlan(const Plan &plan, const bundle::ModelSummary &summary);

/// Checks that the plan tiles units x samples exactly, that batch, devices, owners and order are consistent with the model.
/// Whether an explicit order can run and whether memory suffices is decided by expandPlan, which simulates it.
Status validatePlan(const Plan &plan, const bundle::ModelSummary &summary);

} // namespace zorse::step
