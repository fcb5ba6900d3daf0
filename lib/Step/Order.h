// What a schedule asks for, and the list that follows. Internal to lib/Step.
//
//   Expansion ── ScheduleRule ──> Order ── simulate ──> ListSchedule
//
// The expansion says what there is to do and what has to follow what; a rule leaves it as it is. Another try is another order.
#pragma once

#include "zorse/Step/Orders.h"
#include "zorse/Step/StepGraph.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace zorse::step {

struct Expansion;

/// Lists of indices, one after the other: list i is items[begins[i] .. begins[i + 1]).
struct IndexLists {
  std::vector<uint32_t> begins, items;
  CellIndices operator[](size_t list) const { return {items.data() + begins[list], begins[list + 1] - begins[list]}; }
  size_t size() const { return begins.size() - 1; }
};

/// Edges (before, after) of `count` ops by the op before. Without edges there are no lists.
void linkEdges(const std::vector<std::pair<uint32_t, uint32_t>> &edges, size_t count, IndexLists &next);

/// Which cells may take memory for their forward, where the order is found while simulating: in the order of a list per group of cells, as long as
/// not too many samples are in flight and memory lasts.
struct Admission {
  struct Group {
    uint32_t device = 0;         ///< whose memory it takes
    std::vector<uint32_t> cells; ///< in the order of admission
    double mostRows = 0;         ///< in flight: admitted and not yet through their backward; one cell always may
  };
  std::vector<Group> groups;      ///< empty: every cell may start at once
  std::vector<uint64_t> holds;    ///< per cell: bytes from its admission to its last task, besides `deferred`; empty: memory is not limited
  std::vector<uint64_t> deferred; ///< per cell: bytes from its B to its W
  std::vector<uint64_t> budget;   ///< per device: for both
  std::vector<uint64_t> aside;    ///< per device: of it, what only `deferred` may take, at least as much as any of its cells
};

/// What a schedule adds to an expansion.
struct Order {
  std::vector<uint64_t> priority;                   ///< by op: of those that could start at one time the least starts, ties by index
  std::vector<std::pair<uint32_t, uint32_t>> edges; ///< (before, after)
  Admission admission;

  /// The order that the expansion has without a schedule: priorities as its ops were made.
  void reset(const Expansion &x);
  void addEdge(uint32_t before, uint32_t after) { edges.push_back({before, after}); }
  /// \returns the index of an op that takes no time, for edges
  uint32_t addBarrier() {
    priority.push_back(priorityOf(0, 0, 0));
    return static_cast<uint32_t>(priority.size() - 1);
  }
};

/// The global list, and when its ops start and end on the simulated clock.
struct ListSchedule {
  std::vector<uint32_t> ops;              ///< in global order
  std::vector<Span> halves;               ///< by place in the list: Op::halves
  std::vector<uint32_t> positions;        ///< by op: place in the list, kNone for what is not listed
  std::vector<double> startTime, endTime; ///< by op: seconds; the end is when what it makes is there
  std::vector<double> busy;               ///< by device: seconds of compute

  double startOf(uint32_t position) const { return startTime[ops[position]]; }
};

} // namespace zorse::step
