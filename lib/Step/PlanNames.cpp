#include "PlanSections.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::fields;
using json = Json;

uint32_t PlanNames::toDevice(const json &value, const std::string &path) const {
  std::string name = toText(value, path);
  auto it = devices.find(name);
  if (it != devices.end())
    return it->second;
  std::string known;
  for (size_t i = 0; i < plan.devices.size() && i < 12; ++i)
    known += (i ? ", " : "") + plan.devices[i].name;
  const bool group = groups.count(name) > 0;
  fail(path, (group ? "expected a device, got the group '" : "unknown device '") + name +
                 "'; \"devices\" lists " + known + (plan.devices.size() > 12 ? ", ..." : ""));
}

std::vector<uint32_t> PlanNames::devicesNamed(const std::string &name,
                                              const std::string &path) const {
  if (const auto group = groups.find(name); group != groups.end())
    return plan.groups[group->second].devices;
  const uint32_t device = toDevice(json(name), path);
  for (const DeviceGroup &group : plan.groups)
    if (std::find(group.devices.begin(), group.devices.end(), device) != group.devices.end())
      fail(path, "device '" + name + "' is in group '" + group.name +
                     "': all devices of a group do the same, so name the group");
  return {device};
}

int64_t zorse::step::toCount(const json &value, const std::string &path) {
  int64_t count = toInteger(value, path);
  if (count < 0)
    fail(path, "expected a number that is not negative, got " + show(value));
  return count;
}
