// Cost model: seconds of every task of a model on every device of a cluster. Times come from a
// profile, if it has them, or from a model of GPUs or a roofline.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::planning {

struct Team;

/// If no profile has a unit's time on a GPU of a known type, the time is the sum over the kernels
/// that its compiled function launches (lib/Planning/Costs/GpuTimes.h). This needs
/// UnitFunction.work in the summary. On other devices, the time of r rows is
///
///     launch + max(FLOPs(r) / (speed * e(r)), bytes(r) / memory bandwidth)
///     e(r) = r·p / (r·p + halfRows)
///
/// where p is the number of matrix rows (positions) of one sample: the product of all dimensions
/// except the last of the unit's largest value; for ids, of all dimensions.
///
/// With a profile, times between measured row counts are interpolated linearly. Above the largest
/// measured row count they grow in proportion; below the smallest they are constant. Classes that
/// are not in the profile follow the roofline, scaled by the ratio that the profile's classes show.
///
/// A backward in two parts uses the summary's work of each part; if there is none, see
/// UnitWork.cpp. Memory of unknown bandwidth costs no time.
///
/// Devices of equal kind share a table, and a look-up takes constant time. The class is immutable,
/// and threads may share it.
class CostModel final : public step::Costs {
public:
  /// Fails for a device that cannot compute in the model's type, and for a profile of another
  /// model.
  /// \param devices  the plan's devices, by name; each must be in the cluster. Empty: all devices
  ///   of the cluster, in its order.
  static Result<CostModel> make(const bundle::ModelSummary &summary, const Cluster &cluster,
                                const Profile *profile,
                                const std::vector<step::PlanDevice> &devices);

  /// Costs of teams as devices (lib/Planning/TensorParallel/Teams.h: costsOfTeams).
  static CostModel ofTeams(const CostModel &costs, const std::vector<Team> &teams);

  /// Costs of the same devices in another order. Classes are numbered in that order.
  /// \param devices   by new index, the index here
  /// \param topology  in the new order
  CostModel reordered(const std::vector<uint32_t> &devices, bundle::Topology topology) const;

  double unit(uint32_t device, step::UnitRef unit, step::UnitTask task,
              int64_t rows) const override;
  double update(uint32_t device, step::UpdateWork work) const override;
  double norm(uint32_t device, int64_t elements) const override;
  double hostUpdate(uint32_t device, step::UpdateWork work) const override;
  double copy(uint32_t device, uint64_t bytes) const override;
  double load(uint32_t device, uint64_t bytes) const override;
  const sim::Network &network() const override;

  /// The topology of `network`, with measured links. The bundle stores it
  /// (topology.pb) for later simulations of its programs.
  const bundle::Topology &topology() const;

  /// The profile of these devices, or null. It lives as long as the model and its copies. Callers
  /// use it to create cost models of other devices or clusters.
  const Profile *profile() const;

  /// Describes the source of a device's unit times, and the assumptions: "modeled: products at
  /// most 253 TFLOP/s (0.81 of the vendor's 312) ...".
  const std::string &source(uint32_t device) const;

  /// Devices with the same number have equal times and equal memory.
  uint32_t deviceClass(uint32_t device) const override;
  /// Units with the same number have equal costs.
  uint32_t unitClass(int32_t unit) const;

private:
  CostModel() = default;
  struct Tables;
  std::shared_ptr<const Tables> tables;
};

} // namespace zorse::planning
