#include "Teams.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

using namespace zorse;
using namespace zorse::planning;

/// Name of the group of a team, from its position.
static std::string groupName(const Cluster &cluster, size_t team) {
  std::string name = "tp" + std::to_string(team);
  auto taken = [&](const ClusterDevice &device) { return device.name == name; };
  while (std::any_of(cluster.devices.begin(), cluster.devices.end(), taken))
    name += "g";
  return name;
}

Cluster planning::clusterOfTeams(const Cluster &cluster, const Grouping &grouping, double memory) {
  Cluster teams = cluster;
  teams.devices.clear();
  teams.topology.clear_node_of_device();
  for (size_t t = 0; t < grouping.teams.size(); ++t) {
    const Team &team = grouping.teams[t];
    ClusterDevice one = cluster.devices[team.devices[0]];
    teams.topology.add_node_of_device(one.node);
    if (team.isGroup()) {
      one.name = groupName(cluster, t);
      double permitted = INFINITY;
      one.price = 0;
      for (size_t m = 0; m < team.devices.size(); ++m) {
        const ClusterDevice &device = cluster.devices[team.devices[m]];
        if (device.capacity())
          permitted = std::min(permitted, double(device.capacity()) / team.shares[m]);
        one.price += device.price;
      }
      one.reservedMemory = 0;
      one.memory = std::isinf(permitted) ? 0 : static_cast<uint64_t>(permitted * memory);
    }
    teams.devices.push_back(std::move(one));
  }
  return teams;
}

/// Returns by team whether it is a group of the plan: a device alone is one if it computes a unit
/// that a group divides.
static std::vector<bool> groupsOf(const step::Plan &plan, const Grouping &grouping, int units) {
  std::vector<bool> isGroup(grouping.teams.size()), isDivided(static_cast<size_t>(units));
  for (size_t t = 0; t < grouping.teams.size(); ++t)
    isGroup[t] = grouping.teams[t].isGroup();
  for (bool changed = true; std::exchange(changed, false);)
    for (const step::Cell &cell : plan.cells) {
      const auto begin = isDivided.begin() + cell.unitBegin, end = isDivided.begin() + cell.unitEnd;
      if (!isGroup[cell.device] && std::find(begin, end, true) == end)
        continue;
      changed |= !isGroup[cell.device] || std::find(begin, end, false) != end;
      isGroup[cell.device] = true;
      std::fill(begin, end, true);
    }
  return isGroup;
}

step::Plan planning::planOfDevices(const Problem &problem, const step::Plan &plan,
                                   const Grouping &grouping) {
  step::Plan made = plan;
  made.devices = planDevices(problem.cluster, productType(problem.summary));
  made.cells.clear();
  made.owners.clear(); // they are of state groups of the undivided model
  const std::vector<bool> isGroup = groupsOf(plan, grouping, problem.summary.units_size());
  std::map<uint32_t, int32_t> groupOf; // by team
  for (const step::Cell &cell : plan.cells) {
    const Team &team = grouping.teams[cell.device];
    step::Cell own = cell;
    if (isGroup[cell.device]) {
      auto [known, isNew] = groupOf.try_emplace(cell.device, int32_t(made.groups.size()));
      if (isNew)
        made.groups.push_back({groupName(problem.cluster, cell.device), team.devices, team.shares});
      own.group = known->second;
    }
    for (uint32_t m = 0; m < team.devices.size(); ++m) {
      own.device = team.devices[m];
      own.member = m;
      made.cells.push_back(own);
    }
  }
  for (step::OffloadRule &rule : made.offload) {
    std::set<uint32_t> devices;
    for (uint32_t team : rule.devices)
      devices.insert(grouping.teams[team].devices.begin(), grouping.teams[team].devices.end());
    rule.devices.assign(devices.begin(), devices.end());
  }
  if (!plan.schedule.warmupForwards.empty()) {
    made.schedule.warmupForwards.assign(made.devices.size(), 0);
    for (size_t t = 0; t < grouping.teams.size(); ++t)
      for (uint32_t d : grouping.teams[t].devices)
        made.schedule.warmupForwards[d] = plan.schedule.warmupForwards[t];
  }
  return made;
}
