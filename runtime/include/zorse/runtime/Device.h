// The device interface of the runtime. Drivers implement it (docs/internals/runtime.md); programs,
// state and transports do not depend on the driver. test/runtime/DeviceConformance.h tests a driver
// against the guarantees in this file.
//
// A Device has memory and functions; its calls block. A QueuedDevice also has queues. The executor
// enqueues work on them, and each work item waits for its events without the executor. A driver may
// implement only Device and use threads for the queues (withThreads), or implement both with its
// own streams.
#pragma once

#include "zorse/runtime/KernelObjects.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/abi/KernelAbi.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace zorse::bundle {
class CompiledFunction;
class FunctionLibrary;
enum MemoryKind : int;
} // namespace zorse::bundle

namespace zorse::runtime {

/// An address in a device's memory. Only the driver can interpret the number. Other code may add
/// byte offsets within one allocation.
struct DeviceAddress {
  uint64_t value = 0; ///< 0: none

  explicit operator bool() const { return value != 0; }
  DeviceAddress operator+(uint64_t bytes) const { return {value + bytes}; }
  bool operator==(DeviceAddress other) const { return value == other.value; }
  bool operator!=(DeviceAddress other) const { return value != other.value; }

  /// Conversions for drivers with host memory.
  static DeviceAddress ofHost(const void *pointer) {
    return {reinterpret_cast<uintptr_t>(pointer)};
  }
  std::byte *onHost() const { return reinterpret_cast<std::byte *>(uintptr_t(value)); }
};

/// Arguments of one call of a function.
struct FunctionArguments : ZorseCallContext {
  const DeviceAddress *addresses = nullptr; ///< one per CompiledFunction.arguments, 64-byte aligned
  /// One flag per argument: nonzero = ArgumentBinding::overwrite. Null: no argument is overwritten,
  /// accumulators are added to.
  const uint8_t *overwrite = nullptr;
  uint32_t segment = 0; ///< number of exchanges before the launches to run; 0 if the function has
                        ///< none (bundle::Call)
};

/// One allocation. It is filled with zeros (or poison, if requested) until it is written.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  virtual DeviceAddress base() const = 0; ///< a multiple of kMemoryAlignment
  virtual size_t bytes() const = 0;
};

inline constexpr size_t kMemoryAlignment = 64;

struct AllocationOptions {
  bool poison = false; ///< fill with kPoisonWord: reads of unwritten memory give NaN, and untouched
                       ///< bytes can be counted
};

/// Eight bytes that are a NaN as one f64 and as two f32.
inline constexpr uint64_t kPoisonWord = 0xfffadeadfffadeadull;

/// Memory and functions. Calls block and may come from several threads.
class Device {
public:
  virtual ~Device() = default;

  /// Returns "a (cpu, 2 threads)", for messages.
  virtual std::string description() const = 0;

  /// Bytes of the device's own memory; 0: it uses the host's memory.
  virtual uint64_t ownMemory() const { return 0; }

  /// Allocates memory. Returns an error if the device does not have this kind of memory or not
  /// enough of it.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes,
                                                         const AllocationOptions &options) = 0;

  // Copies between memory of the device, of any kind, and the caller's memory. When a call returns,
  // the copy is complete and visible to work that is enqueued later.
  virtual Status read(void *to, DeviceAddress from, size_t bytes) = 0;
  virtual Status write(DeviceAddress to, const void *from, size_t bytes) = 0;
  virtual Status copy(DeviceAddress to, DeviceAddress from,
                      size_t bytes) = 0; ///< ranges may overlap
  virtual Status fill(DeviceAddress to, std::byte value, size_t bytes) = 0;

  /// Returns the pointer by which the named transport accesses an address. It is valid while the
  /// memory is allocated. Returns an error if the device does not support the transport.
  virtual Result<void *> expose(DeviceAddress address, const std::string &transport) = 0;

  /// Resolves all symbols and routines that the functions name. Call it once per device. `objects`
  /// may be destroyed before the device. Returns an error for code that the device cannot run and
  /// for unknown functions.
  virtual Status loadFunctions(const bundle::FunctionLibrary &library,
                               const KernelObjects &objects) = 0;

  /// Runs function `index` of the loaded library. Its writes are visible to every thread that
  /// synchronizes with the caller. Calls from several threads run sequentially.
  virtual Status runFunction(uint32_t index, const FunctionArguments &arguments) = 0;

  /// Number of launches that have finished or been put on a stream; it grows while a function runs.
  /// A watchdog uses it to distinguish a long function from one that never returns.
  virtual uint64_t launches() const = 0;
};

/// The event that the first `count` work items of a queue are complete.
struct Event {
  uint32_t queue = 0;
  uint64_t count = 0;
};

/// Host work of a queue. Must outlive the work that refers to it.
class HostTask {
public:
  /// \param argument  value given to enqueue. \param call  index of the call of a CallWork that
  ///   follows; otherwise 0. May block; the worker then runs nothing else.
  virtual Status run(uint64_t argument, size_t call) = 0;

protected:
  ~HostTask() = default;
};

struct FunctionCall {
  uint32_t function = 0;
  FunctionArguments arguments;
};

/// A stream of a device for work that others put on it, such as transfers from GPU to GPU. Work
/// begins when all earlier work on the stream is complete. Use it only in the thread that receives
/// it, in which the device's context is current, and do not keep it.
class WorkStream {
public:
  /// Handle for the vendor's libraries (CUstream).
  virtual void *handle() const = 0;
  virtual Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  /// The call reads the pointers in `call` before it returns.
  virtual Status call(const FunctionCall &call) = 0;

protected:
  ~WorkStream() = default;
};

/// Puts work on the stream of a queue. Must outlive the work that refers to it.
class StreamTask {
public:
  /// Must not wait for work on the stream. \param argument  value given to enqueue
  virtual Status put(uint64_t argument, WorkStream &stream) = 0;

protected:
  ~StreamTask() = default;
};

// Work items for a queue. All memory that they point to must stay unchanged until they are
// complete.
struct NoWork {}; ///< completes after its waits
struct CallWork {
  const FunctionCall *calls = nullptr; ///< run in order
  size_t count = 0;
  /// Run before each call, once everything before the call is complete; usually null. A device with
  /// streams drains its queue for it.
  HostTask *before = nullptr;
  uint64_t argument = 0;
};
struct CopyWork {
  DeviceAddress to, from;
  size_t bytes = 0;
};
struct ReadWork {
  void *to = nullptr;
  DeviceAddress from;
  size_t bytes = 0;
};
struct WriteWork {
  DeviceAddress to;
  const void *from = nullptr;
  size_t bytes = 0;
};
struct HostWork {
  HostTask *task = nullptr;
  uint64_t argument = 0;
}; ///< a transfer by a blocking transport
struct StreamWork {
  StreamTask *task = nullptr;
  uint64_t argument = 0;
}; ///< a transfer from GPU to GPU; an error on devices without streams
using Work = std::variant<NoWork, CallWork, CopyWork, ReadWork, WriteWork, HostWork, StreamWork>;

/// Receives notifications about work, from threads of the device.
class QueueObserver {
public:
  /// Work enqueued with `notify` is complete. Called in the order of the queue. A device with
  /// threads calls it before the worker's next work item; a device with streams may be ahead.
  /// \param begin, end  times of the work without its waits: seconds of std::chrono::steady_clock
  virtual void finished(uint64_t tag, double begin, double end) = 0;
  /// The first work item failed. Work that has not begun will not run.
  virtual void failed(uint64_t tag, const Error &error) = 0;

protected:
  ~QueueObserver() = default;
};

/// A device with queues. Work on a queue begins in the order of enqueueing, after the earlier work
/// on its queue and all its events are complete. The caller must keep one global order in which
/// every wait refers to earlier work. The earliest unfinished work can then always run.
class QueuedDevice : public Device {
public:
  /// Creates the queues. Call it once. \param workers  by queue: queues with equal numbers may
  /// share a thread, which takes their work in the order of enqueueing. \param observer  must
  /// outlive the device, or closeQueues().
  virtual Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) = 0;

  /// Preloads state that calls of a queue's work would load on their first run if that loading
  /// would wait for other work of the device: library kernels, their workspaces, their choice of
  /// algorithms. Call it after openQueues, before anything is enqueued. Runs some of the calls;
  /// their results are undefined afterwards. \return  whether a call ran
  virtual Result<bool> warmUp(uint32_t queue, const FunctionCall *calls, size_t count) {
    return false;
  }

  /// Enqueues work without waiting. Call it from one thread at a time. `waits` are copied; they are
  /// events of this device.
  /// \param notify  whether the observer is notified when the work is complete; `tag` is passed to
  ///   the observer.
  virtual Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work,
                        uint64_t tag, bool notify) = 0;

  /// Starts enqueued work. Work may stay unsubmitted until this is called.
  virtual void flush() = 0;

  virtual bool isDone(Event event) const = 0;

  /// Number of completed work items of a queue.
  virtual uint64_t done(uint32_t queue) const = 0;

  /// Waits for the event. Returns an error if the work that it needs has failed or was abandoned.
  virtual Status wait(Event event) = 0;

  /// Puts work on a separate stream, in the calling thread, and waits for it. Independent of the
  /// queues; may be called before or after they are opened. Returns an error on devices without
  /// streams.
  virtual Status onStream(StreamTask &task) {
    return userError("device '" + description() + "' has no streams");
  }

  /// Abandons work that has not begun: waits return `why`, or the earlier failure. May be called
  /// from any thread and repeatedly. Work that has begun runs to its end.
  virtual void abort(const Error &why) = 0;

  /// Returns when no work is in progress and the observer will not be called again. Abandons work
  /// that has not begun. The destructor does the same.
  virtual void closeQueues() = 0;
};

/// Adds queues to a blocking device. One thread per worker takes its work in order, sleeps while it
/// waits, and calls the device.
std::unique_ptr<QueuedDevice> withThreads(std::unique_ptr<Device> device);

} // namespace zorse::runtime
