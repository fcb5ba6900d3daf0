// Interface for task and transfer times, which the expansion uses while it simulates a step. The
// planner's CostModel implements it with a profile or a model of devices. The default
// implementation uses FLOPs, the plan's speeds and the plan's two link speeds.
#pragma once

#include "zorse/Simulation/Network.h"

#include <cstdint>

namespace zorse::step {

/// Function of a unit that a task executes. InputGradients and WeightGradients are the two parts of
/// a split backward. Recompute is the part of the forward that makes the saved block.
enum class UnitTask : uint8_t { Forward, Backward, InputGradients, WeightGradients, Recompute };

/// A unit of the model or, with a group, the unit that a device of the group has in place of it
/// (ModelSummary.device_groups).
struct UnitRef {
  int32_t unit;
  int32_t group = -1;
  uint32_t member = 0;

  UnitRef(int32_t unit, int32_t group = -1, uint32_t member = 0) // implicit: a unit of the model
      : unit(unit), group(group), member(member) {}
};

/// Work of the optimizer's update of a range of owned state.
struct UpdateWork {
  int64_t elements = 0;
  double flops = 0; ///< of Muon's matmuls; 0: the update is elementwise
};

/// Devices are indices of the plan. All times are seconds of one launch on an otherwise idle
/// device, and finite and positive or 0.
class Costs {
public:
  virtual ~Costs() = default;
  virtual double unit(uint32_t device, UnitRef unit, UnitTask task, int64_t rows) const = 0;
  /// Devices of one class take equally long for every unit. Classes are small numbers.
  virtual uint32_t deviceClass(uint32_t device) const { return device; }
  virtual double update(uint32_t device, UpdateWork work) const = 0;
  /// Seconds of the norm of `elements` elements of owned state.
  virtual double norm(uint32_t device, int64_t elements) const = 0;
  /// Seconds of the update on the CPU of the device's host, in host memory.
  virtual double hostUpdate(uint32_t device, UpdateWork work) const = 0;
  /// Seconds of a copy inside the device's memory.
  virtual double copy(uint32_t device, uint64_t bytes) const = 0;
  /// Seconds of a copy from the host: inputs and scalars.
  virtual double load(uint32_t device, uint64_t bytes) const = 0;
  virtual const sim::Network &network() const = 0;
};

/// Estimate if nothing is measured: the bytes that an update reads and writes, at the rate that a
/// device's share of its host's CPUs reaches.
inline constexpr double kHostUpdateRate = 10e9;   ///< bytes/s
inline constexpr double kHostUpdateSpeed = 100e9; ///< FLOP/s
inline double hostUpdateSeconds(UpdateWork work, uint64_t elementBytes, double stateBytes) {
  return static_cast<double>(work.elements) *
             (3 * static_cast<double>(elementBytes) + 2 * stateBytes) / kHostUpdateRate +
         work.flops / kHostUpdateSpeed;
}

} // namespace zorse::step
