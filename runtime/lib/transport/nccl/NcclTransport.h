// Transfers and collectives of one device through NCCL.
//
//   transfers        ncclSend, ncclRecv
//   all-gather       in a group with its own communicator: ncclAllGather if shards are equal and
//                    ordered, otherwise a group of ncclBroadcast, in place;
//                    other groups: a group of sends and receives of exactly the shards
//   reduce-scatter   in rounds: a group of sends and receives of exactly the owners' extents, then
//                    a sum in fixed order on the owner
//   all-reduce       all-to-all exchange of the numbers, then a sum in fixed order
#pragma once

#include "Communicator.h"

#include "zorse/runtime/DeviceTransport.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <thread>

namespace zorse::runtime::nccl {

inline void *pointer(DeviceAddress address) {
  return reinterpret_cast<void *>(uintptr_t(address.value));
} // NOLINT(performance-no-int-to-ptr)

class NcclTransport final : public DeviceTransport {
public:
  NcclTransport(const NcclApi &api, const DeviceTransportMember &member,
                const DeviceTransportOptions &options);
  ~NcclTransport() override;

  /// Connects to the other members of every group of this device, in the order of the plan, and
  /// tests each group. Call it in a separate thread. `ids` is indexed by group. The n-th group must
  /// be connected within n * DeviceTransportOptions.connectSeconds after `begin`, because some
  /// members reach it only after the previous group.
  Status connect(const std::vector<UniqueId> &ids, Communicator::Clock::time_point begin);

  Status send(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) override;
  Status receive(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) override;
  Status allGather(const DeviceAllGather &gather, WorkStream &stream) override;
  Status reduceScatter(const DeviceReduction &reduction, WorkStream &stream) override;
  Status allReduce(const DeviceSum &sum, WorkStream &stream) override;
  uint64_t moved() const override { return moved_; }
  void onFailure(std::function<void(const Error &)> told) override;
  void abort(const Error &why) override;

private:
  struct Transfer {
    bool sends;
    uint32_t peer;
    DeviceAddress data;
    size_t bytes;
  };
  Status
  exchange(const char *what, const std::vector<Transfer> &transfers, WorkStream &stream,
           Communicator::Clock::time_point deadline = Communicator::Clock::time_point::max());
  Communicator *communicatorOf(const std::vector<uint32_t> &devices); ///< null: the devices have no
                                                                      ///< dedicated communicator
  Status gatherInGroup(Communicator &communicator, const DeviceAllGather &gather,
                       WorkStream &stream);
  /// The elements of one round, from `begin` on, of shards of which no owner has two.
  Status reduceRound(const DeviceReduction &reduction, const std::vector<Shard> &shards,
                     int64_t begin, WorkStream &stream);
  Status tryOut(Communicator &communicator, Communicator::Clock::time_point deadline);
  const std::vector<uint32_t> &partnersIn(const Communicator &communicator) const;
  Status checkWords(const Communicator &communicator, const std::vector<uint64_t> &found) const;
  Status done(const Status &status);
  std::string namesOf(const Communicator &communicator) const;
  void watch();

  const NcclApi &api_;
  const DeviceTransportMember member_;
  const DeviceTransportOptions options_;
  SharedFailure failure_;
  std::vector<std::unique_ptr<Communicator>> communicators_; ///< the first one contains all devices
  std::atomic<uint64_t> moved_{0};

  std::mutex mutex_; ///< guards the following members
  std::condition_variable wake_;
  bool ending_ = false;
  std::function<void(const Error &)> told_;
  std::thread watcher_;
};

} // namespace zorse::runtime::nccl
