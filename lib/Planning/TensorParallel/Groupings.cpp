// Groupings worth a search: devices of one class and node in equal groups, classes of a node as a
// whole, and whole nodes.
#include "Teams.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

class GroupingMaker {
public:
  GroupingMaker(const Cluster &cluster, const CostModel &costs, const std::vector<uint32_t> &usable,
                const std::vector<double> &speeds, uint32_t maxSize)
      : speeds(speeds), maxSize(maxSize) {
    for (uint32_t d : usable) {
      nodes[cluster.devices[d].node][costs.deviceClass(d)].push_back(d);
      classes.insert(costs.deviceClass(d));
    }
  }

  std::vector<Grouping> make() {
    for (uint32_t size = 2; size / 2 < maxSize; size *= 2)
      add([&](uint32_t, size_t) { return std::min(size, maxSize); });
    // Every class of a node is a group.
    add([&](uint32_t, size_t count) { return std::min<size_t>(count, maxSize); });
    addNodes();
    for (uint32_t only : classes) // the other devices stay alone
      if (classes.size() > 1)
        for (uint32_t size = 2; size / 2 < maxSize; size *= 2)
          add([&](uint32_t c, size_t) { return c == only ? std::min(size, maxSize) : 1; });
    return std::move(groupings);
  }

private:
  /// Adds the grouping with `sizeOf(class, devices of the class in a node)` devices per group. Of
  /// the rest, every device is alone.
  template <typename SizeOf> void add(SizeOf sizeOf) {
    Grouping grouping;
    for (const auto &[node, ofNode] : nodes)
      for (const auto &[deviceClass, devices] : ofNode) {
        const size_t size = std::max<size_t>(sizeOf(deviceClass, devices.size()), 1),
                     grouped = devices.size() / size * size;
        for (size_t begin = 0; begin < devices.size(); begin += begin < grouped ? size : 1)
          addTeam(grouping, {devices.begin() + static_cast<long>(begin),
                             devices.begin() +
                                 static_cast<long>(begin < grouped ? begin + size : begin + 1)});
      }
    keep(std::move(grouping));
  }

  /// Adds the grouping in which every node is a group.
  void addNodes() {
    Grouping grouping;
    for (const auto &[node, ofNode] : nodes) {
      std::vector<uint32_t> all;
      for (const auto &[deviceClass, devices] : ofNode)
        all.insert(all.end(), devices.begin(), devices.end());
      if (all.size() > maxSize)
        return;
      std::sort(all.begin(), all.end());
      addTeam(grouping, all);
    }
    keep(std::move(grouping));
  }

  void addTeam(Grouping &grouping, const std::vector<uint32_t> &devices) const {
    Team team{devices, {}};
    double sum = 0;
    for (uint32_t d : devices)
      sum += speeds[d];
    for (uint32_t d : devices)
      team.shares.push_back(speeds[d] / sum);
    grouping.teams.push_back(std::move(team));
  }

  void keep(Grouping grouping) {
    auto divides = [](const Team &team) { return team.isGroup(); };
    if (std::none_of(grouping.teams.begin(), grouping.teams.end(), divides))
      return;
    std::vector<std::vector<uint32_t>> sets;
    sets.reserve(grouping.teams.size());
    for (const Team &team : grouping.teams)
      sets.push_back(team.devices);
    std::sort(sets.begin(), sets.end());
    if (known.insert(sets).second)
      groupings.push_back(std::move(grouping));
  }

  const std::vector<double> &speeds;
  const uint32_t maxSize;
  std::map<uint32_t, std::map<uint32_t, std::vector<uint32_t>>> nodes; ///< devices by node and
                                                                       ///< class
  std::set<uint32_t> classes;
  std::set<std::vector<std::vector<uint32_t>>> known; ///< devices of teams
  std::vector<Grouping> groupings;
};

} // namespace

std::vector<Grouping> planning::makeGroupings(const Cluster &cluster, const CostModel &costs,
                                              const std::vector<uint32_t> &usable,
                                              const std::vector<double> &speeds, uint32_t maxSize) {
  return GroupingMaker(cluster, costs, usable, speeds, maxSize).make();
}
