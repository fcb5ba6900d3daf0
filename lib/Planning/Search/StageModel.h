// What stages cost before anything is simulated: closed forms that decide which layouts are worth a simulation, and bounds that no layout beats.
// Immutable once made, shared by threads. Internal to Planning.
#pragma once

#include "../Layout/UnitTables.h"
#include "SearchEffort.h"

#include "zorse/Planning/Layout.h"
#include "zorse/Planning/Search.h"

#include <array>
#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Devices that differ in nothing that a plan could use.
inline constexpr size_t kMostClasses = 16;

/// With `ways` > 1 the model's units are parts of the real ones: a real unit for one of so many pipelines on the same devices, whose cuts differ.
/// Range [u, v) is then what a stage has of all of them together; way w has the units from (u + w) / ways to (v + w) / ways. Times and bytes that
/// samples cause are averages.
class StageModel {
public:
  /// \param rowLimit  most rows of a micro-batch; 0: not limited
  StageModel(const Problem &problem, const UnitTables &tables, int64_t rowLimit, int32_t ways = 1);

  uint32_t classes() const { return static_cast<uint32_t>(devicesOf.size()); }
  /// Row counts worth trying, ascending: larger ones bring no device as much as a hundredth (where there are few devices and samples: anything).
  const std::vector<int64_t> &rows() const { return rowChoices; }

  /// Seconds of one cell of rows()[r] rows over units [u, v): F + B + W, F alone, and the part of the backward that others wait for.
  double cell(uint32_t c, size_t r, int32_t u, int32_t v) const { return whole[at(c, r, v)] - whole[at(c, r, u)]; }
  double forward(uint32_t c, size_t r, int32_t u, int32_t v) const { return forwards[at(c, r, v)] - forwards[at(c, r, u)]; }
  double backward(uint32_t c, size_t r, int32_t u, int32_t v) const { return backwards[at(c, r, v)] - backwards[at(c, r, u)]; }
  /// Least seconds per sample over all row counts: F + B (+ W).
  double leastPerSample(uint32_t c, int32_t u, int32_t v) const { return leastWhole[c * stride + v] - leastWhole[c * stride + u]; }

  /// Bytes of a range of units: what every reader holds (parameters and gradients), what owners share (moments and masters), what collectives carry.
  double heldBytes(int32_t u, int32_t v) const { return held[ends[v]] - held[begins[u]]; }
  double sharedBytes(int32_t u, int32_t v) const { return shared[v] - shared[u]; }
  double gatherBytes(int32_t u, int32_t v) const { return gathered[ends[v]] - gathered[begins[u]]; }
  double reduceBytes(int32_t u, int32_t v) const { return reduced[ends[v]] - reduced[begins[u]]; }
  /// Bytes of a cell of rows()[r] rows over whole units [u, v): those that it holds from its first receive to B, and those that it needs besides
  /// while a task runs, without workspace. Of single units and pairs of neighbours as the expansion counts them; a value that is used further on
  /// counts as if only neighbours used it.
  struct CellBytes {
    double hold, passing;
  };
  CellBytes cellBytes(bool split, size_t r, int32_t u, int32_t v) const;
  /// Of the tasks of such a cell.
  double workspaceBytes(size_t r, int32_t u, int32_t v) const;
  /// Bytes that a sample holds between its forward and its last task.
  double activationBytes(int32_t u, int32_t v) const { return cellBytes(splits(), 0, begins[u], ends[v]).hold; }
  /// Bytes of a sample that cross a cut.
  double forwardBytesAt(int32_t cut) const { return forwardAt[cut]; }
  double backwardBytesAt(int32_t cut) const { return backwardAt[cut]; }

  /// What a node's card passes per second; 0: not limited.
  double cardBandwidth(uint32_t node) const { return cards[node]; }
  /// Whether collectives between nodes cross every card once for its node, not once for each of its devices.
  bool mayUseRails() const {
    return problem.costs.gatherAlgorithm() == sim::Algorithm::Best && problem.costs.network().allows(static_cast<uint8_t>(sim::Algorithm::Rails));
  }
  double portBandwidth(uint32_t node) const { return ports[node]; }
  uint32_t devicesOfNode(uint32_t node) const { return devicesIn[node]; }
  uint32_t nodeOf(uint32_t device) const { return problem.cluster.devices[device].node; }
  uint32_t siteOf(uint32_t device) const { return problem.costs.network().site(device); }
  uint32_t classOf(uint32_t device) const { return problem.costs.deviceClass(device); }
  double memoryOf(uint32_t c) const { return memory[c]; } ///< without the reserve; infinite if not limited
  int32_t units() const { return tables.units() * parts; }
  int32_t ways() const { return parts; }
  bool isInsideUnit(int32_t cut) const { return begins[cut] != ends[cut]; } ///< of the real units
  bool splits() const { return tables.canSplit(); }

  const Problem &problem;
  const UnitTables &tables;

private:
  void chooseRows(UnitTimes &times, int64_t rowLimit);
  void sumTimes(UnitTimes &times);
  void sumLeast(UnitTimes &times);
  void sumState();
  void measureCells();
  void describeCluster();
  size_t at(uint32_t c, size_t r, int32_t u) const { return (c * rowChoices.size() + r) * stride + static_cast<size_t>(u); }

  const int32_t parts;
  std::vector<std::vector<uint32_t>> devicesOf;
  std::vector<int64_t> rowChoices;
  size_t stride;
  std::vector<double> whole, forwards, backwards, leastWhole;
  std::vector<double> held, gathered, reduced; ///< by real unit
  std::vector<int32_t> begins, ends;           ///< by cut: the real units whose ranges have all that begins, or ends, there
  std::vector<double> shared, forwardAt, backwardAt, cards, ports, memory;
  /// By real unit: sums of single units, and of what pairs of neighbours take beyond.
  struct UnitBytes {
    std::vector<CellBytes> single, pair;
    std::vector<double> workspace; ///< not summed
  };
  std::vector<UnitBytes> bytesOf[2]; ///< whole and split backwards; by row choice
  std::vector<uint32_t> devicesIn;   ///< by node
};

/// Cells of `rows` rows (the last of all may be smaller) on members that need `seconds` each for one: as many to each as end first. Optimal for equal
/// cells.
std::vector<int64_t> shareSamples(int64_t samples, int64_t rows, const std::vector<double> &seconds);

/// Seconds until the last of `cells` equal cells ends on counts[i] devices that need seconds[i] for each.
double makespan(int64_t cells, const uint32_t *counts, const double *seconds, size_t n);

} // namespace zorse::planning
