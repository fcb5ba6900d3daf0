// Cuts of dense weighted graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Symmetric weights; [i][i] is ignored.
using Weights = std::vector<std::vector<double>>;

struct Partition {
  double weight = 0;
  std::vector<bool> side; ///< neither side is empty
};

/// Returns the minimum cut into two parts (Stoer and Wagner 1997), O(n³). Precondition: at least
/// two vertices.
Partition lightestCut(const Weights &weights);

/// SPLIT algorithm (Saran and Vazirani 1995): repeatedly applies the smallest of the minimum cuts
/// of all parts. Result[k - 1][v] is the part of vertex v after k parts, for k up to `max`; parts
/// are numbered by their first vertex.
std::vector<std::vector<uint32_t>> splitCuts(const Weights &weights, size_t max);

/// Divides vertices into `parts` parts of about equal vertex weight with small weight between them:
/// recursive bisection, each refined by Kernighan and Lin's swaps.
std::vector<uint32_t> bisectRecursively(const Weights &weights,
                                        const std::vector<double> &vertexWeights, uint32_t parts);

} // namespace zorse::planning::baseline
