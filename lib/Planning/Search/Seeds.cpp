// Starting points: orders of devices by class and site, cut by the dynamic programme.

#include "Candidates.h"

#include "zorse/Step/Deal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Memory is provided for this many times the samples under way when nothing waits, and first stages may wait for their parameters for this part of
/// the step; others are tried where these promise most.
constexpr double kInFlight = 2, kLateStart = 0.01;
constexpr size_t kRefined = 3;
/// Of many devices, pieces are tried only of orders that promise nearly as much as the best of as many pipelines.
constexpr double kFarOff = 1.1;

/// Devices of one site and class, by node.
struct Block {
  uint32_t site, deviceClass;
  std::vector<std::vector<uint32_t>> nodes;
};

std::vector<Block> makeBlocks(const SearchContext &context, const std::vector<uint32_t> &devices) {
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, std::vector<uint32_t>>> sorted;
  for (uint32_t d : devices)
    sorted[{context.model.siteOf(d), context.model.classOf(d)}][context.model.nodeOf(d)].push_back(d);
  std::vector<Block> blocks;
  for (auto &[key, nodes] : sorted) {
    Block block{key.first, key.second, {}};
    for (auto &[node, list] : nodes)
      block.nodes.push_back(list);
    blocks.push_back(std::move(block));
  }
  // Of two kinds, one may stand on both sides of the other: small memories suit the front and the back, where few samples are held or few units.
  if (blocks.size() == 2 && context.effort().everySeed)
    for (size_t b = 0; b < 2; ++b)
      if (size_t nodes = blocks[b].nodes.size(); nodes >= 4) {
        Block rest{blocks[b].site, blocks[b].deviceClass, {blocks[b].nodes.begin() + static_cast<long>(nodes / 4), blocks[b].nodes.end()}};
        blocks[b].nodes.resize(nodes / 4);
        blocks.push_back(std::move(rest));
      }
  return blocks;
}

/// Orders of blocks with sites contiguous, at most `most`.
std::vector<std::vector<size_t>> makeOrders(const std::vector<Block> &blocks, size_t most) {
  std::vector<uint32_t> sites;
  for (const Block &block : blocks)
    if (std::find(sites.begin(), sites.end(), block.site) == sites.end())
      sites.push_back(block.site);
  std::vector<std::vector<size_t>> orders;
  if (sites.size() == 1) {
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::set<std::vector<std::pair<uint32_t, size_t>>> seen; // neighbours of one class are one
    do {
      std::vector<std::pair<uint32_t, size_t>> runs;
      for (size_t b : order) {
        if (runs.empty() || runs.back().first != blocks[b].deviceClass)
          runs.push_back({blocks[b].deviceClass, 0});
        runs.back().second += blocks[b].nodes.size();
      }
      if (seen.insert(runs).second)
        orders.push_back(order);
    } while (orders.size() < most && std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  do {
    // Classes inside each site: all permutations, the same one in every site to keep their number down where there are many.
    std::vector<uint32_t> classes;
    for (const Block &block : blocks)
      if (std::find(classes.begin(), classes.end(), block.deviceClass) == classes.end())
        classes.push_back(block.deviceClass);
    std::sort(classes.begin(), classes.end());
    do {
      std::vector<size_t> order;
      for (uint32_t site : sites)
        for (uint32_t c : classes)
          for (size_t b = 0; b < blocks.size(); ++b)
            if (blocks[b].site == site && blocks[b].deviceClass == c)
              order.push_back(b);
      if (std::find(orders.begin(), orders.end(), order) == orders.end())
        orders.push_back(order);
    } while (orders.size() < most && std::next_permutation(classes.begin(), classes.end()));
  } while (orders.size() < most && std::next_permutation(sites.begin(), sites.end()));
  return orders;
}

/// Pieces of at most `size` devices; whole nodes are joined up to it.
std::vector<Atom> makeAtoms(const std::vector<Block> &blocks, const std::vector<size_t> &order, size_t size) {
  std::vector<Atom> atoms;
  for (size_t b : order) {
    Atom joined;
    for (const auto &node : blocks[b].nodes) {
      if (node.size() >= size) {
        size_t pieces = (node.size() + size - 1) / size, at = 0;
        for (size_t p = 0; p < pieces; ++p) {
          size_t end = node.size() * (p + 1) / pieces;
          atoms.push_back({{node.begin() + static_cast<long>(at), node.begin() + static_cast<long>(end)}});
          at = end;
        }
        continue;
      }
      if (!joined.devices.empty() && joined.devices.size() + node.size() > size) {
        atoms.push_back(joined);
        joined.devices.clear();
      }
      joined.devices.insert(joined.devices.end(), node.begin(), node.end());
    }
    if (!joined.devices.empty())
      atoms.push_back(joined);
  }
  return atoms;
}

bool sameLayout(const Layout &a, const Layout &b) {
  auto sameMember = [](const Member &m, const Member &o) { return m.device == o.device && m.samples == o.samples && m.rows == o.rows; };
  auto sameStage = [&](const Stage &s, const Stage &o) {
    return s.unitBegin == o.unitBegin && s.unitEnd == o.unitEnd &&
           std::equal(s.members.begin(), s.members.end(), o.members.begin(), o.members.end(), sameMember);
  };
  return std::equal(a.pipelines.begin(), a.pipelines.end(), b.pipelines.begin(), b.pipelines.end(), [&](const Pipeline &p, const Pipeline &o) {
    return std::equal(p.stages.begin(), p.stages.end(), o.stages.begin(), o.stages.end(), sameStage);
  });
}

/// The same order in atoms of another size.
std::vector<Atom> splitAtoms(const SearchContext &context, const std::vector<Atom> &atoms, size_t size) {
  std::vector<Atom> pieces;
  for (const Atom &atom : atoms)
    for (uint32_t d : atom.devices) {
      bool same = !pieces.empty() && pieces.back().devices.size() < size &&
                  context.model.classOf(pieces.back().devices.front()) == context.model.classOf(d) &&
                  (size > 4 || context.model.nodeOf(pieces.back().devices.front()) == context.model.nodeOf(d));
      if (!same)
        pieces.emplace_back();
      pieces.back().devices.push_back(d);
    }
  return pieces;
}

/// Atoms in `count` groups of about equal speed, in order.
std::vector<Atom> groupAtoms(const SearchContext &context, const std::vector<Atom> &atoms, size_t count) {
  auto rateOf = [&](const Atom &atom) {
    double rate = 0;
    for (uint32_t d : atom.devices)
      rate += 1 / context.model.leastPerSample(context.model.classOf(d), 0, context.model.units());
    return rate;
  };
  double total = 0, passed = 0;
  for (const Atom &atom : atoms)
    total += rateOf(atom);
  std::vector<Atom> groups;
  for (size_t i = 0; i < atoms.size(); ++i) {
    size_t left = atoms.size() - i; // every group gets an atom
    bool next = groups.empty() ||
                (groups.size() < count &&
                 (passed >= total * static_cast<double>(groups.size()) / static_cast<double>(count) * (1 - 1e-9) || left <= count - groups.size()));
    if (next)
      groups.emplace_back();
    groups.back().devices.insert(groups.back().devices.end(), atoms[i].devices.begin(), atoms[i].devices.end());
    passed += rateOf(atoms[i]);
  }
  return groups;
}

/// The cluster's devices dealt to `copies` alike sets; empty if they do not divide.
std::vector<std::vector<uint32_t>> dealCopies(const SearchContext &context, uint32_t copies, bool bySite) {
  std::vector<std::vector<uint32_t>> sets(copies);
  if (bySite) {
    std::map<uint32_t, uint32_t> index;
    for (uint32_t d : context.devices)
      index.emplace(context.model.siteOf(d), index.size());
    if (index.size() != copies)
      return {};
    for (uint32_t d : context.devices)
      sets[index[context.model.siteOf(d)]].push_back(d);
    return sets;
  }
  // Whole nodes go round; nodes of one class and size are alike.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> nodes;
  for (uint32_t d : context.devices)
    nodes[{context.model.classOf(d), context.model.nodeOf(d)}].push_back(d);
  std::map<std::pair<uint32_t, size_t>, std::vector<const std::vector<uint32_t> *>> alike;
  for (auto &[key, list] : nodes)
    alike[{key.first, list.size()}].push_back(&list);
  for (auto &[key, list] : alike) {
    if (list.size() % copies == 0) {
      for (size_t i = 0; i < list.size(); ++i) // neighbours stay together
        sets[i / (list.size() / copies)].insert(sets[i / (list.size() / copies)].end(), list[i]->begin(), list[i]->end());
    } else if ((list.size() * key.second) % copies == 0 && key.second % copies == 0) {
      for (const auto *node : list)
        for (size_t i = 0; i < node->size(); ++i)
          sets[i / (node->size() / copies)].push_back((*node)[i]);
    } else {
      return {};
    }
  }
  return sets;
}

} // namespace

std::vector<Candidate> zorse::planning::makeSeeds(SearchContext &context, bool thorough) {
  struct Task {
    std::vector<std::vector<Atom>> atoms; ///< per pipeline
    std::vector<int64_t> samples;
    CutOptions options;
    std::vector<Candidate> found;
    size_t size = 1;           ///< devices of an atom
    std::vector<size_t> finer; ///< sizes to try besides if this one promises much
  };
  std::vector<Task> tasks;
  const size_t count = context.devices.size();
  const SearchEffort &effort = context.effort();
  const bool split = context.tables.canSplit() && context.options.splitBackward.value_or(true);

  auto addTasks = [&](const std::vector<std::vector<uint32_t>> &sets, size_t mostOrders) {
    std::vector<std::vector<Block>> blocks;
    std::vector<double> rates;
    size_t largest = 0;
    for (const auto &set : sets) {
      blocks.push_back(makeBlocks(context, set));
      double rate = 0;
      for (uint32_t d : set)
        rate += 1 / context.model.leastPerSample(context.model.classOf(d), 0, context.model.units());
      rates.push_back(rate);
      largest = std::max(largest, set.size());
    }
    std::vector<int64_t> samples = step::splitInProportion(context.problem.batch, rates);
    if (std::find(samples.begin(), samples.end(), 0) != samples.end())
      return;
    std::vector<size_t> sizes; // devices of an atom
    // Finer pieces where there are few devices, whole nodes and more where there are many.
    if (largest <= 32)
      sizes = {1, 2, 4};
    else if (largest <= 128)
      sizes = {4};
    else
      sizes = {std::max<size_t>(8, largest / 32)};
    // Any number of rows; of many devices the same few for all stages: quicker.
    const size_t rowCounts = effort.everySeed ? 1 : std::min<size_t>(context.model.rows().size(), 2);
    for (const auto &order : makeOrders(blocks.front(), mostOrders))
      for (size_t choice = 0; choice < sizes.size() * rowCounts; ++choice) {
        const size_t size = sizes[choice / rowCounts];
        Task task;
        if (!effort.everySeed)
          task.options.leastRows = task.options.mostRows = choice % rowCounts;
        for (const auto &list : blocks) {
          bool alike = list.size() == blocks.front().size();
          std::vector<size_t> own(order);
          if (!alike) {
            own.resize(list.size());
            std::iota(own.begin(), own.end(), 0);
          }
          task.atoms.push_back(makeAtoms(list, own, size));
          if (context.options.stages > 0) {
            task.atoms.back() = groupAtoms(context, makeAtoms(list, own, 1), context.options.stages);
            task.options.mostAtoms = 1;
            task.options.mayLeaveOut = false;
          }
        }
        task.samples = samples;
        task.options.split = split;
        task.options.copies = static_cast<uint32_t>(sets.size());
        task.size = size;
        if (largest > 32 && largest <= 64)
          task.finer = effort.largeTimes ? std::vector<size_t>{2} : std::vector<size_t>{1, 2};
        else if (largest > 64 && largest <= 128)
          task.finer =
              effort.largeTimes ? std::vector<size_t>{2, 8} : std::vector<size_t>{1, 2, 8}; // one by one takes long, and whole nodes do better
        if (largest > 32)
          task.options.mostDevices = static_cast<uint32_t>(largest / 4);
        tasks.push_back(std::move(task));
      }
  };
  uint32_t asked = context.options.pipelines;
  const size_t orders = effort.seedOrders;
  std::set<uint32_t> sitesOfAll;
  for (uint32_t d : context.devices)
    sitesOfAll.insert(context.model.siteOf(d));
  const size_t sites = sitesOfAll.size();
  if (asked <= 1)
    addTasks({context.devices}, orders);
  for (uint32_t copies : {2u, 3u, 4u, 5u, 8u, 16u})
    if ((effort.everySeed || copies == 2 || copies == 4 || copies == 8 || copies == sites || asked == copies) && (asked == 0 || asked == copies) &&
        copies <= count && copies <= context.problem.batch)
      for (bool bySite : {false, true}) {
        auto sets = dealCopies(context, copies, bySite);
        if (!sets.empty())
          addTasks(sets, std::max<size_t>(2, orders / 4));
      }

  auto solve = [&](size_t worker, size_t i) {
    Task &task = tasks[i];
    auto solveAll = [&](CutSolver &solver, CutOptions options, std::vector<Cut> &cuts) {
      double slowest = 0;
      for (size_t p = 0; p < task.atoms.size(); ++p) {
        bool repeated = p > 0 && task.samples[p] == task.samples[0] && task.atoms[p].size() == task.atoms[0].size();
        if (repeated) {
          bool same = true;
          for (size_t a = 0; a < task.atoms[p].size() && same; ++a)
            same = task.atoms[p][a].devices.size() == task.atoms[0][a].devices.size() &&
                   context.model.classOf(task.atoms[p][a].devices.front()) == context.model.classOf(task.atoms[0][a].devices.front());
          if (same) {
            cuts.push_back(cuts.front());
            continue;
          }
        }
        options.samples = task.samples[p];
        cuts.push_back(solver.solve(task.atoms[p], options));
        if (cuts.back().stages.empty())
          return -1.0;
        slowest = std::max(slowest, cuts.back().time);
      }
      for (const Cut &cut : cuts)
        slowest = std::max(slowest, cut.time);
      return slowest;
    };
    auto attemptOne = [&](double inFlight, double lateStart, bool rough, bool parts, bool waits) {
      std::vector<Cut> cuts;
      CutOptions options = task.options;
      options.rough = rough;
      options.waits = waits;
      options.inFlight = inFlight;
      options.lateStart = lateStart;
      double time = solveAll(context.solver(worker, parts ? context.parts->ways() : 1), options, cuts);
      if (time < 0)
        return;
      Candidate candidate;
      candidate.estimate = time;
      candidate.inFlight = inFlight;
      for (size_t p = 0; p < cuts.size(); ++p)
        candidate.layout.pipelines.push_back(makePipeline(parts ? *context.parts : context.model, task.atoms[p], cuts[p], task.samples[p]));
      if (parts) {
        candidate.layout.parts = context.parts->ways();
        setTurn(candidate.layout);
      }
      task.found.push_back(std::move(candidate));
    };
    // Which estimate cuts better is known when the cuts are simulated.
    auto attempt = [&](double inFlight, double lateStart, bool rough, bool parts = false) {
      attemptOne(inFlight, lateStart, rough, parts, /*waits=*/true);
      if (!rough)
        attemptOne(inFlight, lateStart, rough, parts, /*waits=*/false);
    };
    if (task.found.empty()) {
      attempt(kInFlight, kLateStart, !effort.bestNeighbour);
      return;
    }
    for (double lateStart : {kLateStart, 0.0, 4 * kLateStart})
      for (double inFlight : {kInFlight, 0.7 * kInFlight, 0.5 * kInFlight})
        if (effort.bestNeighbour ? inFlight != kInFlight || lateStart != kLateStart
                                 : lateStart == kLateStart ||
                                       (inFlight == (effort.thoroughSeeds ? kInFlight : 0.7 * kInFlight) && (lateStart == 0 || effort.thoroughSeeds)))
          attempt(inFlight, lateStart, false);
    if (context.parts && effort.descentTasks > 0) // elsewhere it takes too long: moves share units out
      for (double inFlight : {kInFlight, 0.7 * kInFlight, 0.5 * kInFlight})
        if (effort.thoroughSeeds || (i < 6 && inFlight == 0.7 * kInFlight))
          attempt(inFlight, kLateStart, false, true);
  };
  auto estimateOf = [](const Task &task) { return task.found.empty() ? 1e300 : task.found.front().estimate; };
  auto solveFrom = [&](size_t begin) { context.parallel(tasks.size() - begin, [&](size_t worker, size_t i) { solve(worker, begin + i); }); };
  solveFrom(0);
  // Where whole nodes promise most, pieces of them as well.
  std::vector<size_t> byPromise(tasks.size());
  std::iota(byPromise.begin(), byPromise.end(), 0);
  std::stable_sort(byPromise.begin(), byPromise.end(), [&](size_t a, size_t b) { return estimateOf(tasks[a]) < estimateOf(tasks[b]); });
  std::map<std::array<size_t, 2>, size_t> refined;
  std::map<size_t, double> bestOf; // by number of pipelines
  const size_t coarse = tasks.size();
  for (size_t i : byPromise) {
    if (!thorough || tasks[i].finer.empty() || tasks[i].found.empty() || refined[{tasks[i].atoms.size(), tasks[i].options.mostRows}]++ >= kRefined)
      continue;
    const double best = bestOf.emplace(tasks[i].atoms.size(), estimateOf(tasks[i])).first->second;
    if (effort.largeTimes && estimateOf(tasks[i]) > kFarOff * best)
      continue;
    for (size_t size : tasks[i].finer) {
      Task task;
      task.samples = tasks[i].samples;
      task.options = tasks[i].options;
      task.size = size;
      for (const auto &atoms : tasks[i].atoms)
        task.atoms.push_back(splitAtoms(context, atoms, size));
      tasks.push_back(std::move(task));
    }
  }
  solveFrom(coarse);
  // The most promising again.
  std::stable_sort(tasks.begin(), tasks.end(), [&](const Task &a, const Task &b) { return estimateOf(a) < estimateOf(b); });
  while (!tasks.empty() && tasks.back().found.empty())
    tasks.pop_back();
  // Of each size of atoms and number of pipelines: coarse ones never look better and often are.
  std::map<std::array<size_t, 3>, size_t> taken;
  std::vector<size_t> again;
  for (size_t i = 0; i < tasks.size(); ++i)
    if (thorough && again.size() < effort.seedsAgain && taken[{tasks[i].size, tasks[i].atoms.size(), tasks[i].options.mostRows}]++ < 2)
      again.push_back(i);
  context.parallel(again.size(), [&](size_t worker, size_t i) { solve(worker, again[i]); });
  std::vector<Candidate> seeds;
  for (Task &task : tasks)
    for (Candidate &candidate : task.found) {
      candidate.id = context.nextId();
      seeds.push_back(std::move(candidate));
    }
  // Several tasks come to the same layout.
  std::stable_sort(seeds.begin(), seeds.end(), [](const Candidate &a, const Candidate &b) { return a.estimate < b.estimate; });
  std::vector<Candidate> unlike;
  for (Candidate &candidate : seeds) {
    bool known = false;
    for (size_t i = unlike.size(); i-- > 0 && unlike[i].estimate == candidate.estimate && !known;)
      known = sameLayout(unlike[i].layout, candidate.layout);
    if (!known)
      unlike.push_back(std::move(candidate));
  }
  seeds = std::move(unlike);
  // By estimate, but no kind of plan is left out for long: the best of every kind, then the second best, ...
  std::map<std::pair<size_t, size_t>, size_t> rank;
  std::vector<std::pair<double, size_t>> order;
  std::vector<size_t> byEstimate(seeds.size());
  std::iota(byEstimate.begin(), byEstimate.end(), 0);
  std::stable_sort(byEstimate.begin(), byEstimate.end(), [&](size_t a, size_t b) { return seeds[a].estimate < seeds[b].estimate; });
  for (size_t i : byEstimate) {
    size_t stages = seeds[i].layout.pipelines.front().stages.size();
    size_t place = rank[{seeds[i].layout.pipelines.size(), stages}]++;
    order.push_back({seeds[i].estimate * (1 + 0.03 * static_cast<double>(place)), i});
  }
  std::stable_sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Candidate> sorted;
  for (auto &[estimate, i] : order)
    sorted.push_back(std::move(seeds[i]));
  return sorted;
}

std::optional<Candidate> zorse::planning::plainCut(const SearchContext &context, size_t stages, size_t laps, size_t rows) {
  const StageModel &model = context.model;
  const std::vector<Block> blocks = makeBlocks(context, context.devices);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<Atom> groups = groupAtoms(context, makeAtoms(blocks, order, 1), stages);
  if (groups.size() != stages || static_cast<size_t>(model.units()) < stages * laps)
    return std::nullopt;
  std::vector<double> passed;
  double total = 0;
  for (const Atom &group : groups) {
    for (uint32_t d : group.devices)
      total += 1 / model.leastPerSample(model.classOf(d), 0, model.units());
    passed.push_back(total);
  }
  Candidate candidate;
  Pipeline pipeline{context.problem.batch, {}};
  for (size_t s = 0; s < stages * laps; ++s) {
    const int32_t begin = s == 0 ? 0 : pipeline.stages.back().unitEnd, left = static_cast<int32_t>(stages * laps - 1 - s);
    const size_t lap = s / stages;
    const double part = (static_cast<double>(lap) + passed[s % stages] / total) / static_cast<double>(laps);
    const auto end = static_cast<int32_t>(std::clamp<long>(std::lround(model.units() * part), begin + 1, model.units() - left));
    pipeline.stages.push_back(makeStage(model, groups[s % stages].devices, begin, end, pipeline.samples, rows));
  }
  candidate.layout.pipelines.push_back(std::move(pipeline));
  return candidate;
}
