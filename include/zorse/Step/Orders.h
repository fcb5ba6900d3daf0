// Rules by which tasks are put in order, on plain arrays.
#pragma once

#include "zorse/Step/Plan.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::step {

/// What a queue serves first, of what could start at one time: state and small things, then what frees memory.
enum Rank : uint8_t { kShortRank = 0, kBackwardRank = 1, kWeightsRank = 2, kForwardRank = 3, kFillerRank = 6 };

/// Priority by rank, then first sample (>= -1), then unit (which may be negative). The least is served first.
inline uint64_t priorityOf(uint8_t rank, int64_t sample, int32_t unit) {
  return static_cast<uint64_t>(rank) << 61 | (static_cast<uint64_t>(sample + 1) & 0x1ffffffff) << 28 |
         (static_cast<uint64_t>(unit + (1 << 27)) & 0xfffffff);
}

/// Timed schedules: priority by the seconds at which a task would run in a steady state; W without a limit comes after all others.
inline constexpr uint8_t kTimedRank = 1, kTimedFillerRank = 2;
uint64_t priorityAt(uint8_t rank, double seconds);

/// A device's tasks in a steady state: they recur with the period of a cell.
class RecurringSlots {
public:
  /// Reserves the first gap of `duration` in the cycle after `ready`, all in seconds.
  /// \returns how long the task waits for it; 0 if there is no such gap.
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

/// 1F1B by samples, one device after the other from the last stage to the first: before a backward a device forwards whatever the stage behind
/// forwards before the backwards that it waits for. Grids of samples may differ from stage to stage.
class OneForwardOneBackward {
public:
  /// \param cells  of the whole tiling; must outlive the orders.
  OneForwardOneBackward(const Cell *cells, size_t devices) : cells(cells), marks(devices), seen(devices, UINT32_MAX) {}

  /// The order of a device's tasks. The devices of the stage behind must have been ordered.
  /// \param mine    its cells
  /// \param behind  cells of the stage behind, of all its devices
  /// \param ahead   forwards beyond what is needed before the first backward (HARP's launch counts)
  std::vector<TaskName> order(uint32_t device, CellIndices mine, CellIndices behind, size_t ahead);

private:
  /// Before its backward that starts at `sample`, and counting one forward more, a device and those behind it forward samples up to `reach`. What is
  /// behind counts even where this device has none of those samples: a cell behind may need them from a neighbour before the backward.
  struct Mark {
    int64_t sample, reach;
  };

  const Cell *cells;
  std::vector<std::vector<Mark>> marks; ///< by device
  std::vector<uint32_t> seen, next;
  std::vector<size_t> cursor;
  std::vector<int64_t> behindReach, following;
};

/// Most cells between forward and backward, in an order without W.
size_t mostInFlight(const std::vector<TaskName> &tasks);

} // namespace zorse::step
