// Units by class, and the times of devices on them, for lower bounds. Internal to lib/Planning.
#pragma once

#include "LinearProgram.h"

#include "zorse/Planning/Strategy.h"
#include "zorse/Step/Costs.h"

#include <cstdint>
#include <set>
#include <vector>

namespace zorse::planning {

/// One unit of every class, and the number of units per class.
struct Kinds {
  std::vector<int32_t> unit;
  std::vector<double> count;
  std::vector<uint32_t> of; ///< per unit

  explicit Kinds(const Problem &problem);
  /// Units times samples, by kind.
  std::vector<double> amounts(int64_t samples) const;
};

std::vector<uint32_t> allDevices(const Problem &problem);

/// 1 to `max`, or to the batch if that is less.
std::set<int64_t> rowsUpTo(int64_t max, int64_t batch);

/// Seconds of the backward of a cell of one unit. \param split  in two parts, if the unit can
double backwardSeconds(const Problem &problem, uint32_t device, step::UnitRef unit, int64_t rows,
                       bool split);

/// Returns the minimum seconds per sample, by device and kind of unit, over row counts. Forward and
/// backward each use their best row count, so no plan is faster.
std::vector<std::vector<double>> minSeconds(const Problem &problem, const Kinds &kinds,
                                            const std::vector<uint32_t> &devices,
                                            const std::set<int64_t> &rowCounts);

/// Groups devices with equal times.
std::vector<Machines> machinesOf(const std::vector<std::vector<double>> &seconds);

/// The public byteBound, with these row counts.
double byteBound(const Problem &problem, const std::set<int64_t> &rowCounts);

} // namespace zorse::planning
