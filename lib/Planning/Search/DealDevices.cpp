#include "DealDevices.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Sets = std::vector<std::vector<uint32_t>>;

/// The devices of every node with the same class and number of devices.
std::vector<Sets> equalNodes(const StageModel &model, const std::vector<uint32_t> &devices) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> nodes;
  for (uint32_t d : devices)
    nodes[{model.deviceTypeOf(d), model.nodeOf(d)}].push_back(d);
  std::map<std::pair<uint32_t, size_t>, Sets> alike;
  for (auto &[key, list] : nodes)
    alike[{key.first, list.size()}].push_back(list);
  std::vector<Sets> all;
  all.reserve(alike.size());
  for (auto &[key, list] : alike)
    all.push_back(std::move(list));
  return all;
}

Sets dealSites(const StageModel &model, const std::vector<uint32_t> &devices, uint32_t copies) {
  std::map<uint32_t, uint32_t> index;
  for (uint32_t d : devices)
    index.emplace(model.siteOf(d), index.size());
  if (index.size() != copies)
    return {};
  Sets sets(copies);
  for (uint32_t d : devices)
    sets[index[model.siteOf(d)]].push_back(d);
  return sets;
}

/// Gives each set the same number of whole nodes or, if there are fewer nodes, the same part of a
/// node.
bool dealWholeNodes(const Sets &nodes, Sets &sets) {
  const size_t copies = sets.size(), each = nodes.front().size();
  if (nodes.size() % copies == 0) {
    const size_t nodesEach = nodes.size() / copies; // adjacent ones
    for (size_t i = 0; i < nodes.size(); ++i)
      sets[i / nodesEach].insert(sets[i / nodesEach].end(), nodes[i].begin(), nodes[i].end());
  } else if (each % copies == 0) {
    for (const std::vector<uint32_t> &node : nodes)
      for (size_t i = 0; i < each; ++i)
        sets[i / (each / copies)].push_back(node[i]);
  } else if (copies % nodes.size() == 0 && each % (copies / nodes.size()) == 0) {
    const size_t part = each * nodes.size() / copies;
    for (size_t i = 0; i < nodes.size() * each; ++i)
      sets[i / part].push_back(nodes[i / each][i % each]);
  } else {
    return false;
  }
  return true;
}

/// Divides every node among the largest possible number of sets. Sets that do not share nodes get
/// the same number of adjacent ones.
bool dealAcrossNodes(const Sets &nodes, Sets &sets) {
  const size_t copies = sets.size(), each = nodes.front().size(), together = std::gcd(copies, each),
               groups = copies / together;
  if (together == 1 || nodes.size() % groups != 0)
    return false;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t k = 0; k < each; ++k)
      sets[i / (nodes.size() / groups) * together + k / (each / together)].push_back(nodes[i][k]);
  return true;
}

} // namespace

double zorse::planning::rateOf(const StageModel &model, const std::vector<uint32_t> &devices) {
  double rate = 0;
  for (uint32_t d : devices)
    rate += 1 / model.minPerSample(model.deviceTypeOf(d), 0, model.units());
  return rate;
}

std::vector<std::vector<uint32_t>> zorse::planning::dealCopies(const StageModel &model,
                                                               const std::vector<uint32_t> &devices,
                                                               uint32_t copies, Dealing dealing) {
  if (dealing == Dealing::BySite)
    return dealSites(model, devices, copies);
  const std::vector<Sets> nodes = equalNodes(model, devices);
  auto dealAll = [&](bool (*deal)(const Sets &, Sets &)) {
    Sets sets(copies);
    const bool possible = std::all_of(nodes.begin(), nodes.end(),
                                      [&](const Sets &alike) { return deal(alike, sets); });
    return possible ? sets : Sets();
  };
  Sets whole = dealAll(dealWholeNodes);
  if (dealing == Dealing::WholeNodes)
    return whole;
  Sets across = dealAll(dealAcrossNodes);
  return across == whole ? Sets() : across;
}

std::vector<std::vector<uint32_t>>
zorse::planning::dealBySpeed(const StageModel &model, const std::vector<uint32_t> &devices,
                             uint32_t copies) {
  std::map<uint32_t, std::vector<uint32_t>> nodes;
  for (uint32_t d : devices)
    nodes[model.nodeOf(d)].push_back(d);
  std::vector<std::vector<uint32_t>> items;
  for (auto &[node, list] : nodes)
    if (nodes.size() >= copies)
      items.push_back(list);
    else
      for (uint32_t d : list)
        items.push_back({d});
  std::stable_sort(items.begin(), items.end(), [&](const auto &a, const auto &b) {
    return rateOf(model, a) > rateOf(model, b);
  });
  std::vector<std::vector<uint32_t>> sets(copies);
  std::vector<double> rates(copies, 0);
  for (const std::vector<uint32_t> &item : items) {
    const auto slowest = std::min_element(rates.begin(), rates.end());
    *slowest += rateOf(model, item);
    std::vector<uint32_t> &set = sets[static_cast<size_t>(slowest - rates.begin())];
    set.insert(set.end(), item.begin(), item.end());
  }
  for (std::vector<uint32_t> &set : sets)
    std::sort(set.begin(), set.end());
  return sets;
}

uint32_t zorse::planning::replicasOnNode(const StageModel &model,
                                         const std::vector<std::vector<uint32_t>> &sets) {
  if (sets.front().empty())
    return 1;
  const uint32_t node = model.nodeOf(sets.front().front());
  return static_cast<uint32_t>(
      std::count_if(sets.begin(), sets.end(), [&](const std::vector<uint32_t> &set) {
        return std::any_of(set.begin(), set.end(),
                           [&](uint32_t d) { return model.nodeOf(d) == node; });
      }));
}
