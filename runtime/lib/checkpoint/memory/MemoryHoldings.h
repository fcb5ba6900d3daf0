// What the nodes of a job hold in memory, and checkpoints that are read from several of them.
#pragma once

#include "MemoryPeers.h"

#include <map>
#include <set>

namespace zorse::runtime {

class MemoryHoldings {
public:
  /// Describes what a store holds, for the other ranks. \param server  of this rank; its port is 0
  /// if it has none
  static std::string describe(const MemoryStore &store, const Endpoint &server);

  MemoryHoldings() = default;
  /// \param descriptions  of all ranks, in their order
  explicit MemoryHoldings(const std::vector<std::string> &descriptions);

  /// Steps of which some node holds each file, newest first. Every rank computes the same.
  std::vector<MemoryStep> coveredSteps() const;

  /// Servers of the ranks whose node holds a file, or the layout of a generation.
  const std::vector<Endpoint> &holdersOf(const MemoryStep &step, const std::string &file) const;
  const std::vector<Endpoint> &holdersOf(uint64_t generation) const;

  /// What all slots of a step say.
  struct Facts {
    uint64_t consumedSamples = 0;
    abi::OptimizerStep optimizerStep = {};
  };
  Facts factsOf(const MemoryStep &step) const;

private:
  std::map<uint64_t, std::set<std::string>> files_; ///< of a generation's layout
  std::map<uint64_t, std::vector<Endpoint>> layouts_;
  std::map<MemoryStep, std::map<std::string, std::vector<Endpoint>>> held_; ///< by file
  std::map<MemoryStep, Facts> facts_;
};

/// Reads the state after a step: from the slots of this node, and others from other nodes.
Result<CheckpointReader> openMemoryCheckpoint(const MemoryStore &store, const MemoryStep &step,
                                              const MemoryHoldings &holdings,
                                              const CheckpointOptions::Peers &options);

} // namespace zorse::runtime
