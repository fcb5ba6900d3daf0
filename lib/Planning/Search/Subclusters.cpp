// Subsets of a cluster that may be faster without the rest. Distant, slow or unusual devices cost
// more than they contribute if others wait for them.

#include "Candidates.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Devices = std::vector<uint32_t>;

/// Groups devices by `keyOf`, the groups with the highest total speed first.
std::vector<Devices> groupsBy(const SearchContext &context, const Devices &devices,
                              const std::function<uint32_t(uint32_t)> &keyOf) {
  std::map<uint32_t, Devices> byKey;
  for (uint32_t d : devices)
    byKey[keyOf(d)].push_back(d);
  std::vector<std::pair<double, Devices>> groups;
  for (auto &[key, group] : byKey) {
    double rate = 0;
    for (uint32_t d : group)
      rate += 1 /
              context.model.minPerSample(context.model.deviceTypeOf(d), 0, context.model.units());
    groups.push_back({rate, std::move(group)});
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto &a, const auto &b) { return a.first > b.first; });
  std::vector<Devices> sorted;
  sorted.reserve(groups.size());
  for (auto &[rate, group] : groups)
    sorted.push_back(std::move(group));
  return sorted;
}

Devices without(const Devices &all, const Devices &some) {
  const std::set<uint32_t> gone(some.begin(), some.end());
  Devices rest;
  for (uint32_t d : all)
    if (!gone.count(d))
      rest.push_back(d);
  return rest;
}

class Sets {
public:
  Sets(const Devices &all, size_t max) : max(max) { known.insert(all); }
  void add(Devices devices) {
    std::sort(devices.begin(), devices.end());
    if (!devices.empty() && list.size() < max && known.insert(devices).second)
      list.push_back(std::move(devices));
  }
  std::vector<Devices> list;

private:
  size_t max;
  std::set<Devices> known;
};

} // namespace

std::vector<Devices> zorse::planning::subclusters(const SearchContext &context,
                                                  const Devices &devices, size_t max) {
  Sets sets(devices, max);
  const auto sites =
      groupsBy(context, devices, [&](uint32_t d) { return context.model.siteOf(d); });
  const auto classes =
      groupsBy(context, devices, [&](uint32_t d) { return context.model.deviceTypeOf(d); });
  const auto nodes =
      groupsBy(context, devices, [&](uint32_t d) { return context.model.nodeOf(d); });
  for (const auto *groups : {&sites, &classes, &nodes}) {
    for (auto it = groups->rbegin(); it != groups->rend(); ++it)
      sets.add(without(devices, *it));
    for (const Devices &group : *groups)
      sets.add(group);
    Devices first;
    for (const Devices &group : *groups) {
      first.insert(first.end(), group.begin(), group.end());
      sets.add(first);
    }
  }
  for (const Devices &site : sites)
    for (const Devices &group :
         groupsBy(context, site, [&](uint32_t d) { return context.model.deviceTypeOf(d); }))
      sets.add(group);
  // One device less of every class, from the node with the fewest of them.
  if (SearchEffort::forDevices(devices.size()).lessOne)
    for (const Devices &group : classes) {
      std::map<uint32_t, size_t> ofNode;
      for (uint32_t d : devices)
        ++ofNode[context.model.nodeOf(d)];
      const uint32_t last =
          *std::min_element(group.rbegin(), group.rend(), [&](uint32_t a, uint32_t b) {
            return ofNode[context.model.nodeOf(a)] < ofNode[context.model.nodeOf(b)];
          });
      sets.add(without(devices, {last}));
    }
  return std::move(sets.list);
}

std::vector<uint32_t> zorse::planning::withoutNegligible(const SearchContext &context) {
  constexpr double kNegligible = 0.005, kSlow = 0.1; // of the total speed; of the mean speed
  std::vector<std::pair<double, uint32_t>> bySpeed;
  double all = 0, gone = 0;
  for (uint32_t d : context.devices) {
    bySpeed.push_back(
        {1 / context.model.minPerSample(context.model.deviceTypeOf(d), 0, context.model.units()),
         d});
    all += bySpeed.back().first;
  }
  std::sort(bySpeed.begin(), bySpeed.end());
  std::vector<uint32_t> rest;
  for (auto [speed, device] : bySpeed)
    if ((gone += speed) > kNegligible * all ||
        speed * static_cast<double>(bySpeed.size()) > kSlow * all)
      rest.push_back(device);
  std::sort(rest.begin(), rest.end());
  return rest;
}

void zorse::planning::addWhole(SearchContext &context, std::vector<Candidate> &solutions) {
  if (context.options.stages > 1 || context.options.pipelines > 1)
    return;
  for (size_t rows = 0; rows < context.model.rows().size(); ++rows) {
    Candidate candidate;
    const Stage stage = makeStage(context.model, context.devices, 0, context.model.units(),
                                  context.problem.batch, rows);
    if (stage.members.empty())
      continue;
    candidate.strategy.pipelines.push_back({context.problem.batch, {stage}});
    candidate.id = context.nextId();
    solutions.push_back(std::move(candidate));
  }
}

void zorse::planning::addSubclusterSolutions(SearchContext &context, const Devices &of,
                                             size_t maxSets, size_t each,
                                             std::vector<Candidate> &solutions) {
  const Devices all = context.devices;
  for (Devices &part : subclusters(context, of, maxSets)) {
    context.devices = std::move(part);
    std::vector<Candidate> found = makeInitialSolutions(context, /*thorough=*/false);
    if (found.size() > each)
      found.resize(each);
    if (SearchEffort::forDevices(all.size()).wholeStages)
      addWhole(context, solutions);
    std::move(found.begin(), found.end(), std::back_inserter(solutions));
  }
  context.devices = all;
}
