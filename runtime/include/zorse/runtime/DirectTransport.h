// How bytes move from the memory of GPUs to the memory of GPUs: operations are work on streams, for which no thread of the host waits. One object per
// device. What a device does for them, and in which order, is in its program, on its queue of kind DIRECT (docs/transports.md).
//
// - A call puts this device's part of an operation on a stream and returns; the operation is over when the stream is behind it.
// - Every device calls what it takes part in, from one thread, in the order of its program; the order of all devices together has no circle.
// - Sums are ranked: element by element in the order of the list of contributors or members. They have the bits of the transports that block.
// - After abort(), or a failure of any device, work that is on streams ends in time, its bytes mean nothing, and calls return the first cause.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/Group.h"
#include "zorse/runtime/Transport.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

struct DirectGather {
  size_t elementBytes = 4;
  std::vector<Shard> shards;
  std::vector<Shard> reads; ///< as AllGatherArguments
  DeviceAddress full;       ///< readers: receives every shard at its place; one that already lies there is left alone
  DeviceAddress shard;      ///< owners: the first byte of their shards; of an owner that reads them inside `full`, at their places
};

struct DirectReduction {
  NumberType type = NumberType::F32; ///< F32 or F64
  std::vector<Shard> terms;          ///< as ReduceScatterArguments
  std::vector<Shard> shards;
  DeviceAddress full;  ///< contributors: their runs
  DeviceAddress shard; ///< owners: receives the sums, as ReduceScatterArguments; each on a multiple of 64 bytes
  DeviceAddress parts; ///< owners, of more than one contributor: roundPartsBytes of memory
  int64_t chunk = 0;   ///< elements of a shard in a round; a multiple of 512 bytes, or not less than the largest shard has
};

/// Numbers of type F64.
struct DirectSum {
  std::vector<uint32_t> members; ///< in the order of summation
  DeviceAddress data;            ///< receives the sum
  DeviceAddress parts;           ///< sumPartsBytes of memory
  int64_t count = 0;
};

class DirectTransport {
public:
  virtual ~DirectTransport() = default;

  virtual Status send(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) = 0;
  virtual Status receive(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) = 0;
  virtual Status allGather(const DirectGather &gather, WorkStream &stream) = 0;
  virtual Status reduceScatter(const DirectReduction &reduction, WorkStream &stream) = 0;
  virtual Status allReduce(const DirectSum &sum, WorkStream &stream) = 0;

  /// Grows as operations are put on streams.
  virtual uint64_t moved() const = 0;

  /// Who hears, from a thread of the transport, of a failure that no call has returned: a peer's, found while streams wait for it. Once, before
  /// anything is put on streams; null ends it, and returns when nobody is being told any more.
  virtual void onFailure(std::function<void(const Error &)> told) = 0;

  /// From any thread, at any time, more than once: `why` is what calls return from now on; the first one stays. Work on streams ends.
  virtual void abort(const Error &why) = 0;
};

/// Devices that exchange directly, each of which needs a communicator with all others: the first of `groups` are all of them, by the number that the
/// bundle gives them. Then those that gather together, as far as a device takes part in at most kMostCommunicators; others send and receive.
struct DirectPlan {
  std::vector<std::vector<uint32_t>> groups; ///< devices, ascending
  std::vector<std::vector<uint32_t>> peers;  ///< by device: those that it sends to or receives from, ascending
  bool empty() const { return groups.empty(); }
};
inline constexpr size_t kMostCommunicators = 8;

/// What the bundle's programs do directly. The same on every rank.
DirectPlan directPlan(const Bundle &bundle);

/// The order of terms and the bodies that add them.
struct DirectSums {
  uint32_t most(NumberType type) const { return type == NumberType::F64 ? uint32_t(f64.size()) + 1 : uint32_t(f32.size()) + 1; }
  uint32_t body(NumberType type, uint32_t terms) const { return (type == NumberType::F64 ? f64 : f32)[terms - 2]; }
  std::vector<uint32_t> f32, f64; ///< bodies of 2, 3, ... terms
};
DirectSums directSums(const bundle::ModelSummary &summary);

struct DirectOptions {
  DirectPlan plan;
  DirectSums sums;
  std::vector<std::string> names;               ///< of devices
  double connectSeconds = 60;                   ///< for the members of one group to meet, and for its self-test
  std::string exchange = "direct";              ///< names of exchanges begin with it
  std::function<void(const std::string &)> say; ///< hears of every group that takes its time; from threads
};

/// A device of this process that takes part.
struct DirectMember {
  uint32_t device = 0;
  QueuedDevice *memory = nullptr; ///< with its bodies loaded; outlives the transport
};

/// Connects through NCCL, which is loaded for it, and tries every group once with a few known bytes. All ranks call it, those without a member too.
/// \returns one for each member. Errors name the devices, what failed and the remedy.
Result<std::vector<std::unique_ptr<DirectTransport>>> connectNccl(const std::vector<DirectMember> &members, Group &group,
                                                                  const DirectOptions &options);

/// "2.28.3", or why there is no NCCL that serves.
Result<std::string> ncclVersion();

} // namespace zorse::runtime
