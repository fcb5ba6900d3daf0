#include "Blocks.h"

#include <algorithm>
#include <map>

using namespace zorse::units;

Repeat zorse::units::longestRepeat(const std::vector<int> &symbols) {
  int size = symbols.size();
  Repeat best;
  for (int period = 1; 2 * period <= size; ++period) {
    int matches = 0; // symbols[i] == symbols[i + period] for the last `matches` positions
    for (int i = 0; i + period < size; ++i) {
      matches = symbols[i] == symbols[i + period] ? matches + 1 : 0;
      int count = matches / period + 1, first = i + 1 - matches;
      if (count >= 2 && count * period > best.count * best.period)
        best = {first, period, count};
    }
  }
  return best;
}

Repeat zorse::units::findBlocks(const std::vector<int> &classes,
                                const std::vector<std::string> &kinds) {
  Repeat byClass = longestRepeat(classes);
  int attentions = 0;
  for (int i = 0; i < byClass.period; ++i)
    attentions += kinds[byClass.first + i] == "attention" || kinds[byClass.first + i] == "block";

  std::map<std::string, int> ids;
  std::vector<int> symbols;
  for (const std::string &kind : kinds)
    symbols.push_back(ids.emplace(kind, ids.size()).first->second);
  Repeat byKind = longestRepeat(symbols);
  bool finer = attentions > 1 && byKind.count > 0 && byKind.period < byClass.period;
  bool longer = byKind.count * byKind.period > byClass.count * byClass.period;
  return finer || longer ? byKind : byClass;
}

std::vector<std::string> zorse::units::nameUnits(const Repeat &blocks,
                                                 const std::vector<std::string> &kinds) {
  int size = kinds.size(), end = blocks.first + blocks.period * blocks.count;
  std::map<std::string, int> perPeriod; // number of units of a kind in one block
  for (int i = 0; i < blocks.period && blocks.count; ++i)
    ++perPeriod[kinds[blocks.first + i]];

  std::vector<std::string> names;
  std::map<std::string, int> used;
  for (int i = 0; i < size; ++i) {
    std::string name;
    if (blocks.count && i >= blocks.first && i < end) {
      int block = (i - blocks.first) / blocks.period, within = (i - blocks.first) % blocks.period;
      name = "block " + std::to_string(block);
      if (blocks.period > 1)
        name += " " + kinds[i];
      if (perPeriod[kinds[i]] > 1) {
        int nth = 1;
        for (int j = 0; j < within; ++j)
          nth += kinds[blocks.first + j] == kinds[i];
        name += " " + std::to_string(nth);
      }
    } else {
      name = kinds[i];
    }
    int times = ++used[name];
    names.push_back(times == 1 ? name : name + " " + std::to_string(times));
  }
  return names;
}
