// Time tables of CostModel: curves over rows, one per (device class, unit class, task).
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Step/Costs.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::planning {

/// FLOPs and bytes of one task of a unit per sample, and the matrix rows of a sample.
struct Work {
  double flops = 0, bytes = 0;
  double positions = 1;

  bool operator<(const Work &o) const {
    return std::tie(flops, bytes, positions) < std::tie(o.flops, o.bytes, o.positions);
  }
};

inline constexpr size_t kUnitTasks = 5; ///< Forward, Backward, InputGradients, WeightGradients,
                                        ///< Recompute

/// Work of the tasks of a unit, by UnitTask.
struct UnitWork {
  Work tasks[kUnitTasks];
  uint32_t classId = 0;
  bool splits = false;
  double inputPart = 1; ///< share of the backward that B executes if the unit does not split; W
                        ///< executes the rest

  bool operator<(const UnitWork &o) const;
};

UnitWork unitWork(const bundle::ModelSummary &summary, step::UnitRef unit);

/// Seconds as a function of rows: max(fixed + perRow · r, memoryPerRow · r) + launch; or a modeled
/// time; or measured points with linear interpolation.
class Curve {
public:
  struct Point {
    int64_t rows;
    double seconds;
  };

  /// No work: always 0 seconds.
  Curve() = default;
  static Curve roofline(const ClusterDevice &device, double speed, const Work &work);
  static Curve estimated(std::function<double(int64_t rows)> seconds);
  static Curve measured(std::vector<Point> points); ///< ascending rows, at least one

  double at(int64_t rows) const {
    if (rows <= 0)
      return 0;
    if (!dense.empty())
      return static_cast<size_t>(rows) < dense.size() ? dense[static_cast<size_t>(rows)]
                                                      : beyond(rows);
    double r = static_cast<double>(rows);
    return launchOverhead + std::max(fixed + perRow * r, memoryPerRow * r);
  }
  /// Returns the curve multiplied by `factor`.
  Curve scaled(double factor) const;

private:
  double beyond(int64_t rows) const;
  double onLine(int64_t rows) const;

  double launchOverhead = 0, fixed = 0, perRow = 0, memoryPerRow = 0;
  std::shared_ptr<const std::function<double(int64_t)>> model; ///< multiplied by `scale`
  double scale = 1;
  std::vector<Point> points;
  std::vector<double> dense; ///< seconds by rows, up to the last point, kDenseRows, or, for modeled
                             ///< times, kEstimatedRows
};

/// seconds = fixed + each · n
struct Rate {
  double fixed = 0, each = 0;
  double at(double n) const { return n > 0 ? fixed + each * n : 0; }
};

/// All times of one class of devices.
struct DeviceTimes {
  std::vector<Curve> curves; ///< unit class x task
  Rate update, norm, copy, load;
  Rate hostUpdate;                                 ///< by the CPU of the device's host
  double updatePerFlop = 0, hostUpdatePerFlop = 0; ///< seconds of Muon's matmuls
  std::string source; ///< human-readable source of the curves, and assumptions
};

/// \param port  bytes/s to other devices of the node, for copies if the memory bandwidth is unknown
DeviceTimes deviceTimes(const bundle::ModelSummary &summary, const std::vector<UnitWork> &units,
                        const ClusterDevice &device, double speed, double pcie, double port,
                        const DeviceProfile *profile);

/// Returns the most specific profile of a device: by its name, by the part of its name before ":3",
/// or by its type; nullptr if there is none.
const DeviceProfile *findProfile(const Profile &profile, const ClusterDevice &device);

} // namespace zorse::planning
