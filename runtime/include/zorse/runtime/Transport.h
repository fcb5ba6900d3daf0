// Data transfer between devices. There is one object per device. All drivers (local threads, Gloo
// between processes) implement this interface and pass the same conformance tests
// (test/runtime/TransportConformance.h).
//
// Guarantees of all drivers:
// - A call blocks until this device's part is done: the received data have arrived, and its own
//   data are no longer read.
// - (instruction id, step) identifies an operation. All participants call it exactly once per step,
//   in an order of instructions that is equal on all of them (ascending ids). The participants are
//   the same in every step that calls the instruction. Several threads may have operations in
//   progress at the same time.
// - Data are not buffered: a send returns after the receiver has taken the bytes. It may also write
//   to memory that the receiver has announced (`postReceive`).
// - Sums have a fixed order: element by element in the order of the list of contributors or
//   members, in the element type (f32 for half types). Every run therefore gives the same bits.
// - After abort() every call, waiting or later, returns an error on every device.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/UnresponsivePeer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

using zorse::Compact;
using zorse::Held;
using zorse::Shard;

struct Operation {
  uint32_t instruction = 0;
  uint64_t step = 0;
};

enum class NumberType : uint8_t { F32, F64, BF16, F16 };

/// Size of an element in bytes.
size_t bytesOf(NumberType type);

/// Owners' shards become known to their readers.
struct AllGatherArguments {
  size_t elementBytes = 4;
  std::vector<Shard> shards;
  std::vector<Shard> reads; ///< runs of the readers, each of which has all of a shard or nothing of
                            ///< it.
  void *full = nullptr; ///< readers: their runs; receives every shard at its place. A shard that
                        ///< already lies there is left alone.
  const void *shard = nullptr; ///< owners: their shards; if the first of them is at its place
                               ///< inside `full`, all are.
};

/// Each owner receives the sums of the contributors' elements over its shards.
struct ReduceScatterArguments {
  NumberType type = NumberType::F32;
  /// Runs of the contributors, each of which has all of a shard or nothing of it. Who has a shard
  /// contributes to it, in the order of this list.
  std::vector<Shard> terms;
  std::vector<Shard> shards;
  const void *full = nullptr; ///< contributors: their runs.
  void *shard = nullptr; ///< owners: receives the sums; if the first of them is at its place inside
                         ///< `full`, all are.
  /// F32 only: each term of a shard with several contributors, also the owner's own, is rounded to
  /// bf16 once, and travels so. The sums are f32 and are not rounded. A shard with one contributor
  /// is passed on as it is.
  bool bf16Terms = false;
};

/// All-reduce: the sum replaces the numbers of every member.
struct AllReduceArguments {
  NumberType type = NumberType::F64;
  std::vector<uint32_t> members; ///< in the order of summation
  void *data = nullptr;
  int64_t count = 0;
};

/// The interface of one device to the other devices.
class Transport {
public:
  virtual ~Transport() = default;

  /// Name by which devices know the transport (Device::expose, DeviceKind.transports).
  virtual std::string name() const { return "local"; }

  /// Blocking point-to-point transfers of `bytes` bytes to or from `peer`.
  virtual Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) = 0;
  virtual Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) = 0;

  /// Pre-posts a receive that follows with the same arguments, from the same thread. The memory is
  /// free from now on, so the data may arrive before the receive is called. Does not block. The
  /// memory must stay valid until the transport is destroyed. A driver without an advantage from it
  /// ignores the call, and its `gainsFromExpecting` returns false.
  virtual void postReceive(Operation operation, uint32_t peer, void *data, size_t bytes) {}
  virtual bool gainsFromExpecting() const { return false; }

  virtual Status allGather(Operation operation, const AllGatherArguments &arguments) = 0;
  virtual Status reduceScatter(Operation operation, const ReduceScatterArguments &arguments) = 0;
  virtual Status allReduce(Operation operation, const AllReduceArguments &arguments) = 0;

  /// A counter that grows as bytes move, also within a long transfer. A watchdog uses it to
  /// distinguish slow from stuck.
  virtual uint64_t moved() const = 0;

  /// Peers with missed heartbeats. A driver within one process has none.
  virtual std::vector<UnresponsivePeer> unresponsive() const { return {}; }

  /// Makes all calls return the error `why` from now on. May be called from any thread, at any time
  /// and repeatedly; the first error is kept.
  virtual void abort(const Error &why) = 0;
};

/// Transports of devices that are threads of one process: a rendezvous, then the receiver copies.
std::vector<std::unique_ptr<Transport>> makeLocalTransports(uint32_t devices);

} // namespace zorse::runtime
