// Executes the programs of a bundle, step after step.
//
//   device a   compute worker        load  F0    F1    B1 ...   the entries of the first compute queue, in list order; on a device that shares the
//                                                               host's memory also loads and reports, which are copies
//              communication worker  gather  send  receive ...  all other queues, in list order, but for what overlaps with computing: updates, and
//                                                               copies between arenas, which have a worker for each queue (Workers.h)
//   device b   ...
//
// Entries are put on the queues of their devices (Device.h), a step at a time and up to kStepsAhead steps ahead; there they wait for the events their
// waits name. A device whose calls block has a thread for each worker. Because every wait and every transfer goes back in one global list, the
// earliest unfinished entry can always run. Steps follow each other without a barrier between them.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/DirectTransport.h"
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

/// Who keeps the state of a step. Between the last entry of a step and the first update of the next one nothing changes a device's persistent state.
class StateReader {
public:
  virtual ~StateReader() = default;
  /// In a thread of the device (in that of Executor::submit where the device computes nothing), after its last entry of the step (StepScalars.step):
  /// the state is still until Executor::releaseState(device), once, which must follow soon; later updates wait for it. Must not block.
  virtual void stateIsStill(uint32_t device, uint64_t step) = 0;
};

struct StepRequest {
  bool evaluation = false; ///< only the work of the phases LOAD, GATHER, FORWARD and REPORT is done.
  zorse::abi::StepScalars scalars = {};
  std::shared_ptr<const Batch> batch;
  StateReader *afterStep = nullptr; ///< lives until the step has been waited for.
};

struct StepResult {
  bool reported = false;               ///< a device of this process has the Report entry.
  zorse::abi::StepScalars report = {}; ///< what it showed.
  double begin = 0, end = 0;           ///< seconds since the executor was made: first entry started, last one finished.
};

/// A call about to run, with the addresses of its slots. In a thread of its device, which does nothing else meanwhile.
struct ObservedCall {
  uint64_t step; ///< 0 for the first submitted
  bool evaluation;
  uint32_t device;
  const bundle::Entry &entry;
  const bundle::Call &call;
  const bundle::Body &body;
  const DeviceAddress *slots;
  Device &memory; ///< whose addresses they are
};

/// One entry as it ran.
struct TraceEvent {
  uint32_t device;
  uint32_t entry; ///< index in Program.entries
  uint64_t step;
  double begin, end; ///< seconds since the executor was made; waiting is not included.
};

struct ExecutorOptions {
  bool poison = false; ///< fill arenas with a pattern of NaNs before anything is loaded.
  /// Fill bytes with NaNs as soon as nobody reads them any more, entry by entry: slow, for tests. Programs that are right train to the same bits.
  bool spoil = false;
  bool trace = false;
  uint64_t traceSteps = UINT64_MAX; ///< only the first so many.
  bool oneThreadPerQueue = false;   ///< instead of one communication worker per device.
  double stallSeconds = 300; ///< nothing done for so long, inside a body or not: the run is given up. 0: somebody else watches (a job's coordinator).
  std::function<void(const ObservedCall &)> beforeCall;
  std::function<bool(const bundle::Entry &, bool evaluation)> observes; ///< whose calls beforeCall is called for; null: of all
};

/// A device that this process executes.
struct LocalDevice {
  uint32_t index = 0; ///< of its program
  std::unique_ptr<QueuedDevice> device;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<DirectTransport> direct = nullptr; ///< where its program has a queue of kind DIRECT
  double share = 1;                                  ///< of its speed: see makeDevice
};

class Executor {
public:
  /// Allocates arenas and loads bodies. The bundle outlives the executor. `locals`: ascending, all devices of the bundle or some of them.
  static Result<std::unique_ptr<Executor>> create(const Bundle &bundle, std::vector<LocalDevice> locals, const ExecutorOptions &options);
  /// Stops all threads; steps that were submitted and not waited for are given up.
  ~Executor();

  /// The devices that this process executes, ascending.
  const std::vector<uint32_t> &devices() const;

  // Bytes of a region of one of them, from `offset` on. Safe while no step is under way, and of persistent state while it is still (StateReader).
  // From any thread.
  Status read(uint32_t device, const bundle::Region &region, uint64_t offset, void *to, size_t bytes) const;
  Status write(uint32_t device, const bundle::Region &region, uint64_t offset, const void *from, size_t bytes);
  /// All of it to zeros.
  Status clear(uint32_t device, const bundle::Region &region);

  /// Lets the device's updates go on after StateReader::stateIsStill. From any thread.
  void releaseState(uint32_t device);

  /// At most `kStepsAhead` steps may be under way.
  static constexpr int kStepsAhead = 4;
  void submit(StepRequest request);

  /// Waits for the oldest step that has not been waited for. After a failure every call returns its first cause.
  Result<StepResult> wait();

  /// Ends everything under way: wait() returns `why` (or an earlier failure). From any thread. Bodies that run go on to their end.
  void abort(const Error &why);

  /// What has been done so far and what keeps the rest waiting. From any thread.
  struct Progress {
    uint64_t counter = 0;  ///< entries and launches finished, pieces of transfers moved
    bool underWay = false; ///< a step is submitted and not done
    uint64_t step = 0;     ///< of the earliest unfinished entry: 0 for the first submitted step
    uint32_t entry = 0;
    std::string where;            ///< "entry 17 (receive from b)": the one who is there
    std::vector<Unheard> unheard; ///< peers of transports
    std::string everywhere;       ///< "device a: entry 17 (receive from b); device b: waiting before entry 18 (...); ..."
  };
  Progress progress() const;

  std::vector<TraceEvent> takeTrace();

  struct MemoryUse {
    uint64_t planned = 0; ///< bytes of the device's arenas
    uint64_t touched = 0; ///< in lines of 64 bytes that no longer hold the poison; 0 without poison.
  };
  Result<std::vector<MemoryUse>> memoryUse() const;

private:
  class Implementation;
  explicit Executor(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

/// One of the bundle's devices, as its manifest describes it.
/// \param ordinal  which of the driver's units it is (Units.h)
/// \param threadsHere  of all devices that this machine executes, which decides whether they may spin. \param share  of its speed, in (0, 1]
Result<std::unique_ptr<QueuedDevice>> makeDevice(const Bundle &bundle, uint32_t index, int ordinal, int threadsHere, double share = 1);

/// All devices of the bundle, as threads of this process. \param ordinals, shares  by device; empty: the first unit, whole ones
Result<std::vector<LocalDevice>> makeLocalDevices(const Bundle &bundle, const std::vector<int> &ordinals = {},
                                                  const std::vector<double> &shares = {});

} // namespace zorse::runtime
