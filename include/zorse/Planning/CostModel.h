// Seconds of every task of a model on every device of a cluster: from a profile where there is one, from a model of GPUs or a roofline elsewhere.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::planning {

/// A unit's time on a GPU of a known type without a profile is the sum over what its body launches (lib/Planning/Costs/GpuTimes.h), where the summary
/// knows that (UnitFunction.work). On other devices, over r rows:
///
///     launch + max(FLOPs(r) / (speed * e(r)), bytes(r) / memory bandwidth),   e(r) = r·p / (r·p + halfRows)
///
/// with p the matrix rows of one sample (positions). With a profile: between measured row counts along a line, beyond the last one in proportion,
/// below the first one the first; classes it lacks follow the roofline, scaled by what the profile shows for the classes it has.
///
/// p: all dimensions but the last of the largest value of the unit; of ids, all. A backward in two parts takes what the summary says of them; where
/// it has none, see UnitWork.cpp. Memory of unknown bandwidth costs nothing.
///
/// Devices of equal kind share a table; look-ups are constant time. Immutable, shared by threads.
class CostModel final : public step::Costs {
public:
  /// \param devices  of the plan, by name; each must be in the cluster. Empty: all of the cluster, in its order.
  /// An error for a device that cannot compute in the model's type, or a profile of another model.
  static Result<CostModel> make(const bundle::ModelSummary &summary, const Cluster &cluster, const Profile *profile,
                                const std::vector<step::PlanDevice> &devices);

  double unit(uint32_t device, int32_t unit, step::UnitTask task, int64_t rows) const override;
  double update(uint32_t device, int64_t elements) const override;
  double norm(uint32_t device, int64_t elements) const override;
  double hostUpdate(uint32_t device, int64_t elements) const override;
  double copy(uint32_t device, uint64_t bytes) const override;
  double load(uint32_t device, uint64_t bytes) const override;
  const sim::Network &network() const override;
  sim::Algorithm gatherAlgorithm() const override;
  sim::Algorithm reduceAlgorithm() const override;

  /// What `network` was made of, measured links and algorithms included: for whoever simulates the programs later (the bundle's topology.pb).
  const bundle::Topology &topology() const;

  /// What was measured of these devices; null: nothing. Lives as long as the model and its copies: for whoever makes costs of other devices or
  /// clusters.
  const Profile *profile() const;

  /// Where the times of a device's units come from, and what was assumed: "modelled: products at most 253 TFLOP/s (0.81 of the vendor's 312) ...".
  const std::string &source(uint32_t device) const;

  /// Devices with the same number are alike in every time and in memory.
  uint32_t deviceClass(uint32_t device) const override;
  /// Units with the same number cost the same.
  uint32_t unitClass(int32_t unit) const;

private:
  CostModel() = default;
  struct Tables;
  std::shared_ptr<const Tables> tables;
};

} // namespace zorse::planning
