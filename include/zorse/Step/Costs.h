// Where the time of a step goes: what the expansion asks while it simulates. Planning's CostModel answers from a profile or a roofline; without one,
// FLOPs over the plan's speeds and the plan's two link classes answer.
#pragma once

#include "zorse/Simulation/Network.h"

#include <cstdint>

namespace zorse::step {

/// What a task does with a unit. InputGradients and WeightGradients are the two parts of a split backward; Recompute is of the forward what makes the
/// saved block.
enum class UnitTask : uint8_t { Forward, Backward, InputGradients, WeightGradients, Recompute };

/// Devices are indices of the plan. All times are seconds of one launch on an otherwise idle device, and finite and positive or 0.
class Costs {
public:
  virtual ~Costs() = default;
  virtual double unit(uint32_t device, int32_t unit, UnitTask task, int64_t rows) const = 0;
  /// Devices of one class take equally long for every unit. Small numbers.
  virtual uint32_t deviceClass(uint32_t device) const { return device; }
  /// The optimizer's update, the norm, of so many elements of owned state.
  virtual double update(uint32_t device, int64_t elements) const = 0;
  virtual double norm(uint32_t device, int64_t elements) const = 0;
  /// The update on the processor of the device's host, in the host's memory.
  virtual double hostUpdate(uint32_t device, int64_t elements) const = 0;
  /// A copy inside the device's memory.
  virtual double copy(uint32_t device, uint64_t bytes) const = 0;
  /// From the host: inputs and scalars.
  virtual double load(uint32_t device, uint64_t bytes) const = 0;
  virtual const sim::Network &network() const = 0;
  virtual sim::Algorithm gatherAlgorithm() const { return sim::Algorithm::Best; }
  virtual sim::Algorithm reduceAlgorithm() const { return sim::Algorithm::Best; }
};

/// A guess where nothing is measured: what an update reads and writes, at the rate that a device's part of its host's processors reaches.
inline constexpr double kHostUpdateRate = 10e9; ///< bytes/s
inline double hostUpdateSeconds(int64_t elements, uint64_t elementBytes, uint32_t moments) {
  return static_cast<double>(elements) * static_cast<double>(elementBytes) * (3 + 2 * moments) / kHostUpdateRate;
}

} // namespace zorse::step
