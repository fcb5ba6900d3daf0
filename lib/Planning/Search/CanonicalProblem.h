// A problem with devices, nodes and sites in an order that depends only on their properties.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// Order of a cluster's sites, nodes and devices by their properties, costs and links, not by their
/// names or positions in the file; faster ones are first. A search then finds the same plan for
/// every order of the file.
///
/// Signatures are refined by those of neighbors, as in graph canonization (Weisfeiler and Leman,
/// 1968). Items that they do not distinguish keep their order.
struct CanonicalProblem {
  Cluster cluster;
  std::optional<CostModel> costs;
  std::vector<uint32_t> original; ///< per device of `cluster`: its index in the problem's cluster

  /// \param byName  items that signatures do not distinguish are ordered by their names: what a
  /// plan for another cluster says about a device then decides its use, not its place in the file
  static CanonicalProblem make(const Problem &problem, bool byName = false);

  /// Returns the problem on this cluster. It refers to this object.
  Problem on(const Problem &problem) const;
  /// Converts a strategy of devices of `cluster` to the problem's devices.
  Strategy restore(Strategy strategy) const;
  /// Converts a strategy of the problem's devices to devices of `cluster`.
  Strategy translate(Strategy strategy) const;
  /// Converts indices of the problem's devices to those of `cluster`.
  std::vector<uint32_t> translate(const std::vector<uint32_t> &devices) const;

private:
  std::vector<uint32_t> places() const; ///< by device of the problem: its index in `cluster`
};

} // namespace zorse::planning
