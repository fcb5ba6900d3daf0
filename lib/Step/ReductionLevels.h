// How the gradients of a group are summed along the nodes and sites of a plan's devices.
#pragma once

#include "zorse/Base/Runs.h"
#include "zorse/Collectives/Levels.h"
#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zorse::step {

/// One exchange of a sum along the nodes and sites, as lowering needs it.
struct LevelExchange {
  struct Participant {
    uint32_t device = 0;
    collectives::Extent term, result; ///< elements that it adds, and of which it gets the sum; may
                                      ///< be empty
    uint32_t summed = kGradients;     ///< what it adds: its gradients, or the sum of a group of the
                                      ///< tree
  };
  static constexpr uint32_t kGradients = UINT32_MAX;

  uint32_t group = 0;            ///< of the tree
  bool toOwner = false;          ///< see collectives::LevelReduction
  std::vector<uint32_t> members; ///< with a term
  std::vector<zorse::Shard> terms, results;
  std::vector<Participant> participants; ///< devices, ascending
};

/// Reductions of one list of devices, computed once: the groups of a model have few different
/// contributors and owners, and a search lowers many plans for the same devices.
class ReductionLevels {
public:
  /// Forgets everything if the plan's nodes and sites are other ones than before.
  void use(const Plan &plan, const sim::Network &network);

  /// Returns the exchanges of a sum over `contributors`. \returns nothing: a pairwise exchange
  const std::optional<std::vector<LevelExchange>> &of(const std::vector<uint32_t> &contributors,
                                                      const std::vector<zorse::Shard> &owners);

  /// Whether the terms of a sum are rounded. \param collective  of gradients, complete
  bool roundsTerms(GradientWire wire, const Collective &collective) const;

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
    MapOfLists<std::vector<zorse::Shard>, std::optional<std::vector<LevelExchange>>> byOwners;
  };
  Sum &sumOf(const std::vector<uint32_t> &contributors);

  MapOfLists<std::vector<uint32_t>, Sum> sums;
  MapOfLists<std::vector<uint32_t>, std::vector<uint32_t>> orders;
};

} // namespace zorse::step
