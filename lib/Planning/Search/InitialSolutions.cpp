// Initial strategies: orders of devices by class and site, partitioned by the dynamic program.

#include "Candidates.h"
#include "DealDevices.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Memory is reserved for kInFlight times the samples in flight without waiting. First stages may
/// wait for their parameters for the share kLateStart of the step. Other values are tried for the
/// most promising orders.
constexpr double kInFlight = 2, kLateStart = 0.01;

/// Devices of one site and class, per node.
struct Block {
  uint32_t site, deviceClass;
  std::vector<std::vector<uint32_t>> nodes;
};

std::vector<Block> makeBlocks(const SearchContext &context, const std::vector<uint32_t> &devices) {
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, std::vector<uint32_t>>> sorted;
  for (uint32_t d : devices)
    sorted[{context.model.siteOf(d), context.model.deviceTypeOf(d)}][context.model.nodeOf(d)]
        .push_back(d);
  std::vector<Block> blocks;
  for (auto &[key, nodes] : sorted) {
    Block block{key.first, key.second, {}};
    for (auto &[node, list] : nodes)
      block.nodes.push_back(list);
    blocks.push_back(std::move(block));
  }
  // With two kinds, one may be on both sides of the other. Devices with little memory suit the
  // front and the back, which hold few units or few samples.
  if (blocks.size() == 2 && context.effort().bothSides)
    for (size_t b = 0; b < 2; ++b)
      if (size_t nodes = blocks[b].nodes.size(); nodes >= 4) {
        Block rest{blocks[b].site,
                   blocks[b].deviceClass,
                   {blocks[b].nodes.begin() + static_cast<long>(nodes / 4), blocks[b].nodes.end()}};
        blocks[b].nodes.resize(nodes / 4);
        blocks.push_back(std::move(rest));
      }
  return blocks;
}

/// Returns orders of blocks with contiguous sites, at most `max`.
std::vector<std::vector<size_t>> makeOrders(const std::vector<Block> &blocks, size_t max) {
  std::vector<uint32_t> sites;
  for (const Block &block : blocks)
    if (std::find(sites.begin(), sites.end(), block.site) == sites.end())
      sites.push_back(block.site);
  std::vector<std::vector<size_t>> orders;
  if (sites.size() == 1) {
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::set<std::vector<std::pair<uint32_t, size_t>>> seen; // adjacent blocks of one class count
                                                             // as one
    do {
      std::vector<std::pair<uint32_t, size_t>> runs;
      for (size_t b : order) {
        if (runs.empty() || runs.back().first != blocks[b].deviceClass)
          runs.push_back({blocks[b].deviceClass, 0});
        runs.back().second += blocks[b].nodes.size();
      }
      if (seen.insert(runs).second)
        orders.push_back(order);
    } while (orders.size() < max && std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  do {
    // Orders classes inside each site: all permutations, but the same one in every site, to limit
    // their number.
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
    } while (orders.size() < max && std::next_permutation(classes.begin(), classes.end()));
  } while (orders.size() < max && std::next_permutation(sites.begin(), sites.end()));
  return orders;
}

/// Returns atoms of at most `size` devices; whole nodes are merged up to that size.
std::vector<DeviceSet> makeDeviceSets(const std::vector<Block> &blocks,
                                      const std::vector<size_t> &order, size_t size) {
  std::vector<DeviceSet> deviceSets;
  for (size_t b : order) {
    DeviceSet joined;
    for (const auto &node : blocks[b].nodes) {
      if (node.size() >= size) {
        size_t pieces = (node.size() + size - 1) / size, at = 0;
        for (size_t p = 0; p < pieces; ++p) {
          size_t end = node.size() * (p + 1) / pieces;
          deviceSets.push_back(
              {{node.begin() + static_cast<long>(at), node.begin() + static_cast<long>(end)}});
          at = end;
        }
        continue;
      }
      if (!joined.devices.empty() && joined.devices.size() + node.size() > size) {
        deviceSets.push_back(joined);
        joined.devices.clear();
      }
      joined.devices.insert(joined.devices.end(), node.begin(), node.end());
    }
    if (!joined.devices.empty())
      deviceSets.push_back(joined);
  }
  return deviceSets;
}

bool sameLayout(const Strategy &a, const Strategy &b) {
  auto sameMember = [](const step::StageDevice &m, const step::StageDevice &o) {
    return m.device == o.device && m.samples == o.samples && m.microBatchSize == o.microBatchSize;
  };
  auto sameStage = [&](const Stage &s, const Stage &o) {
    return s.unitBegin == o.unitBegin && s.unitEnd == o.unitEnd &&
           std::equal(s.members.begin(), s.members.end(), o.members.begin(), o.members.end(),
                      sameMember);
  };
  return std::equal(a.pipelines.begin(), a.pipelines.end(), b.pipelines.begin(), b.pipelines.end(),
                    [&](const Pipeline &p, const Pipeline &o) {
                      return std::equal(p.stages.begin(), p.stages.end(), o.stages.begin(),
                                        o.stages.end(), sameStage);
                    });
}

/// Returns the same order in atoms of another size.
std::vector<DeviceSet> splitDeviceSets(const SearchContext &context,
                                       const std::vector<DeviceSet> &deviceSets, size_t size) {
  std::vector<DeviceSet> pieces;
  for (const DeviceSet &deviceSet : deviceSets)
    for (uint32_t d : deviceSet.devices) {
      bool same = !pieces.empty() && pieces.back().devices.size() < size &&
                  context.model.deviceTypeOf(pieces.back().devices.front()) ==
                      context.model.deviceTypeOf(d) &&
                  (size > 4 ||
                   context.model.nodeOf(pieces.back().devices.front()) == context.model.nodeOf(d));
      if (!same)
        pieces.emplace_back();
      pieces.back().devices.push_back(d);
    }
  return pieces;
}

/// Returns the atoms in `count` groups of about equal speed, in order.
std::vector<DeviceSet> groupDeviceSets(const SearchContext &context,
                                       const std::vector<DeviceSet> &deviceSets, size_t count) {
  double total = 0, passed = 0;
  for (const DeviceSet &deviceSet : deviceSets)
    total += rateOf(context.model, deviceSet.devices);
  std::vector<DeviceSet> groups;
  for (size_t i = 0; i < deviceSets.size(); ++i) {
    size_t left = deviceSets.size() - i; // every group gets an atom
    bool next = groups.empty() ||
                (groups.size() < count && (passed >= total * static_cast<double>(groups.size()) /
                                                         static_cast<double>(count) * (1 - 1e-9) ||
                                           left <= count - groups.size()));
    if (next)
      groups.emplace_back();
    groups.back().devices.insert(groups.back().devices.end(), deviceSets[i].devices.begin(),
                                 deviceSets[i].devices.end());
    passed += rateOf(context.model, deviceSets[i].devices);
  }
  return groups;
}

/// An order of the devices in atoms, and the result of its partition.
struct SeedTask {
  std::vector<std::vector<DeviceSet>> deviceSets; ///< per pipeline
  std::vector<int64_t> samples;
  PartitionOptions options;
  std::vector<Candidate> found;
  size_t size = 1;           ///< devices of an atom
  std::vector<size_t> finer; ///< additional sizes to try if this one is promising

  double estimate() const { return found.empty() ? 1e300 : found.front().estimate; }
};

/// Makes the tasks, partitions them, and partitions the most promising ones again.
class SeedSearch {
public:
  SeedSearch(SearchContext &context, bool thorough) : context(context), thorough(thorough) {}

  std::vector<Candidate> run() {
    addAllTasks();
    solveFrom(0);
    const size_t coarse = tasks.size();
    if (thorough)
      addFinerTasks();
    solveFrom(coarse);
    solveAgain();
    return takeSolutions();
  }

  /// As run, for these sets of devices only.
  std::vector<Candidate> runFor(const std::vector<std::vector<uint32_t>> &sets) {
    addTasks(sets, effort.repairOrders);
    solveFrom(0);
    return takeSolutions();
  }

private:
  std::vector<Candidate> takeSolutions() {
    std::vector<Candidate> solutions;
    for (SeedTask &task : tasks)
      for (Candidate &candidate : task.found) {
        candidate.id = context.nextId();
        solutions.push_back(std::move(candidate));
      }
    return solutions;
  }

  void addAllTasks() {
    const uint32_t asked = context.options.pipelines;
    const size_t count = context.devices.size();
    std::set<uint32_t> sites;
    for (uint32_t d : context.devices)
      sites.insert(context.model.siteOf(d));
    if (asked <= 1)
      addTasks({context.devices}, effort.seedOrders);
    if (asked > 1)
      return addPipelines(asked);
    const auto siteCount = static_cast<uint32_t>(sites.size());
    std::set<uint32_t> numbers{2, 4, 8, siteCount};
    for (uint32_t copies : {3u, 5u, 16u, 32u})
      if (effort.everyCopies || (copies >= 16 && count / copies >= 16))
        numbers.insert(copies);
    if (effort.uniformStages)
      numbers.insert({2 * siteCount, 4 * siteCount, 8 * siteCount});
    for (uint32_t copies : numbers)
      if (asked == 0 && copies > 1 && copies <= effort.maxCopies && copies <= count &&
          copies <= context.problem.batch)
        addCopies(copies);
  }

  /// Adds the tasks with a number of pipelines that the user has chosen.
  void addPipelines(uint32_t count) {
    if (count > context.devices.size() || count > context.problem.batch)
      return;
    if (!addCopies(count))
      addTasks(dealBySpeed(context.model, context.devices, count), effort.copyOrders);
  }

  /// Adds the tasks with this number of equal pipelines. \returns whether there are any
  bool addCopies(uint32_t count) {
    bool found = false;
    for (Dealing dealing : {Dealing::WholeNodes, Dealing::BySite, Dealing::AcrossNodes})
      if (auto sets = dealCopies(context.model, context.devices, count, dealing); !sets.empty()) {
        addTasks(sets, effort.copyOrders);
        found = true;
      }
    return found;
  }

  /// Adds one pipeline per set.
  void addTasks(const std::vector<std::vector<uint32_t>> &sets, size_t maxOrders) {
    std::vector<std::vector<Block>> blocks;
    std::vector<double> rates;
    size_t largest = 0;
    for (const auto &set : sets) {
      blocks.push_back(makeBlocks(context, set));
      rates.push_back(rateOf(context.model, set));
      largest = std::max(largest, set.size());
    }
    std::vector<int64_t> samples = apportion(context.problem.batch, rates);
    if (std::find(samples.begin(), samples.end(), 0) != samples.end())
      return;
    const SearchEffort::Pieces pieces = effort.piecesOf(largest);
    const size_t rowCounts =
        effort.seedRows ? std::min(context.model.rows().size(), effort.seedRows) : 1;
    for (const auto &order : makeOrders(blocks.front(), maxOrders))
      for (size_t choice = 0; choice < pieces.deviceSets.size() * rowCounts; ++choice) {
        SeedTask task = makeTask(blocks, order, pieces.deviceSets[choice / rowCounts]);
        if (effort.seedRows)
          task.options.minRows = task.options.maxRows = choice % rowCounts;
        task.options.maxDevices = pieces.maxInStage;
        task.options.replicasOnNode = replicasOnNode(context.model, sets);
        task.samples = samples;
        task.finer = pieces.finer;
        tasks.push_back(std::move(task));
      }
    if (effort.uniformStages && context.options.stages == 0)
      addUniformTasks(sets, blocks, samples);
  }

  /// Adds tasks whose stages have equal numbers of devices, which compute about equally long.
  void addUniformTasks(const std::vector<std::vector<uint32_t>> &sets,
                       const std::vector<std::vector<Block>> &blocks,
                       const std::vector<int64_t> &samples) {
    for (const auto &order : makeOrders(blocks.front(), effort.copyOrders))
      for (size_t size : {4, 8, 16, 32}) {
        SeedTask task = makeTask(blocks, order, size);
        const size_t stages = task.deviceSets.front().size();
        if (stages < 2 || stages > static_cast<size_t>(context.model.units()))
          continue;
        task.options.maxDeviceSets = 1;
        task.options.mayLeaveOut = false;
        task.options.evenly = true;
        task.options.maxRows = 0;
        task.options.replicasOnNode = replicasOnNode(context.model, sets);
        task.samples = samples;
        tasks.push_back(std::move(task));
      }
  }

  SeedTask makeTask(const std::vector<std::vector<Block>> &blocks, const std::vector<size_t> &order,
                    size_t size) {
    SeedTask task;
    const uint32_t stages = context.options.stages;
    for (const auto &list : blocks) {
      std::vector<size_t> own(order);
      if (list.size() != blocks.front().size()) {
        own.resize(list.size());
        std::iota(own.begin(), own.end(), 0);
      }
      task.deviceSets.push_back(stages > 0
                                    ? groupDeviceSets(context, makeDeviceSets(list, own, 1), stages)
                                    : makeDeviceSets(list, own, size));
    }
    if (stages > 0) {
      task.options.maxDeviceSets = 1;
      task.options.mayLeaveOut = false;
    }
    task.options.split = split;
    task.options.replicas = static_cast<uint32_t>(blocks.size());
    task.size = size;
    return task;
  }

  void solveFrom(size_t begin) {
    context.parallel(tasks.size() - begin,
                     [&](size_t worker, size_t i) { solve(worker, begin + i); });
  }

  /// Partitions a task; one that was partitioned before, with other assumptions.
  void solve(size_t worker, size_t i) {
    SeedTask &task = tasks[i];
    if (task.found.empty()) {
      attempt(worker, task, kInFlight, kLateStart, effort.roughFirst);
      return;
    }
    for (double lateStart : {kLateStart, 0.0, 4 * kLateStart})
      for (double inFlight : {kInFlight, 0.7 * kInFlight, 0.5 * kInFlight})
        if (assumes(inFlight, lateStart))
          attempt(worker, task, inFlight, lateStart, false);
    if (context.fractionalModel && i < effort.seedsInParts)
      for (double inFlight : {kInFlight, 0.7 * kInFlight, 0.5 * kInFlight})
        if (effort.assumptions != SearchEffort::Assumptions::Few || inFlight == 0.7 * kInFlight)
          attempt(worker, task, inFlight, kLateStart, false, true);
  }

  /// Whether a task is partitioned again with these values.
  bool assumes(double inFlight, double lateStart) const {
    switch (effort.assumptions) {
    case SearchEffort::Assumptions::Few:
      return lateStart == kLateStart || (inFlight == 0.7 * kInFlight && lateStart == 0);
    case SearchEffort::Assumptions::Either:
      return lateStart == kLateStart || inFlight == kInFlight;
    case SearchEffort::Assumptions::Both:
      break;
    }
    return inFlight != kInFlight || lateStart != kLateStart; // those were used for the first
                                                             // partition
  }

  /// The simulation decides which estimate gives the better partition.
  void attempt(size_t worker, SeedTask &task, double inFlight, double lateStart, bool rough,
               bool parts = false) {
    PartitionOptions options = task.options;
    options.rough = rough;
    options.inFlight = inFlight;
    options.lateStart = lateStart;
    options.waits = true;
    cut(worker, task, options, parts);
    options.waits = false;
    if (!rough)
      cut(worker, task, options, parts);
  }

  void cut(size_t worker, SeedTask &task, const PartitionOptions &options, bool parts) {
    std::vector<Partition> partitions;
    const std::optional<Times> times = cutPipelines(
        context.partitioner(worker, parts ? context.fractionalModel->boundaryVariants() : 1), task,
        options, partitions);
    if (!times)
      return;
    Candidate candidate;
    candidate.estimate = times->inMemory;
    candidate.unlimitedEstimate = times->unlimited;
    candidate.inFlight = options.inFlight;
    // Some of equal pipelines have a sample more where the batch does not divide evenly. Equal
    // shards of nodes are summed lane by lane, unequal ones cross a card more than once.
    if (options.evenly)
      candidate.strategy.state = ShardSizing::Equal;
    for (size_t p = 0; p < partitions.size(); ++p)
      candidate.strategy.pipelines.push_back(
          makePipeline(parts ? *context.fractionalModel : context.model, task.deviceSets[p],
                       partitions[p], task.samples[p]));
    if (parts) {
      candidate.strategy.boundaryDenominator = context.fractionalModel->boundaryVariants();
      setSamplesPerVariant(candidate.strategy);
    }
    task.found.push_back(std::move(candidate));
  }

  struct Times {
    double unlimited = 0, inMemory = 0; ///< Partition::time and timeInMemory
    void include(const Partition &partition) {
      unlimited = std::max(unlimited, partition.time);
      inMemory = std::max(inMemory, partition.timeInMemory);
    }
  };
  /// Returns the times of the slowest pipeline; nullopt if a pipeline has no partition.
  std::optional<Times> cutPipelines(StagePartitioner &partitioner, const SeedTask &task,
                                    PartitionOptions options,
                                    std::vector<Partition> &partitions) const {
    Times slowest;
    for (size_t p = 0; p < task.deviceSets.size(); ++p) {
      if (repeatsFirst(task, p)) {
        partitions.push_back(partitions.front());
        continue;
      }
      options.samples = task.samples[p];
      partitions.push_back(partitioner.solve(task.deviceSets[p], options));
      if (partitions.back().stages.empty())
        return std::nullopt;
      slowest.include(partitions.back());
    }
    return slowest;
  }

  bool repeatsFirst(const SeedTask &task, size_t p) const {
    auto alike = [&](const DeviceSet &a, const DeviceSet &b) {
      return a.devices.size() == b.devices.size() &&
             context.model.deviceTypeOf(a.devices.front()) ==
                 context.model.deviceTypeOf(b.devices.front());
    };
    return p > 0 && task.samples[p] == task.samples[0] &&
           std::equal(task.deviceSets[p].begin(), task.deviceSets[p].end(),
                      task.deviceSets[0].begin(), task.deviceSets[0].end(), alike);
  }

  /// Also adds split nodes for the most promising tasks.
  void addFinerTasks() {
    std::vector<size_t> byPromise(tasks.size());
    std::iota(byPromise.begin(), byPromise.end(), 0);
    std::stable_sort(byPromise.begin(), byPromise.end(),
                     [&](size_t a, size_t b) { return tasks[a].estimate() < tasks[b].estimate(); });
    std::map<std::array<size_t, 2>, size_t> refined;
    std::map<size_t, double> bestOf; // by number of pipelines
    for (size_t i : byPromise) {
      if (tasks[i].finer.empty() || tasks[i].found.empty() ||
          refined[{tasks[i].deviceSets.size(), tasks[i].options.maxRows}]++ >= effort.seedsInPieces)
        continue;
      const double best =
          bestOf.emplace(tasks[i].deviceSets.size(), tasks[i].estimate()).first->second;
      if (tasks[i].estimate() > effort.piecesWithin * best)
        continue;
      for (size_t size : std::vector<size_t>(tasks[i].finer)) { // a copy, because adding tasks
                                                                // moves them
        SeedTask task;
        task.samples = tasks[i].samples;
        task.options = tasks[i].options;
        task.size = size;
        for (const auto &deviceSets : tasks[i].deviceSets)
          task.deviceSets.push_back(splitDeviceSets(context, deviceSets, size));
        tasks.push_back(std::move(task));
      }
    }
  }

  /// Partitions the most promising tasks again, of each atom size and number of pipelines: coarse
  /// ones never look better, but often are.
  void solveAgain() {
    std::stable_sort(tasks.begin(), tasks.end(), [](const SeedTask &a, const SeedTask &b) {
      return a.estimate() < b.estimate();
    });
    while (!tasks.empty() && tasks.back().found.empty())
      tasks.pop_back();
    std::map<std::array<size_t, 3>, size_t> taken;
    std::vector<size_t> again;
    for (size_t i = 0; i < tasks.size(); ++i)
      if (thorough && again.size() < effort.seedsAgain &&
          taken[{tasks[i].size, tasks[i].deviceSets.size(), tasks[i].options.maxRows}]++ <
              effort.seedsAgainOfKind)
        again.push_back(i);
    context.parallel(again.size(), [&](size_t worker, size_t i) { solve(worker, again[i]); });
  }

  SearchContext &context;
  const bool thorough;
  const SearchEffort effort = context.effort();
  const bool split = context.tables.canSplit() && context.options.splitBackward.value_or(true);
  std::vector<SeedTask> tasks;
};

/// Sorts by estimate and removes duplicates, because several tasks give the same strategy.
/// \param onePerEstimate  of equal estimates with equal numbers of stages, keeps the one with the
///                        most pipelines: these are divisions of the same plan
std::vector<Candidate> withoutRepeated(std::vector<Candidate> solutions, bool onePerEstimate) {
  std::stable_sort(solutions.begin(), solutions.end(),
                   [](const Candidate &a, const Candidate &b) { return a.estimate < b.estimate; });
  auto stages = [](const Candidate &candidate) {
    return candidate.strategy.pipelines.front().stages.size();
  };
  std::vector<Candidate> unlike;
  for (Candidate &candidate : solutions) {
    bool known = false;
    for (size_t i = unlike.size(); i > 0 && !known; --i) {
      Candidate &other = unlike[i - 1];
      if (other.estimate != candidate.estimate)
        break;
      known = sameLayout(other.strategy, candidate.strategy);
      if (known || !onePerEstimate || stages(other) != stages(candidate))
        continue;
      known = true;
      if (candidate.strategy.pipelines.size() > other.strategy.pipelines.size())
        std::swap(other, candidate);
    }
    if (!known)
      unlike.push_back(std::move(candidate));
  }
  return unlike;
}

/// Reorders seeds so that every kind of plan is early: the best of every kind, then the second
/// best, ...
std::vector<Candidate> inTurn(std::vector<Candidate> solutions) {
  std::map<std::pair<size_t, size_t>, size_t> rank;
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < solutions.size(); ++i) {
    size_t stages = solutions[i].strategy.pipelines.front().stages.size();
    size_t place = rank[{solutions[i].strategy.pipelines.size(), stages}]++;
    order.push_back({solutions[i].estimate * (1 + 0.03 * static_cast<double>(place)), i});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Candidate> sorted;
  for (auto &[estimate, i] : order)
    sorted.push_back(std::move(solutions[i]));
  return sorted;
}

} // namespace

std::vector<Candidate> zorse::planning::makeInitialSolutions(SearchContext &context,
                                                             bool thorough) {
  return inTurn(
      withoutRepeated(SeedSearch(context, thorough).run(), context.effort().onePerEstimate));
}

std::vector<Candidate>
zorse::planning::solutionsFor(SearchContext &context,
                              const std::vector<std::vector<uint32_t>> &sets) {
  return inTurn(withoutRepeated(SeedSearch(context, /*thorough=*/false).runFor(sets),
                                /*onePerEstimate=*/true));
}

std::optional<Candidate> zorse::planning::proportionalPartition(const SearchContext &context,
                                                                size_t stages, size_t loops,
                                                                size_t rows) {
  const StageModel &model = context.model;
  const std::vector<Block> blocks = makeBlocks(context, context.devices);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<DeviceSet> groups =
      groupDeviceSets(context, makeDeviceSets(blocks, order, 1), stages);
  if (groups.size() != stages || static_cast<size_t>(model.units()) < stages * loops)
    return std::nullopt;
  std::vector<double> passed;
  double total = 0;
  for (const DeviceSet &group : groups) {
    for (uint32_t d : group.devices)
      total += 1 / model.minPerSample(model.deviceTypeOf(d), 0, model.units());
    passed.push_back(total);
  }
  Candidate candidate;
  Pipeline pipeline{context.problem.batch, {}};
  for (size_t s = 0; s < stages * loops; ++s) {
    const int32_t begin = s == 0 ? 0 : pipeline.stages.back().unitEnd,
                  left = static_cast<int32_t>(stages * loops - 1 - s);
    const size_t lap = s / stages;
    const double part = (static_cast<double>(lap) + passed[s % stages] / total) /
                        static_cast<double>(loops);
    const auto end = static_cast<int32_t>(
        std::clamp<long>(std::lround(model.units() * part), begin + 1, model.units() - left));
    pipeline.stages.push_back(
        makeStage(model, groups[s % stages].devices, begin, end, pipeline.samples, rows));
  }
  candidate.strategy.pipelines.push_back(std::move(pipeline));
  return candidate;
}
