// Executes the programs of a bundle, step after step.
//
//   device a   compute worker        load  F0    F1    B1 ...
//              communication worker  gather  send  receive ...
//   device b   ...
//
// - The compute worker runs the instructions of the first compute queue, in list order. On a device
//   that shares the host's memory, it also runs loads and reports, which are copies.
// - The communication worker runs all other queues, in list order, except those that overlap with
//   computation: updates and copies between arenas have a worker per queue (Workers.h).
//
// The executor enqueues instructions on the queues of their devices (Device.h), one step at a time
// and up to kStepsAhead steps ahead. An instruction waits there for the events of its waits. A
// device with blocking calls has one thread per worker. Every wait and every transfer refers to an
// earlier instruction of one global list, so the earliest unfinished instruction can always run.
// There is no barrier between steps.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/DeviceTransport.h"
#include "zorse/runtime/Transport.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <functional>
#include <memory>
#include <vector>

namespace zorse::runtime {

/// Inputs of one step: for every graph input all rows of the batch, in the input's element type.
struct Batch {
  std::vector<std::vector<std::byte>> inputs;
};

/// Callback that saves the state after a step. A device's persistent state does not change between
/// the last instruction of a step and the first update of the next one.
class StateObserver {
public:
  virtual ~StateObserver() = default;
  /// Called after the device's last instruction of the step (StepScalars.step), in a thread of the
  /// device, or in that of Executor::submit if the device computes nothing. The state does not
  /// change until Executor::releaseState(device). That must be called once and soon, because later
  /// updates wait for it. Must not block.
  virtual void onStateQuiescent(uint32_t device, uint64_t step) = 0;
};

struct StepRequest {
  bool evaluation = false; ///< execute only instructions of the phases LOAD, GATHER, FORWARD and
                           ///< READ_METRICS
  zorse::abi::StepScalars scalars = {};
  std::shared_ptr<const Batch> batch;
  StateObserver *afterStep = nullptr; ///< must live until the step has been waited for
};

struct StepResult {
  bool reported = false; ///< whether a device of this process has the ReadMetrics instruction
  zorse::abi::StepScalars report = {}; ///< scalars that the ReadMetrics instruction copied
  double begin = 0, end = 0;     ///< seconds since the executor was created: start of the first
                                 ///< instruction, end of the last one
  std::vector<double> computing; ///< seconds in functions, by device of this process; empty: not
                                 ///< measured (ExecutorOptions::measureComputing)
};

/// A call that is about to run, with the addresses of its arguments. Observed in a thread of its
/// device, which waits for the observer.
struct ObservedCall {
  uint64_t step; ///< 0 for the first submitted step
  bool evaluation;
  uint32_t device;
  const bundle::Instruction &instruction;
  const bundle::Call &call;
  const bundle::CompiledFunction &function;
  const DeviceAddress *addresses;
  Device &memory; ///< device of the addresses
};

/// The execution of one instruction.
struct TraceEvent {
  uint32_t device;
  uint32_t instruction; ///< index in Program.instructions
  uint64_t step;
  double begin, end; ///< seconds since the executor was created, without waiting
};

struct ExecutorOptions {
  bool poison = false; ///< fill arenas with a NaN pattern before anything is loaded
  /// Fill bytes with NaNs after their last use, instruction by instruction. Slow; for tests.
  /// Correct programs give the same bits.
  bool poisonAfterLastUse = false;
  bool trace = false;
  uint64_t traceSteps = UINT64_MAX; ///< only the first N steps
  bool measureComputing = false;  ///< fill StepResult::computing in every fifth step; each function
                                  ///< is then timed
  bool oneThreadPerQueue = false; ///< instead of one communication worker per device
  double watchdogTimeoutSeconds = 300; ///< the run fails after this time without progress, also in
                                       ///< a function; 0: off (the job's coordinator is the
                                       ///< watchdog)
  std::function<void(const ObservedCall &)> beforeCall;
  /// Instructions with calls to observe; null: all.
  std::function<bool(const bundle::Instruction &, bool evaluation)> observes;
};

/// A device that this process executes.
struct LocalDevice {
  uint32_t index = 0; ///< index of its program
  std::unique_ptr<QueuedDevice> device;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<DeviceTransport> deviceTransport = nullptr; ///< set if its program has a queue of
                                                              ///< kind DEVICE_TO_DEVICE
  double share = 1; ///< fraction of its speed: see makeDevice
};

class Executor {
public:
  /// Allocates arenas and loads functions. The bundle must outlive the executor. `locals`: some or
  /// all devices of the bundle, ascending.
  static Result<std::unique_ptr<Executor>>
  create(const Bundle &bundle, std::vector<LocalDevice> locals, const ExecutorOptions &options);
  /// Stops all threads and abandons steps that have been submitted but not waited for.
  ~Executor();

  /// Devices that this process executes, ascending.
  const std::vector<uint32_t> &devices() const;

  // Access to the bytes of a region of a local device, from `offset` on. Safe while no step is in
  // progress; for persistent state also between StateObserver::onStateQuiescent and releaseState.
  // May be called from any thread.
  Status read(uint32_t device, const bundle::Region &region, uint64_t offset, void *to,
              size_t bytes) const;
  Status write(uint32_t device, const bundle::Region &region, uint64_t offset, const void *from,
               size_t bytes);
  /// Sets the whole region to zero.
  Status clear(uint32_t device, const bundle::Region &region);

  /// Lets the device's updates continue after StateObserver::onStateQuiescent. May be called from
  /// any thread.
  void releaseState(uint32_t device);

  /// Submits a step. At most `kStepsAhead` steps may be in progress.
  static constexpr int kStepsAhead = 4;
  void submit(StepRequest request);

  /// Waits for the oldest step that has not been waited for. After a failure every call returns the
  /// root cause.
  Result<StepResult> wait();

  /// Ends all steps in progress: wait() returns `why`, or an earlier failure. May be called from
  /// any thread. Running functions run to their end.
  void abort(const Error &why);

  /// Progress so far, and the instruction that the rest waits for. May be called from any thread.
  struct Progress {
    uint64_t counter = 0;    ///< finished instructions and launches, transferred chunks
    bool inProgress = false; ///< a step is submitted and not finished
    uint64_t step = 0; ///< step of the earliest unfinished instruction; 0 for the first submitted
                       ///< step
    uint32_t instruction = 0;
    std::string where; ///< "instruction 17 (receive from b)": the earliest unfinished instruction
    std::vector<UnresponsivePeer> unresponsive; ///< peers of transports with missed heartbeats
    std::string everywhere; ///< "device a: instruction 17 (receive from b); device b: waiting
                            ///< before instruction 18 (...); ..."
  };
  Progress progress() const;

  std::vector<TraceEvent> takeTrace();

  struct MemoryUse {
    uint64_t planned = 0; ///< bytes of the device's arenas
    uint64_t touched = 0; ///< bytes in lines of 64 bytes that no longer hold the poison pattern; 0
                          ///< without poison
  };
  Result<std::vector<MemoryUse>> memoryUse() const;

private:
  class Implementation;
  explicit Executor(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// Creates one of the bundle's devices as its manifest describes it.
/// \param ordinal  index of the driver's unit (Driver.units)
/// \param threadsHere  threads of all devices on this machine, which determine whether they may
///   spin. \param share  fraction of the speed, in (0, 1]
Result<std::unique_ptr<QueuedDevice>> makeDevice(const Bundle &bundle, uint32_t index, int ordinal,
                                                 int threadsHere, double share = 1);

/// Creates all devices of the bundle as threads of this process. \param ordinals, shares  by
/// device; empty: the first unit, full speed
Result<std::vector<LocalDevice>> makeLocalDevices(const Bundle &bundle,
                                                  const std::vector<int> &ordinals = {},
                                                  const std::vector<double> &shares = {});

} // namespace zorse::runtime
