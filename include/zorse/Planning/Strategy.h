// A plan in the planner's representation: pipelines of stages. Plain data; makePlan() converts it
// to a step::Plan with cells, owners and schedule.
#pragma once

#include "zorse/Planning/CostModel.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// Memory in which a device stores the state that only updates read.
enum class StateOffload : uint8_t {
  None,
  OptimizerStates,
  AllStates,    ///< host memory: the optimizer states, and parameters (if units read low-precision
                ///< copies, devices hold only these) and reduced gradients
  CpuOptimizer, ///< as AllStates, and the host's CPU updates the state; only parameters are copied
                ///< to the device
};
/// Whether the device's memory holds its shard of the optimizer states, and of the master
/// parameters.
inline bool keepsMoments(StateOffload offload) { return offload == StateOffload::None; }
inline bool keepsMasters(StateOffload offload) { return offload <= StateOffload::OptimizerStates; }

/// Memory optimizations of a device. They cost time.
struct MemoryOptimization {
  step::Activations activations = step::Activations::Keep;
  StateOffload state = StateOffload::None;

  bool any() const { return activations != step::Activations::Keep || state != StateOffload::None; }
  bool operator==(const MemoryOptimization &o) const {
    return activations == o.activations && state == o.state;
  }
};
/// Human-readable names: "activation recomputation", "optimizer states on the hosts"; empty if no
/// memory optimization is used.
std::string showActivations(step::Activations activations);
std::string showState(StateOffload state);

/// Memory optimizations of a cluster's devices. The search uses them if no plan fits without; see
/// Search/MemoryOptimizations.cpp.
struct MemoryOptimizations {
  MemoryOptimization defaultOptimization; ///< memory optimization of devices that are not in
                                          ///< `overrides`
  std::vector<std::pair<uint32_t, MemoryOptimization>> overrides; ///< by device, ascending
  /// Parameters are gathered before the forwards of each chunk and again before its backwards, and
  /// freed in between. Applies to all devices.
  bool reshardAfterForward = false;

  bool any() const {
    return defaultOptimization.any() || !overrides.empty() || reshardAfterForward;
  }
  const MemoryOptimization &of(uint32_t device) const;
  /// \returns whether the memory optimization changed
  bool set(uint32_t device, const MemoryOptimization &optimization);
};

/// A planning problem: a model on a cluster. References must outlive the problem.
struct Problem {
  const bundle::ModelSummary &summary;
  const Cluster &cluster;
  const CostModel &costs; ///< costs of all devices of the cluster, in its order
  int64_t batch = 0;
  const bundle::FunctionLibrary *functions = nullptr; ///< exact workspaces and arguments, if
                                                      ///< compiled; null otherwise
  MemoryOptimizations memoryOptimizations = {}; ///< memory optimizations of strategies that have
                                                ///< none themselves
  std::vector<std::string> assumptions = {};    ///< human-readable, about model and memory, for
                                                ///< reports
  step::Communication communication = step::Communication::Overlapped; ///< of every strategy
  step::GradientWire gradientWire = step::GradientWire::Unrounded; ///< Plan::gradientWire of all
  step::OptimizerStep optimizerStep = step::OptimizerStep::AfterBackward; ///< Plan::optimizerStep
                                                                          ///< of every strategy

  /// Returns this problem on another cluster, whose costs are `otherCosts`. Without assumptions.
  Problem on(const Cluster &other, const CostModel &otherCosts) const;
  /// Returns this problem for another model, such as the same divided among groups of devices.
  Problem of(const bundle::ModelSummary &model, const bundle::FunctionLibrary *modelFunctions,
             const Cluster &other, const CostModel &otherCosts) const;
};

/// Units [unitBegin, unitEnd), or parts of units (Strategy::boundaryDenominator), on members that
/// share the pipeline's samples. A device may be in several stages of one pipeline (interleaving).
struct Stage {
  int32_t unitBegin = 0, unitEnd = 0;
  std::vector<step::StageDevice> members;
};

struct Pipeline {
  int64_t samples = 0;
  std::vector<Stage> stages; ///< in the order of their units; together they contain all units
};

using step::ShardSizing; // all but FirstOnly

struct Strategy {
  std::vector<Pipeline> pipelines; ///< assigned consecutive samples of the batch, in this order
  /// Number of parts per unit. Stages can share units: with four parts, a quarter of a unit in a
  /// stage means that the stage executes the whole unit for a quarter of the samples. The ranges of
  /// stages then count parts. The number of ways is `parts`, a power of two. On way w, a stage
  /// has the units from (unitBegin + w) / parts to (unitEnd + w) / parts. A pipeline's samples are
  /// assigned to the ways round-robin, `samplesPerVariant` samples at a time
  /// (Layout/AssignStageCells.h).
  int32_t boundaryDenominator = 1;
  int64_t samplesPerVariant = 1;
  step::Schedule schedule;
  ShardSizing state = ShardSizing::Proportional;
  MemoryOptimizations memoryOptimizations; ///< none: the problem's memory optimizations apply
};

/// Returns a strategy with other devices. \param newDevice  by device
Strategy withDevices(Strategy strategy, const std::vector<uint32_t> &newDevice);

/// Returns the memory optimizations of a strategy or, if it has none, of the problem.
const MemoryOptimizations &memoryOptimizationsOf(const Problem &problem, const Strategy &strategy);

/// Converts a strategy to a plan: all devices of the cluster, the cells, owners and schedule.
/// Precondition: the strategy covers all units and samples; step::validatePlan checks this
/// afterwards.
step::Plan makePlan(const Problem &problem, const Strategy &strategy);

/// Returns the bytes by which the devices' buffers in host memory (`host`, per device) exceed the
/// memory of their nodes, summed over nodes. Nodes of unknown memory are not limited.
uint64_t hostShortfallBytes(const Cluster &cluster, const std::vector<uint64_t> &host);

/// Time and memory of a plan.
struct Evaluation {
  double step = 0;              ///< seconds
  uint64_t shortfallBytes = 0;  ///< bytes over the devices' memory, summed; 0: the plan fits
  std::vector<uint64_t> memory; ///< bytes per device, to compare with its capacity
  std::vector<double> busy;     ///< seconds of compute per device
  std::vector<uint32_t> peakInFlightCells; ///< per device: maximum number of cells with live
                                           ///< activations
};

/// Evaluates a plan by its full expansion, the same that the compiler uses.
/// \returns nullopt and a message for a plan that cannot run
Result<Evaluation> evaluate(const Problem &problem, const step::Plan &plan);

/// Evaluates a plan without placing buffers. It is several times faster, and `memory` is the peak
/// of live bytes, some percent below the arena that placement needs.
Result<Evaluation> estimate(const Problem &problem, const step::Plan &plan);

} // namespace zorse::planning
