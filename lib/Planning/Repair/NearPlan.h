// The plan that a repair starts from. Internal to Planning.
#pragma once

#include "ReadStrategy.h"

#include "zorse/Planning/Repair.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

struct Candidate;
class SearchContext;

/// A plan for another cluster. Devices of both clusters with equal names are the same device.
/// Immutable; threads may share it.
class NearPlan {
public:
  /// Without structure and state if the plan is not valid for the problem. Both must outlive this
  /// object.
  NearPlan(const Problem &problem, const step::Plan &plan);

  /// The plan as a strategy of devices of Plan::devices; nullopt: it has none (`whyNot`), and there
  /// are no repairs.
  const std::optional<Strategy> &strategy() const { return read; }
  const std::string &whyNot() const { return difference; }

  /// Returns strategies for the usable devices of a search that differ little from the plan: first
  /// the plan itself without the lost devices. None are simulated.
  std::vector<Candidate> repairs(SearchContext &context) const;

  /// See redistributionBytes.
  uint64_t movedBytes(const Problem &problem, const step::Plan &plan) const;

  /// Exchanges equal devices, and equal nodes of a site, such that devices get more of what they
  /// held. The step takes the same time. \param plan    of the strategy
  /// \param usable  devices that may be used
  Strategy withNearestDevices(const Problem &problem, const Strategy &strategy,
                              const step::Plan &plan, const std::vector<uint32_t> &usable) const;

private:
  /// Returns the plan's index of every device of a cluster; kNew: it has none.
  std::vector<uint32_t> oldIndices(const Cluster &cluster) const;
  static constexpr uint32_t kNew = UINT32_MAX;

  const bundle::ModelSummary &summary;
  const step::Plan &plan;
  std::optional<Strategy> read;
  std::string difference;
  std::vector<std::vector<Shard>> held; ///< by group: step::findHeldState of the plan
  std::vector<double> bytesOf;          ///< by group: bytes of an element's state
};

} // namespace zorse::planning
