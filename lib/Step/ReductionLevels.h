// How the gradients of a group are summed along the nodes and sites of a plan's devices.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Collectives/Levels.h"
#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::step {

/// Reductions of one list of devices, computed once: the groups of a model have few different
/// contributors and owners, and a search lowers many plans for the same devices.
class ReductionLevels {
public:
  /// Forgets everything if the plan's nodes and sites are other ones than before.
  void use(const Plan &plan, const sim::Network &network);

  /// Returns the exchanges of a sum over `contributors`. \returns nothing: a pairwise exchange
  const std::optional<std::vector<collectives::LevelReduction>> &
  of(const std::vector<uint32_t> &contributors, const std::vector<zorse::Shard> &owners);

  const collectives::Tree &treeOf(const std::vector<uint32_t> &contributors);

  /// Returns devices in the order in which they should own elements: see collectives::ownerOrder.
  std::vector<uint32_t> ownerOrder(const std::vector<uint32_t> &devices);

private:
  std::vector<std::pair<std::string, std::string>> places; ///< node and site by device
  collectives::Placement placement;
  bool severalNodes = false;
  struct ListHash {
    size_t operator()(const std::vector<uint32_t> &devices) const;
    size_t operator()(const std::vector<zorse::Shard> &owners) const;
  };
  template <typename Key, typename Value>
  using MapOfLists = std::unordered_map<Key, Value, ListHash>;
  struct Sum {
    collectives::Tree tree;
    MapOfLists<std::vector<zorse::Shard>, std::optional<std::vector<collectives::LevelReduction>>>
        byOwners;
  };
  Sum &sumOf(const std::vector<uint32_t> &contributors);

  MapOfLists<std::vector<uint32_t>, Sum> sums;
  MapOfLists<std::vector<uint32_t>, std::vector<uint32_t>> orders;
};

} // namespace zorse::step
