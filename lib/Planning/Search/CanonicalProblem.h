// A problem whose devices, nodes and sites stand in an order that follows from what they are.
#pragma once

#include "zorse/Planning/Layout.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// The order of a cluster's sites, nodes and devices that depends on their properties, costs and links, not on their names nor on their places in the
/// file: faster ones first. A search then finds the same plan however the file is written.
///
/// Signatures are refined by those of neighbours, as graphs are canonised (Weisfeiler and Leman, 1968); what they cannot tell apart stays as it was.
struct CanonicalProblem {
  Cluster cluster;
  std::optional<CostModel> costs;
  std::vector<uint32_t> original; ///< by device of `cluster`: its number in the problem's

  /// An error: why the costs cannot be made; never for a problem that has costs.
  static Result<CanonicalProblem> make(const Problem &problem);

  /// Problem on this cluster; refers to this object.
  Problem on(const Problem &problem) const;
  /// A layout of devices of `cluster` as one of the problem's.
  Layout restore(Layout layout) const;
  /// Numbers of the problem's devices as those of `cluster`.
  std::vector<uint32_t> translate(const std::vector<uint32_t> &devices) const;
};

} // namespace zorse::planning
