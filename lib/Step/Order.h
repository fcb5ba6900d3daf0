// The edges, priorities and limits that a schedule adds to a step, and the resulting global list.
// Internal to lib/Step.
//
//   Expansion ── ScheduleRule ──> Order ── simulate ──> ListSchedule
//
// The expansion contains the work and its dependencies. A rule does not modify it, so every retry
// only makes another Order.
#pragma once

#include "zorse/Step/Orders.h"
#include "zorse/Step/StepGraph.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::step {

struct PlanLowering;

/// Lists of indices, concatenated: list i is items[begins[i] .. begins[i + 1]).
struct IndexLists {
  std::vector<uint32_t> begins, items;
  CellIndices operator[](size_t list) const {
    return {items.data() + begins[list], begins[list + 1] - begins[list]};
  }
  size_t size() const { return begins.size() - 1; }
};

/// Groups the edges (before, after) of `count` ops by the op before. Without edges there are no
/// lists.
void linkEdges(const std::vector<std::pair<uint32_t, uint32_t>> &edges, size_t count,
               IndexLists &next);

/// Limits on the cells that may allocate memory for their forward, if the order is determined
/// during simulation. The cells of a group are admitted in the order of its list, as long as the
/// limits of samples in flight and of memory permit.
struct Admission {
  struct Group {
    uint32_t device = 0;         ///< device of the group's cells
    std::vector<uint32_t> cells; ///< in the order of admission
    double maxRows = 0; ///< maximum rows in flight (admitted, backward not finished); one cell is
                        ///< always allowed
  };
  std::vector<Group> groups;           ///< empty: cells need no admission
  std::vector<uint64_t> residentBytes; ///< per cell: bytes from its admission to its last task,
                                       ///< without `deferred`; empty: memory is unlimited
  std::vector<uint64_t> deferred;      ///< per cell: bytes from its B to its W
  std::vector<uint64_t> budget;        ///< per device: limit of both
  std::vector<uint64_t> reservedForWeightGrad; ///< per device: part of the budget reserved for
                                               ///< `deferred`, at least the maximum over its cells
};

/// What a schedule adds to an expansion.
struct Order {
  std::vector<uint64_t> priority; ///< by op: of those that could start, the smallest starts first,
                                  ///< ties by index
  std::vector<std::pair<uint32_t, uint32_t>> edges; ///< (before, after)
  Admission admission;

  /// Resets to the order of the expansion without a schedule: the priorities that ops were created
  /// with.
  void reset(const PlanLowering &x);
  void addEdge(uint32_t before, uint32_t after) { edges.push_back({before, after}); }
  /// Adds an op without duration, for edges.
  /// \returns its index
  uint32_t addBarrier() {
    priority.push_back(priorityOf(0, 0, 0));
    return static_cast<uint32_t>(priority.size() - 1);
  }
};

/// The global list, and the start and end times of its ops on the simulated clock.
struct ListSchedule {
  std::vector<uint32_t> ops;       ///< in global order
  std::vector<Span> instructions;  ///< by position in the list: Op::instructions
  std::vector<uint32_t> positions; ///< by op: position in the list; kNone: not listed
  std::vector<double> startTime,
      endTime;              ///< by op: seconds; the end is when its result is available
  std::vector<double> busy; ///< by device: seconds of compute

  double startOf(uint32_t position) const { return startTime[ops[position]]; }
};

} // namespace zorse::step
