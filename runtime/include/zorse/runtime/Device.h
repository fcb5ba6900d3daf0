// What the runtime needs of a device. Drivers implement it (docs/devices.md); programs, state and transports do not know which one they use.
// test/runtime/DeviceConformance.h holds what is promised here against a driver.
//
// A Device has memory and bodies; its calls block. A QueuedDevice has queues besides, on which the executor puts work that waits for other work by
// itself. A driver may implement the first and be served by threads (withThreads), or implement both over streams of its own.
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
class Body;
class BodyLibrary;
enum MemoryKind : int;
} // namespace zorse::bundle

namespace zorse::runtime {

/// A place in a device's memory. Only its driver knows what the number means: everybody else adds bytes, within one allocation, and asks the device.
struct DeviceAddress {
  uint64_t value = 0; ///< 0: none

  explicit operator bool() const { return value != 0; }
  DeviceAddress operator+(uint64_t bytes) const { return {value + bytes}; }
  bool operator==(DeviceAddress other) const { return value == other.value; }
  bool operator!=(DeviceAddress other) const { return value != other.value; }

  /// Of drivers whose memory is the host's.
  static DeviceAddress ofHost(const void *pointer) { return {reinterpret_cast<uintptr_t>(pointer)}; }
  std::byte *onHost() const { return reinterpret_cast<std::byte *>(uintptr_t(value)); }
};

/// What one call of a body needs beside the body itself.
struct BodyArguments : ZorseCallContext {
  const DeviceAddress *slots = nullptr; ///< one per Body.slots, 64-byte aligned.
  const uint8_t *overwrite =
      nullptr; ///< one flag per slot: nonzero = SlotBinding::overwrite. Null: no slot is overwritten, accumulators are added to.
};

/// One allocation. Its contents are zero (or poison, when asked for) until written.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  virtual DeviceAddress base() const = 0; ///< on a multiple of kMemoryAlignment
  virtual size_t bytes() const = 0;
};

inline constexpr size_t kMemoryAlignment = 64;

struct AllocationOptions {
  bool poison = false; ///< fill with kPoisonWord, so that reads of what nobody wrote show up as NaN and untouched bytes can be counted.
};

/// Eight bytes that are a NaN as one f64 and as two f32.
inline constexpr uint64_t kPoisonWord = 0xfffadeadfffadeadull;

/// Memory and bodies. Calls block, and may come from several threads.
class Device {
public:
  virtual ~Device() = default;

  /// "a (cpu, 2 threads)", for messages.
  virtual std::string description() const = 0;

  /// Bytes of memory of its own that the device has; 0: its memory is the host's.
  virtual uint64_t ownMemory() const { return 0; }

  /// An error for kinds of memory that the device does not have, and where there is not so much.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate(bundle::MemoryKind kind, size_t bytes, const AllocationOptions &options) = 0;

  // Bytes between memory of the device, of any kind, and the caller's. Done, and visible to work that is enqueued later, when they return.
  virtual Status read(void *to, DeviceAddress from, size_t bytes) = 0;
  virtual Status write(DeviceAddress to, const void *from, size_t bytes) = 0;
  virtual Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0; ///< they may overlap.
  virtual Status fill(DeviceAddress to, std::byte value, size_t bytes) = 0;

  /// How a transport, by its name, reaches an address: a pointer, valid as long as the memory is. An error for transports that the device cannot
  /// join.
  virtual Result<void *> expose(DeviceAddress address, const std::string &transport) = 0;

  /// Resolves every symbol and routine that the bodies name. `objects` may go before the device. Once per device. An error for code that
  /// the device does not run and for bodies that it does not know.
  virtual Status loadBodies(const bundle::BodyLibrary &library, const KernelObjects &objects) = 0;

  /// Runs body `index` of the loaded library; its writes are visible to every thread that synchronises with the caller. Calls from several threads
  /// run one after the other.
  virtual Status runBody(uint32_t index, const BodyArguments &arguments) = 0;

  /// Grows while a body runs: launches finished, or put on a stream. How a watchdog tells a long body from one that never returns.
  virtual uint64_t launches() const = 0;
};

/// The first `count` pieces of work that were put on a queue are done.
struct Event {
  uint32_t queue = 0;
  uint64_t count = 0;
};

/// What the host does on behalf of a queue. Outlives the work that names it.
class HostTask {
public:
  /// \param argument  as enqueued. \param call  before which call of a CallWork; else 0. May block; then nothing else of its worker runs.
  virtual Status run(uint64_t argument, size_t call) = 0;

protected:
  ~HostTask() = default;
};

struct BodyCall {
  uint32_t body = 0;
  BodyArguments arguments;
};

/// A stream of a device, for work that somebody else puts on it: transports from GPU to GPU. Work begins when all before it on the stream is done.
/// Used in the thread that got it, in which the device's context is current, and not kept.
class WorkStream {
public:
  /// As the vendor's libraries know it (CUstream).
  virtual void *handle() const = 0;
  virtual Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  /// What `call` points to is read before this returns.
  virtual Status call(const BodyCall &call) = 0;

protected:
  ~WorkStream() = default;
};

/// Puts work on the stream of a queue. Outlives the work that names it.
class StreamTask {
public:
  /// Does not wait for what is on the stream. \param argument  as enqueued
  virtual Status put(uint64_t argument, WorkStream &stream) = 0;

protected:
  ~StreamTask() = default;
};

// What can be put on a queue. All that it points to stays as it is until it is done.
struct NoWork {}; ///< waits, and is done.
struct CallWork {
  const BodyCall *calls = nullptr; ///< run in order
  size_t count = 0;
  HostTask *before =
      nullptr; ///< run before each call, once everything before it is done; null for most. A device with streams drains its queue for it.
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
}; ///< a transfer by a transport that blocks
struct StreamWork {
  StreamTask *task = nullptr;
  uint64_t argument = 0;
}; ///< a transfer from GPU to GPU; an error on devices without streams
using Work = std::variant<NoWork, CallWork, CopyWork, ReadWork, WriteWork, HostWork, StreamWork>;

/// Hears of work, from threads of the device.
class QueueObserver {
public:
  /// Work that was enqueued with `notify`, in the order of its queue. A device whose queues are threads calls it before the next work of the worker;
  /// one with streams may be ahead by then.
  /// \param begin, end  of the work without its waits: seconds of std::chrono::steady_clock
  virtual void finished(uint64_t tag, double begin, double end) = 0;
  /// The first piece of work that failed. Nothing that has not begun will run.
  virtual void failed(uint64_t tag, const Error &error) = 0;

protected:
  ~QueueObserver() = default;
};

/// Queues. Work on a queue begins in the order of enqueueing, when the work before it on its queue is done and so are the events that it waits for,
/// and is never done before its events are. Whoever enqueues keeps one order in which every wait goes back: then the earliest work that is not done
/// can always run.
class QueuedDevice : public Device {
public:
  /// Makes the queues, once. \param workers  per queue: queues of the same number may share a thread, which takes their work in the order of
  /// enqueueing. \param observer  outlives the device, or closeQueues().
  virtual Status openQueues(const std::vector<uint32_t> &workers, QueueObserver &observer) = 0;

  /// Loads what calls of a queue's work would load when they run for the first time, where that would wait for other work of the device: kernels of
  /// libraries, their workspaces, their choice of algorithms. After openQueues, before anything is enqueued. Runs some of the calls: what they write
  /// holds anything afterwards. \return  whether something ran
  virtual Result<bool> warmUp(uint32_t queue, const BodyCall *calls, size_t count) { return false; }

  /// From one thread at a time. Does not wait. `waits` are copied; they are events of this device.
  /// \param notify  whether the observer hears that it is done; `tag` is for the observer.
  virtual Event enqueue(uint32_t queue, const Event *waits, size_t waitCount, const Work &work, uint64_t tag, bool notify) = 0;

  /// Work may stay where it is until this is called.
  virtual void flush() = 0;

  virtual bool isDone(Event event) const = 0;

  /// How much of a queue's work is done.
  virtual uint64_t done(uint32_t queue) const = 0;

  /// Waits until the event has come; an error where the work that it needs has failed or was given up.
  virtual Status wait(Event event) = 0;

  /// Puts work on a stream of its own, in the calling thread, and waits for it. Beside the queues, before or after they are opened. An error of
  /// devices without streams.
  virtual Status onStream(StreamTask &task) { return userError("device '" + description() + "' has no streams"); }

  /// Gives up what has not begun: waits return `why`, or the earlier failure. From any thread, more than once. Work that has begun goes on to its
  /// end.
  virtual void abort(const Error &why) = 0;

  /// Returns when no work is under way any more and the observer will not be called; what has not begun is given up. The destructor does the same.
  virtual void closeQueues() = 0;
};

/// A blocking device behind queues: a thread per worker takes its work in order, sleeps while it waits, and calls the device.
std::unique_ptr<QueuedDevice> withThreads(std::unique_ptr<Device> device);

} // namespace zorse::runtime
