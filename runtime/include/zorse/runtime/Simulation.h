// Replays the programs of a bundle on a simulated clock: no kernel runs, no weight is read, no memory of the model is allocated.
//
// The rules are the executor's (Executor.h): every thread serves its queues' entries in list order, entries wait for what their waits name (also of
// the step before), a transfer or collective starts when all who take part have come to it, steps overlap. Compute entries, copies, loads and reports
// take their planned durations; transfers and collectives take what sim::Traffic makes of the bundle's topology, or their planned durations where it
// has none.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Executor.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::runtime {

/// What time goes to.
enum class Activity : uint8_t {
  Forward,
  Backward,
  WeightGradients,
  Recompute,
  Loss,
  Update,
  Copy,
  Load,
  Report, // one device
  Transfer,
  Gather,
  Reduction,
  Sum,      // several
  BusyLink, ///< a transfer beyond what an idle network would need
  Nothing,  ///< nobody does anything for it: the step may not begin yet
};
inline constexpr size_t kActivities = size_t(Activity::Nothing) + 1;
const char *activityName(Activity activity);

struct SimulationOptions {
  uint64_t steps = 4;
  bool evaluation = false;        ///< evaluations instead of training steps
  bool oneThreadPerQueue = false; ///< as ExecutorOptions; devices that are no CPUs always have one
  double linkTimes = 1;           ///< links are so many times as fast as the bundle's topology says (latencies stay)
  std::vector<double> speedTimes; ///< by device: computes so many times as fast as planned; empty: 1
  uint64_t traceSteps = 0;        ///< steps kept in Simulation::trace
};

using Seconds = std::array<double, kActivities>;

/// Per step, averaged over the later half of the steps.
struct SimulatedDevice {
  Seconds busy = {};      ///< by activity
  Seconds waiting = {};   ///< the compute thread has nothing to do, by what ends that
  double compute() const; ///< busy with what is not transfers and collectives
};

struct Simulation {
  std::vector<double> stepEnds; ///< seconds since the first step's begin
  double firstStep = 0;         ///< seconds from the first entry's start to the last one's end
  double step = 0;              ///< seconds of a step once steps follow each other
  double planned = 0;           ///< what the plan predicted for one step
  bool usesTopology = false;    ///< else transfers take their planned durations
  uint64_t entries = 0;         ///< of one step, all devices
  std::vector<SimulatedDevice> devices;
  Seconds criticalPath = {}; ///< of the last step: adds up to what it took beyond the step before
  std::vector<TraceEvent> trace;
};

/// \returns a user error that names the waiting entries if the programs cannot run (the verifier accepts no such programs).
Result<Simulation> simulatePrograms(const Bundle &bundle, const SimulationOptions &options);

} // namespace zorse::runtime
