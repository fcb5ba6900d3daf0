// In-memory checkpoints of other nodes, over TCP: a rank serves the slots of its node, reads those
// of other nodes, and copies its state to a second node.
//
// Both ends of a connection prove that they know the job's secret before anything else. All bytes
// of state are followed by their XXH64.
#pragma once

#include "MemoryStore.h"

#include "zorse/runtime/Control.h"

#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace zorse::runtime {

struct MemoryRequest;

/// Serves the store of this node to the other ranks of the job.
class MemoryServer {
public:
  /// \param store  must outlive the server
  static Result<std::unique_ptr<MemoryServer>> start(const MemoryStore &store,
                                                     const CheckpointOptions::Peers &options);
  /// Ends all connections.
  ~MemoryServer();

  const Endpoint &endpoint() const { return endpoint_; }

private:
  MemoryServer(const MemoryStore &store, std::string secret)
      : store_(store), secret_(std::move(secret)) {}
  void accept();
  void serve(int socket);
  /// Slots of other nodes' devices that one connection writes.
  using Slots = std::map<std::string, MemorySlot>;
  bool send(int socket, const MemoryRequest &request);
  Status receive(int socket, const MemoryRequest &request, Slots &slots);

  const MemoryStore &store_;
  std::string secret_;
  Endpoint endpoint_;
  FileDescriptor listener_, waker_;
  std::thread acceptor_;
  std::mutex mutex_; ///< guards the members below
  bool stopping_ = false;
  std::map<int, std::thread> connections_; ///< by socket
};

/// A connection to the server of another node. Not synchronized.
class MemoryPeer {
public:
  static Result<std::unique_ptr<MemoryPeer>> connect(const Endpoint &endpoint,
                                                     const CheckpointOptions::Peers &options);

  Result<std::string> readLayout(uint64_t generation);

  struct Range {
    uint64_t offset = 0, bytes = 0;
  };
  /// Reads ranges of the state in the slot of a file, in order.
  Status read(const MemoryStep &step, const std::string &file, const std::vector<Range> &ranges,
              const std::function<void(size_t range, const std::byte *)> &take);

  /// Writes the state of a device into one of two slots of the other node.
  /// \param kept  newest committed step, which is not overwritten
  Status write(const std::string &device, const std::optional<MemoryStep> &kept,
               const SlotHeader &header, const std::byte *state);

private:
  MemoryPeer(Endpoint endpoint, FileDescriptor socket)
      : endpoint_(std::move(endpoint)), socket_(std::move(socket)) {}
  Error broken(const std::string &what) const;
  Status readReply(std::string &text);

  Endpoint endpoint_;
  FileDescriptor socket_;
};

} // namespace zorse::runtime
