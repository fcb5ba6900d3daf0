// Pipelines that do the same at the same time, so that simulating one of them is enough. Internal to Planning.
#pragma once

#include "zorse/Planning/Layout.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::planning {

/// Finds twins: pipelines with equal stages, samples, rows and launch counts on devices of equal classes and memory, place by place, on nodes of
/// their own with equal links, each within one site. Nothing passes between two of them but collectives, which have the members of all.
///
/// Where nodes or a limited fabric are shared, or devices' processors move the bytes, pipelines get in each other's way: they are no twins.
class TwinFinder {
public:
  explicit TwinFinder(const Problem &problem);

  /// Finds the twins of a layout; the previous ones are forgotten.
  void find(const Layout &layout);
  /// No twins: every pipeline is simulated.
  void forget(const Layout &layout);

  /// Whether the pipeline is another one's twin.
  bool isTwin(size_t pipeline) const { return first[pipeline] != pipeline; }
  /// Devices of twins with the devices they are like, (like, twin), ascending.
  const std::vector<std::pair<uint32_t, uint32_t>> &devices() const { return pairs; }
  /// Calls `visit` with every device that is like `device`.
  template <typename Visit> void each(uint32_t device, Visit &&visit) const {
    for (uint32_t i = begins.empty() ? 0 : begins[device]; i < pairs.size() && pairs[i].first == device; ++i)
      visit(pairs[i].second);
  }

private:
  bool alike(const Layout &layout, const Pipeline &a, const Pipeline &b);
  bool sameNodes(uint32_t a, uint32_t b);

  const Problem *problem;
  bool possible = true;
  std::vector<uint32_t> nodeClass;   ///< by node: equal links in equal sites
  std::vector<uint8_t> sharedFabric; ///< by site: its devices share its bandwidth
  std::vector<uint32_t> first;       ///< by pipeline: the first one that is like it
  std::vector<std::pair<uint32_t, uint32_t>> pairs, mapped;
  std::vector<uint32_t> begins; ///< by device: where its pairs begin
  std::vector<uint32_t> ownerOfNode, ownerOfSite, deviceTwin, nodeTwin, touchedDevices, touchedNodes;
};

} // namespace zorse::planning
