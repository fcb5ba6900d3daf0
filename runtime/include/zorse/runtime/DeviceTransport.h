// Transfers from GPU memory to GPU memory. Operations are work on streams; no host thread waits for
// them. There is one object per device. A device's program contains its direct operations and their
// order, on its queue of kind DEVICE_TO_DEVICE (docs/internals/transports.md).
//
// - A call puts this device's part of an operation on a stream and returns. The operation is
//   complete when the stream has passed it.
// - Every device calls its operations from one thread, in the order of its program. The combined
//   order of all devices has no cycle.
// - Sums have a fixed order: element by element in the order of the list of contributors or
//   members. They give the same bits as the blocking transports.
// - After abort() or a failure of any device, work on streams ends within a bounded time, its data
//   are undefined, and calls return the root cause.
#pragma once

#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"
#include "zorse/runtime/ProcessGroup.h"
#include "zorse/runtime/Transport.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

struct DeviceAllGather {
  size_t elementBytes = 4;
  std::vector<Shard> shards;
  std::vector<Shard> reads; ///< as AllGatherArguments
  DeviceAddress full;  ///< readers: receives every shard at its place; one that already lies there
                       ///< is left alone
  DeviceAddress shard; ///< owners: the first byte of their shards; of an owner that reads them
                       ///< inside `full`, at their places
};

struct DeviceReduction {
  NumberType type = NumberType::F32; ///< F32 or F64
  std::vector<Shard> terms;          ///< as ReduceScatterArguments
  std::vector<Shard> shards;
  DeviceAddress full;  ///< contributors: their runs
  DeviceAddress shard; ///< owners: receives the sums, as ReduceScatterArguments; each on a multiple
                       ///< of 64 bytes
  DeviceAddress parts; ///< owners, of more than one contributor: roundPartsBytes of memory
  int64_t chunk = 0; ///< elements of a shard in a round; a multiple of 512 bytes, or not less than
                     ///< the largest shard has
  bool bf16Terms = false;   ///< as ReduceScatterArguments; `parts` then has roundedPartsBytes
  DeviceAddress sends = {}; ///< with bf16Terms, contributors: a roundedStride of memory for each
                            ///< other owner
};

/// All-reduce of numbers of type F64.
struct DeviceSum {
  std::vector<uint32_t> members; ///< in the order of summation
  DeviceAddress data;            ///< receives the sum
  DeviceAddress parts;           ///< sumPartsBytes of memory
  int64_t count = 0;
};

class DeviceTransport {
public:
  virtual ~DeviceTransport() = default;

  virtual Status send(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) = 0;
  virtual Status receive(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) = 0;
  virtual Status allGather(const DeviceAllGather &gather, WorkStream &stream) = 0;
  virtual Status reduceScatter(const DeviceReduction &reduction, WorkStream &stream) = 0;
  virtual Status allReduce(const DeviceSum &sum, WorkStream &stream) = 0;

  /// Grows as operations are put on streams.
  virtual uint64_t moved() const = 0;

  /// Registers a callback for a failure that no call has returned: a peer's failure, detected while
  /// streams wait for it. The callback runs in a thread of the transport. Register it once, before
  /// anything is put on streams. Null unregisters it, and returns when no callback is running any
  /// more.
  virtual void onFailure(std::function<void(const Error &)> told) = 0;

  /// Makes all calls return the error `why` from now on. May be called from any thread, at any time
  /// and repeatedly; the first error is kept. Work on streams ends.
  virtual void abort(const Error &why) = 0;
};

/// NCCL communicators of the devices that exchange directly. The first of `groups` contains all of
/// them, by the number that the bundle assigns. Then follow the groups that gather together, as
/// long as a device is in at most kMaxCommunicators; other groups send and receive.
struct DeviceTransferPlan {
  std::vector<std::vector<uint32_t>> groups; ///< devices by rank: in the order of the shards that
                                             ///< they gather, so that NCCL can put them in place
  std::vector<std::vector<uint32_t>> peers;  ///< by device: devices that it sends to or receives
                                             ///< from, ascending
  bool empty() const { return groups.empty(); }
};
inline constexpr size_t kMaxCommunicators = 8;

/// Returns the communicators that the bundle's programs need. Equal on every rank.
DeviceTransferPlan deviceTransferPlan(const Bundle &bundle);

/// The order of terms, and the functions that add them.
struct DeviceSums {
  uint32_t max(NumberType type) const {
    return type == NumberType::F64 ? uint32_t(f64.size()) + 1 : uint32_t(f32.size()) + 1;
  }
  uint32_t function(NumberType type, uint32_t terms) const {
    return (type == NumberType::F64 ? f64 : f32)[terms - 2];
  }
  std::vector<uint32_t> f32, f64; ///< functions with 2, 3, ... terms
  RoundedSumFunctions rounded;
};
DeviceSums deviceSums(const bundle::ModelSummary &summary);

struct DeviceTransportOptions {
  DeviceTransferPlan plan;
  DeviceSums sums;
  std::vector<std::string> names; ///< names of devices
  double connectSeconds = 60; ///< time limit for the members of one group to connect, and for its
                              ///< self-test
  std::string allGatherBytes = "direct";        ///< prefix of the names of exchanges
  std::function<void(const std::string &)> say; ///< receives a message about every slow group;
                                                ///< called from threads
};

/// A device of this process that exchanges directly.
struct DeviceTransportMember {
  uint32_t device = 0;
  QueuedDevice *memory = nullptr; ///< with its functions loaded; must outlive the transport
};

/// Connects through NCCL, which is loaded on demand, and tests every group once with a few known
/// bytes. All ranks call it, also those without a member.
/// \returns one transport per member. Errors name the devices, the failed operation and how to fix
///   it.
Result<std::vector<std::unique_ptr<DeviceTransport>>>
connectNccl(const std::vector<DeviceTransportMember> &members, ProcessGroup &group,
            const DeviceTransportOptions &options);

/// Returns "2.28.3", or why no usable NCCL was found.
Result<std::string> ncclVersion();

} // namespace zorse::runtime
