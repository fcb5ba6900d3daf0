// Replays the programs of a bundle on a simulated clock. No kernel runs, no weights are read, and
// no memory of the model is allocated.
//
// The rules are those of the executor (Executor.h). Every thread executes its queues' instructions
// in list order. Instructions wait for their waits, also for those of the previous step. A transfer
// or collective starts when all participants have reached it. Steps overlap. Compute instructions,
// copies, loads and reports take their planned durations. Transfers and collectives take the
// durations that sim::Traffic computes from the bundle's topology, or their planned durations if
// there is none.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Executor.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Uses of time.
enum class Activity : uint8_t {
  Forward,
  Backward,
  WeightGradients,
  Recompute,
  Loss,
  Update,
  Copy,
  Load,
  Report, // above: one device
  Transfer,
  Gather,
  Reduction,
  Sum,      // above: several devices
  BusyLink, ///< duration of a transfer beyond that on an idle network
  Nothing,  ///< no activity; the step may not begin yet
};
inline constexpr size_t kActivities = size_t(Activity::Nothing) + 1;
const char *activityName(Activity activity);

struct SimulationOptions {
  uint64_t steps = 4;
  bool evaluation = false;        ///< evaluations instead of training steps
  bool oneThreadPerQueue = false; ///< as in ExecutorOptions; devices other than CPUs always have
                                  ///< one
  double linkTimes = 1; ///< factor on the bandwidths of the bundle's topology; latencies do not
                        ///< change
  std::vector<double> speedTimes; ///< by device: factor on the planned computation speed; empty: 1
  uint64_t traceSteps = 0;        ///< steps kept in Simulation::trace
};

using Seconds = std::array<double, kActivities>;

/// Values per step, averaged over the second half of the steps.
struct SimulatedDevice {
  Seconds busy = {};      ///< seconds by activity
  Seconds waiting = {};   ///< idle time of the compute thread, by the activity that ends it
  double compute() const; ///< busy time without transfers and collectives
};

struct Simulation {
  std::vector<double> stepEnds; ///< seconds since the start of the first step
  double firstStep = 0; ///< seconds from the start of the first instruction to the end of the last
                        ///< one
  double step = 0;      ///< seconds per step in the steady state
  double planned = 0;   ///< seconds that the plan predicts for one step
  bool usesTopology = false; ///< false: transfers take their planned durations
  uint64_t instructions = 0; ///< instructions of one step, all devices
  std::vector<SimulatedDevice> devices;
  Seconds criticalPath = {}; ///< of the last step; the sum is the time since the end of the
                             ///< previous step
  std::vector<TraceEvent> trace;
};

/// \returns a user error that names the waiting instructions if the programs deadlock (the verifier
///   accepts no such programs).
Result<Simulation> simulatePrograms(const Bundle &bundle, const SimulationOptions &options);

} // namespace zorse::runtime
