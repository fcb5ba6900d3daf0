// Finds pipelines that do the same work at the same time. Simulating one of them is sufficient.
// Internal to Planning.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::planning {

/// Finds replicas. Pipelines that share a node or a fabric with limited bandwidth contend with each
/// other and are one group. Two groups are replicas of each other if, pipeline by pipeline,
/// - their stages, sample counts, micro-batch sizes and launch counts are equal;
/// - their devices have equal classes and equal memory, position by position;
/// - each group lies within one site, on nodes with equal links.
///
/// Replicas communicate only in collectives, and all replicas take part in these. There are none
/// among pipelines whose devices move data with their own CPUs.
class ReplicaFinder {
public:
  explicit ReplicaFinder(const Problem &problem);

  /// Finds the replicas of a strategy and forgets the previous ones.
  void find(const Strategy &strategy);
  /// Forgets all replicas: every pipeline of `strategy` is simulated.
  void forget(const Strategy &strategy);

  /// Whether the pipeline is a replica of an earlier pipeline.
  bool isReplica(size_t pipeline) const { return first[pipeline] != pipeline; }
  /// Pairs of devices (device of the simulated pipeline, corresponding device of a replica),
  /// ascending.
  const std::vector<std::pair<uint32_t, uint32_t>> &devices() const { return pairs; }
  /// Calls `visit` with every device that corresponds to `device`.
  template <typename Visit> void each(uint32_t device, Visit &&visit) const {
    for (uint32_t i = begins.empty() ? 0 : begins[device];
         i < pairs.size() && pairs[i].first == device; ++i)
      visit(pairs[i].second);
  }

private:
  std::vector<std::vector<uint32_t>> separateGroups(const Strategy &strategy);
  bool alike(const Strategy &strategy, const std::vector<uint32_t> &a,
             const std::vector<uint32_t> &b);
  bool mapDevices(const Strategy &strategy, const Pipeline &a, const Pipeline &b);
  bool sameNodes(uint32_t a, uint32_t b);

  const Problem *problem;
  bool possible = true;
  std::vector<uint32_t> nodeClass;   ///< per node; equal for nodes with equal links in equal sites
  std::vector<uint8_t> sharedFabric; ///< per site: whether its devices share its bandwidth
  std::vector<uint32_t> first;       ///< per pipeline: the first pipeline that is its replica
  std::vector<std::pair<uint32_t, uint32_t>> pairs, mapped;
  std::vector<uint32_t> begins; ///< per device: index of its first pair
  std::vector<uint32_t> deviceReplica, nodeReplica, touchedNodes;
};

} // namespace zorse::planning
