// Scheduling rules on plain arrays.
#pragma once

#include "zorse/Step/Plan.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::step {

/// Priority class of tasks that could start at the same time: state and short tasks first, then
/// tasks that free memory.
enum Priority : uint8_t {
  kShortPriority = 0,
  kBackwardPriority = 1,
  kWeightsPriority = 2,
  kForwardPriority = 3,
  kBubbleFillPriority = 6
};

/// Priority by rank, then first sample (>= -1), then unit (which may be negative). The smallest
/// value is served first.
inline uint64_t priorityOf(uint8_t priorityClass, int64_t sample, int32_t unit) {
  return static_cast<uint64_t>(priorityClass) << 61 |
         (static_cast<uint64_t>(sample + 1) & 0x1ffffffff) << 28 |
         (static_cast<uint64_t>(unit + (1 << 27)) & 0xfffffff);
}

/// Timed schedules: priority by the start time in seconds in a steady state. W without a limit
/// comes after all other tasks.
inline constexpr uint8_t kSteadyStatePriority = 1, kSteadyStateFillPriority = 2;
uint64_t priorityAt(uint8_t priorityClass, double seconds);

/// A device's tasks in a steady state, in which they repeat with the period of a cell.
class ModuloReservationTable {
public:
  /// Reserves the first gap of `duration` in the cycle after `ready`, all in seconds.
  /// \returns the seconds that the task waits for the gap; 0 if no gap is long enough
  double reserve(double ready, double duration, double cycle);
  void clear() { slots.clear(); }

private:
  std::vector<std::pair<double, double>> slots; ///< begin in the cycle, length
};

/// Indices of cells, by first sample.
struct CellIndices {
  const uint32_t *cells = nullptr;
  size_t count = 0;

  const uint32_t *begin() const { return cells; }
  const uint32_t *end() const { return cells + count; }
  size_t size() const { return count; }
  bool empty() const { return count == 0; }
  uint32_t front() const { return cells[0]; }
  uint32_t operator[](size_t i) const { return cells[i]; }
};

/// 1F1B counted in samples. Devices are ordered from the last stage to the first: before a
/// backward, a device runs the forwards that the next stage needs for its forwards before the
/// backwards that this backward waits for. Stages may have different grids of samples.
class OneForwardOneBackward {
public:
  /// \param cells  cells of the whole tiling; must outlive this object
  OneForwardOneBackward(const Cell *cells, size_t devices)
      : cells(cells), limits(devices), seen(devices, UINT32_MAX) {}

  /// Returns the order of a device's tasks. The devices of the next stage must have been ordered.
  /// \param mine            the device's cells
  /// \param behind          cells of the next stage, on all its devices
  /// \param warmupForwards  forwards before the first backward (HARP's launch counts); at least
  ///                        those that the backward waits for
  std::vector<TaskId> order(uint32_t device, CellIndices mine, CellIndices behind,
                            size_t warmupForwards);

private:
  /// Before its backward that starts at `sample`, and with one more forward, a device and those of
  /// later stages have run the forwards of samples up to `reach`. Later stages count even if this
  /// device has none of those samples: a later cell may need them from another device of this stage
  /// before the backward.
  struct ForwardLimit {
    int64_t sample, reach;
  };

  const Cell *cells;
  std::vector<std::vector<ForwardLimit>> limits; ///< per device
  std::vector<uint32_t> seen, next;
  std::vector<size_t> cursor;
  std::vector<int64_t> behindReach, following;
};

/// Returns the maximum number of cells between forward and backward, in an order without W.
size_t maxInFlight(const std::vector<TaskId> &tasks);

} // namespace zorse::step
