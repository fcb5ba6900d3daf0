// Moves that change the groups of devices of stages.

#include "Candidates.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Draws devices that move together: one, or all of its node and class in the group.
std::vector<uint32_t> drawSome(const StageModel &model, SplitMix64 &random,
                               const std::vector<uint32_t> &devices, bool whole) {
  uint32_t d = devices[random.below(devices.size())];
  std::vector<uint32_t> some;
  for (uint32_t other : devices)
    if (other == d || (whole && model.nodeOf(other) == model.nodeOf(d) &&
                       model.deviceTypeOf(other) == model.deviceTypeOf(d)))
      some.push_back(other);
  return some;
}

void erase(std::vector<uint32_t> &from, const std::vector<uint32_t> &what) {
  from.erase(std::remove_if(
                 from.begin(), from.end(),
                 [&](uint32_t d) { return std::find(what.begin(), what.end(), d) != what.end(); }),
             from.end());
}

void insert(std::vector<uint32_t> &into, const std::vector<uint32_t> &what) {
  into.insert(into.end(), what.begin(), what.end());
  std::sort(into.begin(), into.end());
}

} // namespace

std::vector<uint32_t> zorse::planning::unusedDevices(const SearchContext &context,
                                                     const Strategy &strategy) {
  std::vector<uint8_t> used(context.problem.cluster.devices.size(), 0);
  for (const Pipeline &pipeline : strategy.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const step::StageDevice &member : stage.members)
        used[member.device] = 1;
  std::vector<uint32_t> rest;
  for (uint32_t d : context.devices)
    if (!used[d])
      rest.push_back(d);
  return rest;
}

bool zorse::planning::moveGroups(const StageModel &model, SplitMix64 &random,
                                 const std::vector<uint32_t> &rest,
                                 std::vector<DeviceSet> &groups) {
  const size_t stages = groups.size();
  const size_t kind = random.below(100);
  const bool whole =
      random.chance(SearchEffort::forDevices(model.problem.cluster.devices.size()).wholeGroups);
  if (kind < 30) { // move devices to another stage
    if (stages < 2)
      return false;
    size_t a = random.below(stages),
           b = random.chance(70) ? (a + 1 < stages && (a == 0 || random.chance(50)) ? a + 1 : a - 1)
                                 : random.below(stages);
    if (a == b || b >= stages)
      return false;
    auto some = drawSome(model, random, groups[a].devices, whole);
    erase(groups[a].devices, some);
    insert(groups[b].devices, some);
  } else if (kind < 50) { // swap
    if (stages < 2)
      return false;
    size_t a = random.below(stages), b = random.below(stages);
    if (a == b)
      return false;
    auto some = drawSome(model, random, groups[a].devices, whole),
         others = drawSome(model, random, groups[b].devices, whole);
    erase(groups[a].devices, some);
    erase(groups[b].devices, others);
    insert(groups[a].devices, others);
    insert(groups[b].devices, some);
  } else if (kind < 60) { // change the order of stages
    if (stages < 2)
      return false;
    size_t a = random.below(stages),
           b = random.chance(60) ? (a + 1) % stages : random.below(stages);
    if (a == b)
      return false;
    std::swap(groups[a], groups[b]);
  } else if (kind < 70) { // merge two stages
    if (stages < 2)
      return false;
    size_t a = random.below(stages - 1);
    insert(groups[a].devices, groups[a + 1].devices);
    groups[a + 1].devices.clear();
  } else if (kind < 82) { // split a stage
    size_t a = random.below(stages);
    if (groups[a].devices.size() < 2)
      return false;
    DeviceSet half;
    if (random.chance(50)) {
      half.devices.assign(groups[a].devices.begin() +
                              static_cast<long>(groups[a].devices.size() / 2),
                          groups[a].devices.end());
    } else {
      uint32_t c = model.deviceTypeOf(groups[a].devices[random.below(groups[a].devices.size())]);
      for (uint32_t d : groups[a].devices)
        if (model.deviceTypeOf(d) == c)
          half.devices.push_back(d);
    }
    erase(groups[a].devices, half.devices);
    if (groups[a].devices.empty())
      return false;
    groups.insert(groups.begin() + static_cast<long>(a + random.below(2)), half);
  } else if (kind < 89) { // remove devices
    size_t a = random.below(stages);
    auto some = drawSome(model, random, groups[a].devices, whole);
    erase(groups[a].devices, some);
  } else { // add devices
    if (rest.empty())
      return false;
    auto some = drawSome(model, random, rest, whole);
    if (random.chance(60))
      insert(groups[random.below(stages)].devices, some);
    else
      groups.insert(groups.begin() + static_cast<long>(random.below(stages + 1)), DeviceSet{some});
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const DeviceSet &a) { return a.devices.empty(); }),
               groups.end());
  return !groups.empty() && groups.size() <= static_cast<size_t>(model.units());
}
