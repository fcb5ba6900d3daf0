// The repeating part of a chain of units, and names for people.
#pragma once

#include <string>
#include <vector>

namespace zorse::units {

/// The longest tandem repeat: `count` >= 2 times `period` units from `first` on; count 0 if there is none.
struct Repeat {
  int first = 0, period = 0, count = 0;
};

/// Longest in units covered, then shortest period, then earliest.
Repeat longestRepeat(const std::vector<int> &symbols);

/// Blocks of a chain given every unit's class and kind ("attention", "mlp", ...). Where classes alternate over several blocks (local, local, global
/// attention) blocks are found by kind instead, so that a block stays one attention and one MLP.
Repeat findBlocks(const std::vector<int> &classes, const std::vector<std::string> &kinds);

/// "embedding", "block 3 attention", "head", ...
std::vector<std::string> nameUnits(const Repeat &blocks, const std::vector<std::string> &kinds);

} // namespace zorse::units
