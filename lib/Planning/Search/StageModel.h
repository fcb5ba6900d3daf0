// Costs of stages in closed form, before any simulation. They decide which strategies are
// simulated, and bound all strategies from below. Immutable; threads may share it. Internal to
// Planning.
#pragma once

#include "../Layout/UnitTables.h"
#include "SearchEffort.h"

#include "zorse/Planning/Search.h"
#include "zorse/Planning/Strategy.h"

#include <array>
#include <cstdint>
#include <vector>

namespace zorse::planning {

/// Maximum number of classes of devices that are equal in all properties that a plan uses.
inline constexpr size_t kMaxDeviceTypes = 16;

/// Costs of stages. With `ways` > 1 the model's units are parts of real units: a part is a real
/// unit for one of `ways` pipelines on the same devices with different stage boundaries. Range [u,
/// v) is then a stage's range over all ways together; way w has the units from (u + w) / ways to (v
/// + w) / ways. Times and bytes per sample are averages.
class StageModel {
public:
  /// \param rowLimit  maximum rows of a micro-batch; 0: unlimited
  StageModel(const Problem &problem, const UnitTables &tables, int64_t rowLimit, int32_t ways = 1);

  uint32_t deviceTypes() const { return static_cast<uint32_t>(devicesOf.size()); }
  /// Row counts to try, ascending. Larger ones improve no device by 1 % or more (with few devices
  /// and samples: not at all).
  const std::vector<int64_t> &rows() const { return rowChoices; }

  /// Seconds of one cell of rows()[r] rows over units [u, v): F + B + W, F alone, and the part of
  /// the backward for which others wait.
  double cell(uint32_t c, size_t r, int32_t u, int32_t v) const {
    return whole[at(c, r, v)] - whole[at(c, r, u)];
  }
  double forward(uint32_t c, size_t r, int32_t u, int32_t v) const {
    return forwards[at(c, r, v)] - forwards[at(c, r, u)];
  }
  double backward(uint32_t c, size_t r, int32_t u, int32_t v) const {
    return backwards[at(c, r, v)] - backwards[at(c, r, u)];
  }
  /// Minimum seconds per sample over all row counts: F + B (+ W).
  double minPerSample(uint32_t c, int32_t u, int32_t v) const {
    return minWhole[c * stride + v] - minWhole[c * stride + u];
  }

  /// Bytes of a range of units: parameters and gradients of every reader, state that owners shard
  /// (optimizer states and master parameters), and data of collectives.
  double heldBytes(int32_t u, int32_t v) const { return held[ends[v]] - held[begins[u]]; }
  double sharedBytes(int32_t u, int32_t v) const { return shared[v] - shared[u]; }
  double gatherBytes(int32_t u, int32_t v) const { return gathered[ends[v]] - gathered[begins[u]]; }
  double reduceBytes(int32_t u, int32_t v) const { return reduced[ends[v]] - reduced[begins[u]]; }
  /// The fraction of these bytes that travels between nodes.
  double roundedBytes() const {
    return problem.gradientWire == step::GradientWire::Bf16BetweenNodes ? 0.5 : 1; // of f32
  }
  /// Bytes of a cell of rows()[r] rows over whole units [u, v): `residentBytes` from its first
  /// receive to B, and `transientBytes` in addition while a task runs, without workspace. Single
  /// units and pairs of adjacent units are counted as in the expansion. A value that is used later
  /// counts as if only adjacent units used it.
  struct CellBytes {
    double residentBytes, transientBytes;
  };
  CellBytes cellBytes(bool split, size_t r, int32_t u, int32_t v) const;
  /// Workspace bytes of the tasks of such a cell.
  double workspaceBytes(size_t r, int32_t u, int32_t v) const;
  /// Bytes of a sample between its forward and its last task.
  double activationBytes(int32_t u, int32_t v) const {
    return cellBytes(splits(), 0, begins[u], ends[v]).residentBytes;
  }
  /// Bytes of a sample that cross a stage boundary.
  double forwardBytesAt(int32_t cut) const { return forwardAt[cut]; }
  double backwardBytesAt(int32_t cut) const { return backwardAt[cut]; }

  /// Bytes/s of a node's card; 0: unlimited.
  double nicBandwidth(uint32_t node) const { return nics[node]; }
  /// Whether sums between nodes cross every card once for its node, instead of once for each of its
  /// devices.
  bool sumsByLevel() const { return !problem.costs.network().sumsPairwise(); }
  double portBandwidth(uint32_t node) const { return ports[node]; }
  uint32_t devicesOfNode(uint32_t node) const { return devicesIn[node]; }
  uint32_t nodeOf(uint32_t device) const { return problem.cluster.devices[device].node; }
  uint32_t siteOf(uint32_t device) const { return problem.costs.network().site(device); }
  uint32_t deviceTypeOf(uint32_t device) const { return problem.costs.deviceClass(device); }
  double memoryOf(uint32_t c) const {
    return memory[c];
  } ///< without the reserve; infinite if unlimited
  int32_t units() const { return tables.units() * boundaryDenominator; }
  int32_t boundaryVariants() const { return boundaryDenominator; }
  bool isInsideUnit(int32_t cut) const { return begins[cut] != ends[cut]; } ///< inside a real unit
  bool splits() const { return tables.canSplit(); }

  const Problem &problem;
  const UnitTables &tables;

private:
  void chooseRows(UnitTimes &times, int64_t rowLimit);
  void sumTimes(UnitTimes &times);
  void sumMin(UnitTimes &times);
  void sumState();
  void measureCells();
  void describeCluster();
  size_t at(uint32_t c, size_t r, int32_t u) const {
    return (c * rowChoices.size() + r) * stride + static_cast<size_t>(u);
  }

  const int32_t boundaryDenominator;
  std::vector<std::vector<uint32_t>> devicesOf;
  std::vector<int64_t> rowChoices;
  size_t stride;
  std::vector<double> whole, forwards, backwards, minWhole;
  std::vector<double> held, gathered, reduced; ///< per real unit
  std::vector<int32_t> begins, ends; ///< per boundary: the real units with ranges that contain all
                                     ///< that begins, or ends, there
  std::vector<double> shared, forwardAt, backwardAt, nics, ports, memory;
  /// Per real unit: sums over single units, and over the additional bytes of adjacent pairs.
  struct UnitBytes {
    std::vector<CellBytes> single, pair;
    std::vector<double> workspace; ///< not summed
  };
  std::vector<UnitBytes> bytesOf[2]; ///< whole and split backwards; per row choice
  std::vector<uint32_t> devicesIn;   ///< per node
};

/// Assigns cells of `rows` rows (the last one may be smaller) to members that need `seconds` each
/// for one cell, such that the last one ends as early as possible. Optimal for equal cells.
std::vector<int64_t> shareSamples(int64_t samples, int64_t rows,
                                  const std::vector<double> &seconds);

/// Returns the seconds until the last of `cells` equal cells ends on counts[i] devices that need
/// seconds[i] for each.
double makespan(int64_t cells, const uint32_t *counts, const double *seconds, size_t n);

} // namespace zorse::planning
