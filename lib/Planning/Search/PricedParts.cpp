// Subsets of a cluster if prices count. The smallest sufficient subset is often the best, and a
// price limit may allow only few devices. Every number of devices of every class is considered; a
// short search finds the most promising subsets, and these are searched like separate clusters.

#include "Candidates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Devices = std::vector<uint32_t>;

class Parts {
public:
  explicit Parts(const SearchContext &context)
      : context(context), problem(context.problem), options(context.options) {
    for (uint32_t d : context.devices)
      byClass[context.model.deviceTypeOf(d)].push_back(d);
    std::map<uint32_t, size_t> ofNode;
    for (uint32_t d : context.devices)
      ++ofNode[context.model.nodeOf(d)];
    for (auto &[deviceClass, list] : byClass) // on as few nodes as possible, because nodes may have
                                              // a price
      std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
        const uint32_t m = context.model.nodeOf(a), n = context.model.nodeOf(b);
        return std::pair(ofNode[n], m) < std::pair(ofNode[m], n);
      });
    needed = context.model.heldBytes(0, context.model.units()) +
             context.model.sharedBytes(0, context.model.units());
  }

  /// Returns the most promising first: the best of every mixture of classes, then the others.
  std::vector<Devices> promising() {
    std::vector<std::vector<size_t>> choices = choose({});
    if (countOf(choices) > effort.pricedCounted)
      choices = choose({1});
    if (countOf(choices) > effort.pricedCounted)
      return oneClass();
    std::vector<size_t> at(choices.size(), 0);
    do {
      std::vector<size_t> counts(at.size());
      for (size_t c = 0; c < at.size(); ++c)
        counts[c] = choices[c][at[c]];
      add(counts);
    } while (next(choices, at));
    return best();
  }

private:
  struct Part {
    double promise;
    uint64_t mixture; ///< one bit per class
    Devices devices;
  };

  /// Returns the numbers of devices of each class. \param few  only these numbers, none, and all,
  /// instead of all numbers
  std::vector<std::vector<size_t>> choose(const std::set<size_t> &few) const {
    std::vector<std::vector<size_t>> choices;
    for (const auto &[deviceClass, list] : byClass) {
      std::set<size_t> counts{0, list.size()};
      for (size_t n = 1; n < list.size(); n += few.empty() && n < 8 ? 1 : n)
        if (few.empty() || few.count(n))
          counts.insert(n);
      choices.emplace_back(counts.begin(), counts.end());
    }
    return choices;
  }
  size_t countOf(const std::vector<std::vector<size_t>> &choices) const {
    size_t count = 1;
    for (const auto &list : choices)
      count = std::min(count * list.size(), 2 * effort.pricedCounted);
    return count;
  }
  static bool next(const std::vector<std::vector<size_t>> &choices, std::vector<size_t> &at) {
    for (size_t c = 0; c < at.size(); ++c) {
      if (++at[c] < choices[c].size())
        return true;
      at[c] = 0;
    }
    return false;
  }
  std::vector<Devices> oneClass() {
    const std::vector<std::vector<size_t>> choices = choose({});
    for (size_t c = 0; c < byClass.size(); ++c)
      for (size_t count : choices[c]) {
        std::vector<size_t> counts(byClass.size(), 0);
        counts[c] = count;
        add(counts);
      }
    return best();
  }

  void add(const std::vector<size_t> &counts) {
    Part part{0, 0, {}};
    double rate = 0, price = 0, memory = 0;
    std::set<uint32_t> nodes;
    size_t c = 0;
    for (const auto &[deviceClass, list] : byClass) {
      part.mixture |= uint64_t(counts[c] > 0) << std::min<size_t>(c, 63);
      for (size_t i = 0; i < counts[c]; ++i) {
        const ClusterDevice &device = problem.cluster.devices[list[i]];
        part.devices.push_back(list[i]);
        rate += 1 / context.model.minPerSample(deviceClass, 0, context.model.units());
        memory += device.capacity() ? static_cast<double>(device.capacity()) : INFINITY;
        price += device.price +
                 (nodes.insert(device.node).second ? problem.cluster.nodes[device.node].price : 0);
      }
      ++c;
    }
    if (part.devices.empty() || part.devices.size() == context.devices.size() ||
        (options.maxPrice > 0 && price > options.maxPrice) || rate < options.minThroughput)
      return;
    // Communication between devices costs a little, memory optimizations cost a lot.
    constexpr double kOfAnother = 0.02, kOfOptimizations = 1.5;
    part.promise = (options.objective == Objective::CostPerSample ? price : 1) / rate *
                   (1 + kOfAnother * static_cast<double>(part.devices.size() - 1)) *
                   (memory < needed ? kOfOptimizations : 1);
    std::sort(part.devices.begin(), part.devices.end());
    parts.push_back(std::move(part));
  }

  std::vector<Devices> best() {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part &a, const Part &b) { return a.promise < b.promise; });
    std::vector<Devices> first, others;
    std::set<uint64_t> seen;
    for (Part &part : parts)
      (seen.insert(part.mixture).second ? first : others).push_back(std::move(part.devices));
    // At least half of the list are the most promising subsets of any mixture.
    std::vector<Devices> list;
    for (size_t i = 0; list.size() < effort.pricedParts && (i < first.size() || i < others.size());
         ++i) {
      if (i < first.size())
        list.push_back(std::move(first[i]));
      if (i < others.size())
        list.push_back(std::move(others[i]));
    }
    return list;
  }

  const SearchContext &context;
  const Problem &problem;
  const SearchOptions &options;
  const SearchEffort effort = context.effort();
  std::map<uint32_t, Devices> byClass;
  double needed = 0; ///< bytes of one copy of the model and its state
  std::vector<Part> parts;
};

/// Excludes all other devices.
SearchOptions onlyOn(const Problem &problem, const SearchOptions &options, const Devices &part) {
  SearchOptions alone = options;
  alone.progress = nullptr;
  alone.excluded.clear();
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    if (!std::binary_search(part.begin(), part.end(), d))
      alone.excluded.push_back(d);
  return alone;
}

/// Scores a subset by a short search, with memory optimizations if necessary. \param part  receives
/// the devices that the best plan uses
std::optional<double> promiseOf(const Problem &problem, const SearchOptions &options,
                                Devices &part) {
  const SearchOptions alone = onlyOn(problem, options, part);
  std::optional<double> best = shortSearch(problem, alone, &part);
  if (best || !options.memoryOptimizations || problem.memoryOptimizations.any())
    return best;
  for (const MemoryOptimization &optimization : memoryOptimizationCandidates()) {
    Problem eased = problem;
    eased.memoryOptimizations.defaultOptimization = optimization;
    Devices used;
    if (const std::optional<double> score = shortSearch(eased, alone, &used);
        score && (!best || *score < *best)) {
      best = score;
      part = std::move(used);
    }
  }
  return best;
}

/// Returns the subsets to search in full.
std::vector<Devices> chooseParts(const Problem &problem, const SearchOptions &options) {
  const SearchContext context(problem, options);
  if (context.devices.size() < 2)
    return {};
  const SearchEffort effort = context.effort();
  std::vector<std::pair<double, Devices>> promising;
  std::vector<Devices> chosen;
  size_t small = 0;
  auto choose = [&](const Devices &part) {
    if (std::find(chosen.begin(), chosen.end(), part) == chosen.end())
      chosen.push_back(part);
  };
  for (Devices &part : Parts(context).promising()) {
    if (part.size() <= effort.pricedFew && small++ < effort.pricedSmall)
      choose(part);
    if (const std::optional<double> score = promiseOf(problem, options, part))
      promising.push_back({*score, std::move(part)});
  }
  std::stable_sort(promising.begin(), promising.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  const size_t max = chosen.size() + effort.pricedSearched;
  for (size_t i = 0; i < promising.size() && chosen.size() < max &&
                     promising[i].first <= effort.pricedWithin * promising.front().first;
       ++i)
    choose(promising[i].second);
  return chosen;
}

} // namespace

std::optional<double> zorse::planning::shortSearchOfParts(const Problem &problem,
                                                          const SearchOptions &options) {
  std::optional<double> best = shortSearch(problem, options);
  if (best || !countsPrices(options))
    return best;
  for (const Devices &part : Parts(SearchContext(problem, options)).promising()) {
    best = shortSearch(problem, onlyOn(problem, options, part));
    if (best)
      break;
  }
  return best;
}

Result<SearchResult> zorse::planning::searchParts(const Problem &problem,
                                                  const SearchOptions &options) {
  Result<SearchResult> best = searchInOrder(problem, options);
  if (!countsPrices(options) || problem.cluster.devices.empty() ||
      problem.summary.units_size() == 0)
    return best;
  auto scoreOfResult = [&](const SearchResult &result) {
    return scoreOf(problem, options, result.strategy, result.evaluation.step, 0);
  };
  for (const Devices &part : chooseParts(problem, options)) {
    SearchOptions alone = onlyOn(problem, options, part);
    alone.memoryHints = false;
    Result<SearchResult> found = searchInOrder(problem, alone);
    if (found.failed())
      continue;
    const uint32_t tried = found->tried + (best.failed() ? 0 : best->tried);
    if (best.failed() || scoreOfResult(*found) < scoreOfResult(*best))
      best = std::move(found);
    best->tried = tried;
  }
  return best;
}
