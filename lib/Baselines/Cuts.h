// Cuts of dense weighted graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Symmetric weights; [i][i] is not read.
using Weights = std::vector<std::vector<double>>;

struct Cut {
  double weight = 0;
  std::vector<bool> side; ///< neither side is empty
};

/// The lightest cut into two parts (Stoer and Wagner 1997), O(n³). Precondition: at least two vertices.
Cut lightestCut(const Weights &weights);

/// Parts after 1, 2, ... most parts of the SPLIT algorithm (Saran and Vazirani 1995): again and again the lightest of the lightest cuts of all parts.
/// Result[k - 1][v] is the part of vertex v, numbered by first vertex.
std::vector<std::vector<uint32_t>> splitCuts(const Weights &weights, size_t most);

/// `parts` parts of about equal vertex weight with little weight between them: recursive bisection, each refined by Kernighan and Lin's swaps.
std::vector<uint32_t> bisectRecursively(const Weights &weights, const std::vector<double> &vertexWeights, uint32_t parts);

} // namespace zorse::planning::baseline
