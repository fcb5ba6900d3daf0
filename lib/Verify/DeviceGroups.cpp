// Groups of devices that divide units: their units, their cells, and the segments of their
// functions.
#include "Model.h"

#include "LaunchPointers.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::verify;

bool Model::checkDeviceGroups(std::vector<Finding> &findings) {
  auto fail = [&](const std::string &message) {
    findings.push_back({Code::Plan, -1, -1, "plan: " + message});
    return false;
  };
  if (int(plan.groups.size()) != summary.device_groups_size())
    return fail("has " + std::to_string(plan.groups.size()) + " groups of devices, the model " +
                std::to_string(summary.device_groups_size()));
  ownUnits.resize(plan.devices.size());
  isFirstOfGroup.resize(plan.devices.size());
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const auto &known = summary.device_groups(int(g));
    const auto &devices = plan.groups[g].devices;
    if (known.name() != plan.groups[g].name || size_t(known.members_size()) != devices.size() ||
        !std::all_of(known.units().begin(), known.units().end(),
                     [&](uint32_t unit) { return unit < uint32_t(summary.units_size()); }))
      return fail("group '" + plan.groups[g].name + "' is not that of the model");
    for (int m = 0; m < known.members_size(); ++m) {
      if (known.members(m).units_size() != known.units_size())
        return fail("group '" + known.name() + "' has a device without some of its units");
      auto &own = ownUnits[devices[size_t(m)]];
      if (!own.empty())
        return fail("device '" + plan.devices[devices[size_t(m)]].name + "' is in two groups");
      own.resize(size_t(summary.units_size()));
      isFirstOfGroup[devices[size_t(m)]] = m == 0;
      for (int i = 0; i < known.units_size(); ++i)
        own[known.units(i)] = &known.members(m).units(i);
    }
  }
  return true;
}

/// Every device of a group has each of its cells, and no other device a divided unit.
bool Model::checkMembers(std::vector<Finding> &findings) const {
  auto fail = [&](const std::string &message) {
    findings.push_back({Code::Plan, -1, -1, "plan: " + message});
    return false;
  };
  std::vector<std::set<uint32_t>> divided(plan.groups.size()); // units
  std::set<uint32_t> all;
  for (size_t g = 0; g < plan.groups.size(); ++g)
    for (uint32_t unit : summary.device_groups(int(g)).units()) {
      divided[g].insert(unit);
      all.insert(unit);
    }
  std::map<std::array<int64_t, 5>, std::set<uint32_t>> present; // by rectangle and group: members
  for (const PlanView::Cell &cell : plan.cells) {
    const std::set<uint32_t> *units = cell.group < 0 ? nullptr : &divided[size_t(cell.group)];
    for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
      if (units ? !units->count(uint32_t(u)) : all.count(uint32_t(u)) != 0)
        return fail("unit '" + summary.units(int(u)).name() +
                    "' is in a cell of other devices than those that divide it");
    if (units)
      present[{cell.firstUnit, cell.endUnit, cell.firstSample, cell.endSample, cell.group}].insert(
          cell.member);
  }
  for (const auto &[cell, members] : present)
    if (members.size() != plan.groups[size_t(cell[4])].devices.size())
      return fail("a cell of group '" + plan.groups[size_t(cell[4])].name +
                  "' is not on all its devices");
  return true;
}

void Model::findSegments() {
  for (const auto &function : functions.functions())
    segments.push_back(bundle::argumentsOfSegments(function));
}

bool Model::segmentHas(uint32_t function, uint32_t segment, int argument) const {
  const auto &list = segments[function];
  return list.empty() || (segment < list.size() && list[segment][size_t(argument)]);
}

bool Model::isFirst(uint32_t function, uint32_t segment, int argument) const {
  for (uint32_t before = 0; before < segment; ++before)
    if (segmentHas(function, before, argument))
      return false;
  return true;
}

bool Model::isLast(uint32_t function, uint32_t segment, int argument) const {
  for (size_t after = segment + 1; after < segments[function].size(); ++after)
    if (segmentHas(function, uint32_t(after), argument))
      return false;
  return true;
}
