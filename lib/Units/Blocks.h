// Repeated blocks of a chain of units, and human-readable unit names.
#pragma once

#include <string>
#include <vector>

namespace zorse::units {

/// The longest tandem repeat: `count` >= 2 repetitions of `period` units, starting at `first`.
/// count is 0 if there is none.
struct Repeat {
  int first = 0, period = 0, count = 0;
};

/// Prefers the largest number of covered units, then the shortest period, then the earliest start.
Repeat longestRepeat(const std::vector<int> &symbols);

/// Finds the blocks of a chain from every unit's class and kind ("attention", "mlp", ...). If
/// classes alternate over several blocks (local, local, global attention), blocks are found by
/// kind, so that a block is still one attention and one MLP.
Repeat findBlocks(const std::vector<int> &classes, const std::vector<std::string> &kinds);

/// Returns unit names: "embedding", "block 3 attention", "head", ...
std::vector<std::string> nameUnits(const Repeat &blocks, const std::vector<std::string> &kinds);

} // namespace zorse::units
