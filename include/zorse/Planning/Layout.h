// A plan as planners think of it: pipelines of stages. Plain data; becomes a step::Plan, cells and all, by one function.
#pragma once

#include "zorse/Planning/CostModel.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// Where a device keeps what updates alone read.
enum class StatePlace : uint8_t {
  Device,
  MomentsOnHost,
  OnHost, ///< the optimizer's moments, and parameters (where units read copies, all that is left of them on devices are these) and reduced gradients
  UpdatedOnHost, ///< the same, and the host's processor updates them: nothing of it comes to the device but parameters
};
/// Whether a device keeps its part of moments and of parameters.
inline bool keepsMoments(StatePlace place) { return place == StatePlace::Device; }
inline bool keepsMasters(StatePlace place) { return place <= StatePlace::MomentsOnHost; }

/// What a device does to save memory at the cost of time.
struct Technique {
  step::Activations activations = step::Activations::Keep;
  StatePlace state = StatePlace::Device;

  bool any() const { return activations != step::Activations::Keep || state != StatePlace::Device; }
  bool operator==(const Technique &o) const { return activations == o.activations && state == o.state; }
};
/// "activations computed again", "moments on the hosts"; empty for what needs no technique.
std::string showActivations(step::Activations activations);
std::string showState(StatePlace state);

/// Of a cluster's devices. The search takes techniques where nothing fits without; see Search/Techniques.cpp.
struct Techniques {
  Technique most;                                     ///< of devices that are not listed
  std::vector<std::pair<uint32_t, Technique>> others; ///< by device, ascending
  /// Parameters come before the forwards and again before the backwards of each chunk, and go in between (step::Gather::Phase); of all devices.
  bool byPhase = false;

  bool any() const { return most.any() || !others.empty() || byPhase; }
  const Technique &of(uint32_t device) const;
  /// \returns whether that is a change
  bool set(uint32_t device, const Technique &technique);
};

/// What is planned: a model on a cluster. References must outlive the problem.
struct Problem {
  const bundle::ModelSummary &summary;
  const Cluster &cluster;
  const CostModel &costs; ///< of all devices of the cluster, in its order
  int64_t batch = 0;
  const bundle::BodyLibrary *bodies = nullptr; ///< exact workspace and slots, once compiled
  Techniques techniques = {};                  ///< of every layout, besides its own
  std::vector<std::string> assumptions = {};   ///< about model and memory, for reports
  bool blocking = false;                       ///< Plan::blocking of every layout
};

struct Member {
  uint32_t device = 0; ///< index in the cluster
  int64_t samples = 0; ///< of the pipeline's
  int64_t rows = 1;    ///< of a micro-batch; the last one may be smaller
};

/// Units [unitBegin, unitEnd), or parts of units (Layout::parts), on members that share the pipeline's samples. A device may be in several stages of
/// one pipeline (interleaving).
struct Stage {
  int32_t unitBegin = 0, unitEnd = 0;
  std::vector<Member> members;
};

struct Pipeline {
  int64_t samples = 0;
  std::vector<Stage> stages; ///< in the order of their units; together all units
};

/// Who owns state: members of the stages that use it, in equal shares, by the samples they contribute, or by the memory they have left.
enum class StateRule : uint8_t { Equal, Proportional, FreeMemory };

struct Layout {
  std::vector<Pipeline> pipelines; ///< take the samples of the batch in this order
  /// Stages may share out units: with four parts, a quarter of a unit in the stage in front is the whole unit for a quarter of the samples. Ranges of
  /// stages then count parts; way w of as many ways as parts, a power of two, has the units from (unitBegin + w) / parts to (unitEnd + w) / parts,
  /// and a pipeline's samples take the ways in turn, `turn` samples each (Layout/DealLayout.h).
  int32_t parts = 1;
  int64_t turn = 1;
  step::Schedule schedule;
  StateRule state = StateRule::Proportional;
  Techniques techniques; ///< none: the problem's
};

/// Those of a layout, or, where it has none of its own, the problem's.
const Techniques &techniquesOf(const Problem &problem, const Layout &layout);

/// The plan of a layout: all devices of the cluster, the dealt cells, owners, schedule. Precondition: the layout covers units and samples (checked by
/// step::validatePlan afterwards).
step::Plan makePlan(const Problem &problem, const Layout &layout);

/// Bytes by which devices' parts in their hosts' memory (`host`, by device) exceed what nodes have of it, summed. Nodes whose memory is not stated
/// are not limited.
uint64_t hostExcess(const Cluster &cluster, const std::vector<uint64_t> &host);

/// How a plan does.
struct Evaluation {
  double step = 0;                  ///< seconds
  uint64_t excess = 0;              ///< bytes by which devices lack memory, summed; 0: it fits
  std::vector<uint64_t> memory;     ///< bytes per device, to compare with its capacity
  std::vector<double> busy;         ///< seconds of compute per device
  std::vector<uint32_t> cellsAlive; ///< per device: that hold activations at once, at most
};

/// By the full expansion: what the compiler will make of the plan.
/// \returns nullopt and a message for a plan that cannot run.
Result<Evaluation> evaluate(const Problem &problem, const step::Plan &plan);

/// Without placing buffers: several times faster, and `memory` is the most that is alive at once, some percent below what placing needs.
Result<Evaluation> estimate(const Problem &problem, const step::Plan &plan);

} // namespace zorse::planning
