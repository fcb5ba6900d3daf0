// How bytes move between devices. One object per device; drivers (local threads, Gloo between processes) implement it and pass the same conformance
// tests (test/runtime/TransportConformance.h).
//
// Semantics all drivers share:
// - Calls block until this device's part is done: what it receives has arrived, and nobody reads what it gave any more.
// - An operation is named by (entry id, step). All its participants call it exactly once per step, in an order of entries that is the same for all
//   (ascending ids), with the same participants in every step in which they call it; several operations may be under way at once from several
//   threads.
// - Nothing is buffered: a send returns after its receive took the bytes, or into memory that its receiver has announced (`expect`).
// - Sums are ranked: element by element in the order of the list of contributors or members, in the element type (f32 for half types), so that every
// run
//   gives the same bits.
// - After abort() every call, waiting or later, returns an error on every device.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/Unheard.h"

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
  uint32_t entry = 0;
  uint64_t step = 0;
};

enum class NumberType : uint8_t { F32, F64, BF16, F16 };

size_t bytesOf(NumberType type);

/// Owners' shards become known to their readers.
struct AllGatherArguments {
  size_t elementBytes = 4;
  std::vector<Shard> shards;
  std::vector<Shard> reads;    ///< runs of the readers, each of which has all of a shard or nothing of it.
  void *full = nullptr;        ///< readers: their runs; receives every shard at its place. A shard that already lies there is left alone.
  const void *shard = nullptr; ///< owners: their shards; if the first of them is at its place inside `full`, all are.
};

/// Each owner receives the sums of the contributors' elements over its shards.
struct ReduceScatterArguments {
  NumberType type = NumberType::F32;
  /// Runs of the contributors, each of which has all of a shard or nothing of it. Who has a shard contributes to it, in the order of this list.
  std::vector<Shard> terms;
  std::vector<Shard> shards;
  const void *full = nullptr; ///< contributors: their runs.
  void *shard = nullptr;      ///< owners: receives the sums; if the first of them is at its place inside `full`, all are.
};

/// Everyone's numbers are replaced by their sum.
struct AllReduceArguments {
  NumberType type = NumberType::F64;
  std::vector<uint32_t> members; ///< in the order of summation.
  void *data = nullptr;
  int64_t count = 0;
};

class Transport {
public:
  virtual ~Transport() = default;

  /// What devices know it by (Device::expose, DeviceKind.transports).
  virtual std::string name() const { return "local"; }

  virtual Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) = 0;
  virtual Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) = 0;

  /// Announces a receive that follows with the same arguments: its memory is free from now on, so that bytes may arrive before it is called. Does not
  /// block. Memory stays valid until the transport is destroyed. From the thread that will call it. A driver that gains nothing ignores it and says
  /// so.
  virtual void expect(Operation operation, uint32_t peer, void *data, size_t bytes) {}
  virtual bool gainsFromExpecting() const { return false; }

  virtual Status allGather(Operation operation, const AllGatherArguments &arguments) = 0;
  virtual Status reduceScatter(Operation operation, const ReduceScatterArguments &arguments) = 0;
  virtual Status allReduce(Operation operation, const AllReduceArguments &arguments) = 0;

  /// Grows as bytes move, also within a long transfer: how a watchdog tells slow from stuck.
  virtual uint64_t moved() const = 0;

  /// Peers that have been silent for longer than signs of life are apart; a driver within one process has none.
  virtual std::vector<Unheard> unheard() const { return {}; }

  /// From any thread, at any time, more than once: `why` is the error that calls return from now on; the first one stays.
  virtual void abort(const Error &why) = 0;
};

/// Devices as threads of one process: a rendezvous and a copy by the receiver.
std::vector<std::unique_ptr<Transport>> makeLocalTransports(uint32_t devices);

} // namespace zorse::runtime
