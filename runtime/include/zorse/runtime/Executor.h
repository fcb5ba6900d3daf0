// Executes the programs of a bundle, step after step.
//
//   device a   compute thread        load  F0    F1    B1 ...   the entries of all compute queues, in list order; on a device that shares the host's
//                                                               memory also loads and reports, which are copies
//              communication thread  gather  send  receive ...  all other queues, in list order
//   device b   ...
//
// Every queue has a counter of finished entries; an entry waits for the counters its waits name, sleeping. Because every wait and every transfer goes back in
// one global list, the earliest unfinished entry can always run. Steps are submitted ahead of time and follow each other without a barrier between them.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/Transport.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <functional>
#include <memory>
#include <vector>

namespace zorse::runtime {

/// One step's inputs: for every graph input all rows of the batch, in the input's element type.
struct Batch {
  std::vector<std::vector<std::byte>> inputs;
};

struct StepRequest {
  bool evaluation = false;             ///< only the work of the phases LOAD, GATHER, FORWARD and REPORT is done.
  zorse::abi::StepScalars scalars = {};
  std::shared_ptr<const Batch> batch;
};

struct StepResult {
  zorse::abi::StepScalars report = {}; ///< what the Report entry showed.
  double begin = 0, end = 0;           ///< seconds since the executor was made: first entry started, last one finished.
};

/// A call about to run, with the addresses of its slots. In the compute thread of its device.
struct ObservedCall {
  uint64_t step;                       ///< 0 for the first submitted
  bool evaluation;
  uint32_t device;
  const bundle::Entry &entry;
  const bundle::Call &call;
  const bundle::Body &body;
  void *const *slots;
};

/// One entry as it ran.
struct TraceEvent {
  uint32_t device;
  uint32_t entry;                      ///< index in Program.entries
  uint64_t step;
  double begin, end;                   ///< seconds since the executor was made; waiting is not included.
};

struct ExecutorOptions {
  bool poison = false;                 ///< fill arenas with a pattern of NaNs before anything is loaded.
  bool trace = false;
  uint64_t traceSteps = UINT64_MAX;    ///< only the first so many.
  bool oneThreadPerQueue = false;      ///< instead of one communication thread per device.
  double stallSeconds = 120;           ///< no entry finished and none computing for so long: the run is given up.
  std::function<void(const ObservedCall &)> beforeCall;
};

class Executor {
public:
  /// Allocates arenas and loads bodies. The bundle outlives the executor. `devices` and `transports`: one per program.
  static Result<std::unique_ptr<Executor>> create(const Bundle &bundle, std::vector<std::unique_ptr<Device>> devices,
                                                  std::vector<std::unique_ptr<Transport>> transports, const ExecutorOptions &options);
  /// Stops all threads; steps that were submitted and not waited for are given up.
  ~Executor();

  /// Where a region of a device lies. Safe to touch while no step is under way.
  std::byte *address(uint32_t device, const bundle::Region &region) const;

  /// At most `kStepsAhead` steps may be under way.
  static constexpr int kStepsAhead = 4;
  void submit(StepRequest request);

  /// Waits for the oldest step that has not been waited for. After a failure every call returns its first cause.
  Result<StepResult> wait();

  std::vector<TraceEvent> takeTrace();

  struct MemoryUse {
    uint64_t planned = 0; ///< bytes of the device's arenas
    uint64_t touched = 0; ///< in lines of 64 bytes that no longer hold the poison; 0 without poison.
  };
  std::vector<MemoryUse> memoryUse() const;

private:
  class Implementation;
  explicit Executor(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// Devices as the bundle's manifest describes them.
Result<std::vector<std::unique_ptr<Device>>> makeDevices(const Bundle &bundle);

} // namespace zorse::runtime
