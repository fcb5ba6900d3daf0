// Readers, contributors and owners of every state group, and their buffers.

#include "PlanLowering.h"
#include "Tables.h"

#include "ParameterRuns.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Summary/FlatGroups.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::step;

namespace {

struct ShardRange {
  uint32_t device;
  int64_t begin, end;
};

using DeviceWeights = std::vector<std::pair<uint32_t, double>>;

/// Divides groups among devices in proportion to weights.
class ShardSplitter {
public:
  ShardSplitter(const bundle::ModelSummary &summary, ReductionLevels &levels)
      : summary(summary), levels(levels) {}

  std::vector<ShardRange> split(uint32_t group, const DeviceWeights &given) {
    const DeviceWeights weights = inOwnerOrder(given);
    const auto &info = summary.groups(static_cast<int>(group));
    if (!zorse::updatesBlocks(summary, info))
      return splitElements(info, weights);
    std::vector<ShardRange> blocks = indivisible(group);
    return blocks.empty() ? snapped(group, splitElements(info, weights))
                          : splitBlocks(group, std::move(blocks), weights);
  }

private:
  /// Returns extents in multiples of 512 bytes, so that an owner's bytes are aligned for every
  /// transport.
  static std::vector<ShardRange> splitElements(const bundle::FlatGroupInfo &info,
                                               const DeviceWeights &weights) {
    const int64_t align = static_cast<int64_t>(kStateAlignment / elementBytes(info.type()));
    std::vector<double> w;
    for (auto &[device, weight] : weights)
      w.push_back(weight);
    std::vector<int64_t> parts = apportion((info.elements() + align - 1) / align, w);
    std::vector<ShardRange> extents;
    int64_t begin = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      int64_t end = std::min(begin + parts[i] * align, info.elements());
      if (begin < end)
        extents.push_back({weights[i].first, begin, end});
      begin = end;
    }
    return extents;
  }

  /// Returns the parts of a group that one device owns as a whole; none if there are more than
  /// kMany, between which borders are everywhere.
  std::vector<ShardRange> indivisible(uint32_t group) const {
    constexpr size_t kMany = 64;
    std::vector<ShardRange> parts;
    const int64_t elements = summary.groups(static_cast<int>(group)).elements();
    for (int64_t end = elements, begin = 0; end > 0; end = begin) {
      begin = zorse::ownerBorder(summary, group, end - 1);
      parts.push_back({0, begin, end});
      if (parts.size() > kMany)
        return {};
    }
    return parts;
  }

  /// Moves ends to borders before them.
  std::vector<ShardRange> snapped(uint32_t group, const std::vector<ShardRange> &wanted) const {
    std::vector<ShardRange> extents;
    int64_t begin = 0;
    for (const ShardRange &range : wanted) {
      const int64_t end = zorse::ownerBorder(summary, group, range.end);
      if (begin < end)
        extents.push_back({range.device, begin, end});
      begin = std::max(begin, end);
    }
    return extents;
  }

  /// Gives every part, the largest first, to the device that is farthest behind its share of all
  /// of them so far: groups of a unit have few, so their shares even out over units.
  std::vector<ShardRange> splitBlocks(uint32_t group, std::vector<ShardRange> extents,
                                      const DeviceWeights &weights) {
    const int64_t elements = summary.groups(static_cast<int>(group)).elements();
    std::stable_sort(extents.begin(), extents.end(), [](const ShardRange &a, const ShardRange &b) {
      return a.end - a.begin > b.end - b.begin;
    });
    double sum = 0;
    for (auto [device, weight] : weights)
      sum += weight;
    for (auto [device, weight] : weights)
      behind[device] += sum > 0 ? weight / sum * static_cast<double>(elements) : 0;
    for (ShardRange &extent : extents) {
      extent.device = farthestBehind(weights);
      behind[extent.device] -= static_cast<double>(extent.end - extent.begin);
    }
    std::sort(extents.begin(), extents.end(),
              [](const ShardRange &a, const ShardRange &b) { return a.begin < b.begin; });
    return joined(extents);
  }

  /// Joins adjacent ranges of one device.
  static std::vector<ShardRange> joined(const std::vector<ShardRange> &ranges) {
    std::vector<ShardRange> out;
    for (const ShardRange &range : ranges)
      if (!out.empty() && out.back().device == range.device && out.back().end == range.begin)
        out.back().end = range.end;
      else
        out.push_back(range);
    return out;
  }

  /// A device without weight gets nothing, unless none has any.
  uint32_t farthestBehind(const DeviceWeights &weights) {
    auto key = [&](const std::pair<uint32_t, double> &one) {
      return std::pair(one.second > 0, behind[one.first]);
    };
    return std::max_element(weights.begin(), weights.end(),
                            [&](const auto &a, const auto &b) { return key(a) < key(b); })
        ->first;
  }

  /// Sorts weights such that what a device holds at any level of a reduction is one run.
  DeviceWeights inOwnerOrder(const DeviceWeights &given) {
    std::vector<uint32_t> devices;
    for (auto [device, weight] : given)
      devices.push_back(device);
    DeviceWeights weights;
    for (uint32_t device : levels.ownerOrder(devices))
      weights.push_back(*std::find_if(given.begin(), given.end(),
                                      [&](const auto &one) { return one.first == device; }));
    return weights;
  }

  const bundle::ModelSummary &summary;
  ReductionLevels &levels;
  std::map<uint32_t, double> behind; ///< by device: elements
};

/// Default owners of a group of which readers have different elements. Elements with equal readers
/// are split among these, so gathers and reductions move no element to a device that does not use
/// it. Blocks of 512 bytes that several sets of readers share belong to a reader that has all of
/// them, if there is one.
class OwnersByReaders {
public:
  OwnersByReaders(PlanLowering &x, uint32_t group)
      : x(x), group(group), readers(x.readersOf[group]),
        elements(x.summary.groups(static_cast<int>(group)).elements()),
        align(static_cast<int64_t>(
            kStateAlignment / elementBytes(x.summary.groups(static_cast<int>(group)).type()))) {}

  std::vector<ShardRange> run() {
    findBlocks();
    std::vector<ShardRange> extents;
    for (const auto &[holders, ranges] : rangesOf) {
      std::vector<double> weights;
      for (uint32_t d : holders)
        weights.push_back(x.plan.defaultSharding == ShardSizing::Equal
                              ? 1.0
                              : x.findGroupState(d, group)->weight);
      int64_t blocks = 0;
      for (auto [begin, end] : ranges)
        blocks += (end - begin + align - 1) / align;
      const std::vector<int64_t> parts = apportion(blocks, weights);
      auto range = ranges.begin();
      int64_t from = range->first;
      for (size_t i = 0; i < parts.size(); ++i)
        for (int64_t left = parts[i] * align; left > 0;) {
          const int64_t end = std::min(from + left, range->second);
          extents.push_back({holders[i], from, end});
          left -= (end - from + align - 1) / align * align;
          from = end;
          if (end < range->second)
            continue;
          ++range;
          if (range != ranges.end())
            from = range->first;
        }
    }
    std::sort(extents.begin(), extents.end(),
              [](const ShardRange &a, const ShardRange &b) { return a.begin < b.begin; });
    return extents;
  }

private:
  void findBlocks() {
    const std::vector<int64_t> cuts = x.readCuts(group);
    for (int64_t begin = 0, end = 0; begin < elements; begin = end) {
      const auto cut = std::upper_bound(cuts.begin(), cuts.end(), begin);
      end = cut == cuts.end() ? elements : *cut / align * align;
      if (end == begin)
        end = std::min(begin + align, elements);
      rangesOf[holdersOf(begin, end)].push_back({begin, end});
    }
  }

  /// Returns the readers of all elements of a range; if there are none, the first reader of some.
  std::vector<uint32_t> holdersOf(int64_t begin, int64_t end) {
    std::vector<uint32_t> holders;
    uint32_t some = readers.front();
    for (auto d = readers.rbegin(); d != readers.rend(); ++d) {
      const Compact &read = x.findGroupState(*d, group)->read;
      if (read.place(begin, end) >= 0)
        holders.push_back(*d);
      else if (read.cuts({0, begin, end}))
        some = *d;
    }
    std::reverse(holders.begin(), holders.end());
    return holders.empty() ? std::vector<uint32_t>{some} : holders;
  }

  PlanLowering &x;
  const uint32_t group;
  const std::vector<uint32_t> &readers;
  const int64_t elements, align;
  std::map<std::vector<uint32_t>, std::vector<std::pair<int64_t, int64_t>>> rangesOf; ///< by
                                                                                      ///< readers
};

std::vector<ShardRange> ownersOfGroup(PlanLowering &x, uint32_t group, const GroupOwners *listed,
                                      ShardSplitter &splitter) {
  const auto &info = x.summary.groups(group);
  DeviceWeights weights;
  if (listed) {
    std::vector<ShardRange> extents;
    for (const Owner &owner : listed->owners) {
      if (owner.begin < 0)
        weights.push_back({owner.device, owner.fraction});
      else if (owner.begin < owner.end)
        extents.push_back({owner.device, owner.begin, owner.end});
    }
    std::sort(extents.begin(), extents.end(),
              [](const ShardRange &a, const ShardRange &b) { return a.begin < b.begin; });
    return weights.empty() ? extents : splitter.split(group, weights);
  }

  const std::vector<uint32_t> &readers = x.readersOf[group];
  if (x.plan.defaultSharding == ShardSizing::FirstOnly) {
    // The first cell: smallest unit, then smallest sample.
    uint32_t best = kNone;
    auto key = [&](uint32_t c) {
      return std::pair(x.plan.cells[c].unitBegin, x.plan.cells[c].sampleBegin);
    };
    uint32_t unit = info.units(0);
    for (uint32_t device : readers)
      for (uint32_t c : x.cellsOf[device])
        if (x.plan.cells[c].unitBegin <= static_cast<int32_t>(unit) &&
            static_cast<int32_t>(unit) < x.plan.cells[c].unitEnd &&
            (best == kNone || key(c) < key(best)))
          best = c;
    return {{x.plan.cells[best].device, 0, info.elements()}};
  }
  if (!x.readCuts(group).empty())
    return OwnersByReaders(x, group).run();
  for (uint32_t device : readers)
    weights.push_back({device, x.plan.defaultSharding == ShardSizing::Equal
                                   ? 1.0
                                   : x.findGroupState(device, group)->weight});
  return splitter.split(group, weights);
}

/// Adds the buffers that units of a device read, and that its shards are gathered from: one buffer
/// for all windows if it is the home, else one per window.
void addUnshardedParams(PlanLowering &x, uint32_t device, GroupState &groupState, uint64_t bytes) {
  groupState.firstUnshardedParam = static_cast<uint32_t>(x.unshardedParams.size());
  const MemoryCategory category = groupState.readsPersistentBuffer ? MemoryCategory::State
                                  : x.usesOf[groupState.group].empty()
                                      ? MemoryCategory::Gathered
                                      : MemoryCategory::UpdateStaging;
  for (uint32_t w = x.firstUnshardInterval[groupState.group];
       w < x.firstUnshardInterval[groupState.group + 1]; ++w) {
    const std::vector<uint32_t> &readers = x.unshardIntervals[w].readers;
    if (groupState.readsPersistentBuffer && w > x.firstUnshardInterval[groupState.group])
      x.unshardedParams.push_back(x.unshardedParams.back());
    else if (groupState.readsPersistentBuffer || groupState.owns() ||
             std::binary_search(readers.begin(), readers.end(), device))
      x.unshardedParams.push_back(
          x.addBuffer(device, bytes, category, /*persistent=*/groupState.readsPersistentBuffer));
    else
      x.unshardedParams.push_back(kNone);
  }
}

/// Elements of groups that units of a device read.
class ReadRuns {
public:
  /// Adds what a unit reads. All units of a device that read parts of a group read equal parts.
  void add(const bundle::ModelSummary &summary, int32_t u, uint32_t group) {
    const bundle::UnitInfo &unit = summary.units(u);
    if (unit.parts().empty() || !hasParts(summary, unit, group))
      return;
    Ranges &ranges = rangesOf[group];
    for (int i = 0; i < unit.parameters_size(); ++i) {
      const auto &parameter = summary.parameters(static_cast<int>(unit.parameters(i)));
      if (parameter.group() != group)
        continue;
      const auto argument = static_cast<uint32_t>(i); // with the padding behind the parameter
      const auto align = static_cast<int64_t>(kStateAlignment / elementBytes(parameter.type()));
      const Compact elements = bundle::parameterRuns(summary, unit, argument);
      const int64_t end = parameter.offset() + zorse::elementsOf(parameter);
      for (const Compact::Run &run : elements.runs())
        ranges.push_back({run.begin, run.end == end ? (end + align - 1) / align * align : run.end});
    }
  }

  Compact of(uint32_t group, int64_t elements) {
    const auto known = rangesOf.find(group);
    Ranges ranges = known == rangesOf.end() ? Ranges{{0, elements}} : known->second, joined;
    std::sort(ranges.begin(), ranges.end());
    for (auto [begin, end] : ranges)
      if (!joined.empty() && begin <= joined.back().second)
        joined.back().second = std::max(joined.back().second, end);
      else
        joined.push_back({begin, end});
    Compact runs;
    for (auto [begin, end] : joined)
      runs.add(begin, end);
    return runs;
  }

private:
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;

  static bool hasParts(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit,
                       uint32_t group) {
    return std::any_of(unit.parts().begin(), unit.parts().end(), [&](const auto &part) {
      return summary
                 .parameters(static_cast<int>(unit.parameters(static_cast<int>(part.argument()))))
                 .group() == group;
    });
  }

  std::map<uint32_t, Ranges> rangesOf;
};

void findReaders(PlanLowering &x) {
  const uint32_t devices = static_cast<uint32_t>(x.plan.devices.size());
  size_t chunk = 0;
  for (uint32_t d = 0; d < devices; ++d) {
    std::map<uint32_t, GroupState> states;
    ReadRuns runs;
    for (; chunk < x.chunks.size() && x.chunks[chunk].device == d; ++chunk) {
      const LoweringTables &own = x.tablesOf(x.chunks[chunk]);
      for (int32_t u = x.chunks[chunk].unitBegin; u < x.chunks[chunk].unitEnd; ++u)
        for (uint32_t group : own.groupsOf[static_cast<size_t>(u)]) {
          GroupState &state = states[group];
          state.weight += static_cast<double>(x.chunks[chunk].rows);
          state.contributes |= x.chunks[chunk].group < 0 || own.contributes(u, group);
          runs.add(own.summary, u, group);
        }
    }
    for (auto &[group, state] : states) {
      state.group = group;
      state.reads = true;
      state.read = runs.of(group, x.summary.groups(static_cast<int>(group)).elements());
      x.groupStates[d].push_back(state);
    }
  }
  for (auto [like, replica] : x.replicas)
    x.groupStates[replica] = x.groupStates[like];
  for (uint32_t d = 0; d < devices; ++d)
    for (const GroupState &groupState : x.groupStates[d]) {
      x.readersOf[groupState.group].push_back(d);
      if (groupState.contributes)
        x.contributorsOf[groupState.group].push_back(d);
    }
}

/// Decides whether owned elements are among those that units read: if these contain all of them, at
/// aligned positions.
void placeOwned(const PlanLowering &x, GroupState &state) {
  const auto &info = x.summary.groups(static_cast<int>(state.group));
  const auto align = static_cast<int64_t>(kStateAlignment / elementBytes(info.type()));
  if (!state.reads || state.readsAll(info.elements()))
    return;
  for (const Compact::Run &run : state.owned.runs())
    if (const int64_t place = state.read.place(run.begin, run.end); place < 0 || place % align) {
      state.ownedApart = (state.read.elements() + align - 1) / align * align;
      return;
    }
}

void assignOwners(PlanLowering &x) {
  const uint32_t groups = static_cast<uint32_t>(x.summary.groups_size());
  std::vector<const GroupOwners *> listed(groups, nullptr);
  for (const GroupOwners &instruction : x.plan.owners)
    listed[instruction.group] = &instruction;
  ShardSplitter splitter(x.summary, x.tables.reductions);
  for (uint32_t g = 0; g < groups; ++g) {
    const auto &info = x.summary.groups(g);
    if (!info.trainable() || x.readersOf[g].empty() || info.elements() == 0)
      continue;
    std::vector<ShardRange> extents = ownersOfGroup(x, g, listed[g], splitter);
    for (const ShardRange &extent : extents) {
      GroupState *groupState = x.findGroupState(extent.device, g);
      if (!groupState) {
        auto &list = x.groupStates[extent.device];
        GroupState fresh;
        fresh.group = g;
        groupState = &*list.insert(
            std::lower_bound(list.begin(), list.end(), g,
                             [](const GroupState &h, uint32_t group) { return h.group < group; }),
            fresh);
      }
      if (!groupState->owns())
        x.ownersOf[g].push_back(extent.device);
      groupState->owned.add(extent.begin, extent.end);
    }
    for (uint32_t d : x.ownersOf[g])
      placeOwned(x, *x.findGroupState(d, g));
  }
}

/// Adds the buffers of a group on one device, and registers the persistent ones.
struct HoldingLayout {
  PlanLowering &x;
  const uint32_t device;
  GroupState &groupState;
  const bundle::FlatGroupInfo &info;
  const uint64_t size = elementBytes(info.type());
  const bool keeps = groupState.owns() || !info.trainable();
  const Compact kept = keptOf(groupState, info);

  static Compact keptOf(const GroupState &groupState, const bundle::FlatGroupInfo &info) {
    if (info.trainable())
      return groupState.owned;
    if (groupState.reads)
      return groupState.read;
    Compact all;
    all.add(0, info.elements());
    return all;
  }
  uint64_t bytes(int64_t elements) const { return static_cast<uint64_t>(elements) * size; }
  uint64_t keptBytes() const { return bytes(kept.elements()); }

  void run() {
    groupState.at = x.plan.placementOf(device, groupState.group);
    // If an owner of a part reads the group and has no other home for it, the whole buffer is
    // persistent, and the owned elements stay inside it. This does not apply if the other elements
    // are gathered by phase.
    groupState.readsPersistentBuffer = keeps && !x.hasMaster(groupState.group) &&
                                       groupState.at.parameters == MemoryTier::Device &&
                                       groupState.ownedApart < 0 &&
                                       (x.usesOf[groupState.group].empty() || !groupState.reads ||
                                        kept.elements() == groupState.read.elements());
    addUnshardedParams(x, device, groupState,
                       static_cast<uint64_t>(groupState.imageElements()) *
                           elementBytes(x.computeType(groupState.group)));
    if (info.trainable())
      groupState.gradients = x.addBuffer(
          device, groupState.contributes ? bytes(groupState.read.elements()) : keptBytes(),
          MemoryCategory::Gradients);
    if (keeps)
      keepState();
    if (keeps && info.trainable())
      reduceGradients();
  }

  void keepState() {
    groupState.persistentShard = groupState.readsPersistentBuffer
                                     ? x.unshardedParams[groupState.firstUnshardedParam]
                                     : keepApart(groupState.at.parameters);
    for (const Compact::Run &run : kept.runs())
      keep(groupState.persistentShard,
           groupState.readsPersistentBuffer ? groupState.position(run) : run.place,
           Value::parameters(groupState.group, {run.begin, run.end}));
    for (uint32_t m = 0; m < optimizerStates(x.summary, info); ++m) {
      const zorse::StateLayout &layout = x.stateLayout(groupState.group, m);
      const uint64_t bytes = elementBytes(layout.type());
      int64_t entries = 0;
      for (const Compact::Run &run : kept.runs())
        entries += layout.begin(run.end) - layout.begin(run.begin);
      groupState.moments[m] = x.addBuffer(device, static_cast<uint64_t>(entries) * bytes,
                                          MemoryCategory::State, /*persistent=*/true,
                                          groupState.at.moments);
      int64_t place = 0;
      for (const Compact::Run &run : kept.runs()) {
        const Elements range{layout.begin(run.begin), layout.begin(run.end)};
        x.graph.state.push_back(
            {elementRegion(groupState.moments[m], place, range.end - range.begin, bytes),
             Value::moments(groupState.group, m, range), layout.type()});
        place += range.end - range.begin;
      }
    }
  }

  uint32_t keepApart(MemoryTier tier) {
    return x.addBuffer(device, keptBytes(), MemoryCategory::State, /*persistent=*/true, tier);
  }

  void keep(uint32_t buffer, int64_t place, Value value) {
    x.graph.state.push_back(
        {elementRegion(buffer, place, value.end - value.begin, size), value, info.type()});
  }

  void reduceGradients() {
    // A gradient buffer that is allocated by phase is freed as a whole, so the reduced part needs a
    // separate buffer.
    const bool alone = x.contributorsOf[groupState.group].size() == 1 &&
                       x.ownersOf[groupState.group].size() == 1;
    const bool inside = groupState.ownedApart < 0 && (x.usesOf[groupState.group].empty() || alone);
    groupState.reduced = inside || !groupState.contributes
                             ? groupState.gradients
                             : x.addBuffer(device, keptBytes(), MemoryCategory::Gradients);
    if (groupState.at.gradients == MemoryTier::Host)
      groupState.hostGradients = x.addBuffer(device, keptBytes(), MemoryCategory::Staging,
                                             /*persistent=*/false, MemoryTier::Host);
  }
};

} // namespace

void zorse::step::findOwners(PlanLowering &x) {
  findReaders(x);
  assignOwners(x);
}

void zorse::step::layoutState(PlanLowering &x) {
  findOwners(x);
  findUnshardIntervals(x);
  const uint64_t stepBytes = zorse::optimizerStepBytes(x.summary);
  auto hasLoss = [&](uint32_t c) { return x.hasLoss(x.plan.cells[c]); };
  // Buffers and persistent state, device by device in group order.
  for (uint32_t d = 0; d < static_cast<uint32_t>(x.plan.devices.size()); ++d) {
    Span &stateSpan = x.graph.devices[d].state;
    stateSpan.begin = stateSpan.end = static_cast<uint32_t>(x.graph.state.size());
    if (x.groupStates[d].empty() && x.cellsOf[d].empty())
      continue;
    x.scalars[d] = x.addBuffer(d, kScalarsBlock, MemoryCategory::Workspace, /*persistent=*/true);
    for (GroupState &groupState : x.groupStates[d]) {
      const bundle::FlatGroupInfo &info = x.summary.groups(groupState.group);
      HoldingLayout{x, d, groupState, info}.run();
      if (info.trainable() && groupState.owns() && x.optimizerStep[d] == kNone)
        x.optimizerStep[d] = x.addBuffer(d, stepBytes, MemoryCategory::State, true);
    }
    // Devices that scale loss gradients also keep the scale.
    if (x.optimizerStep[d] == kNone && zorse::scalesLoss(x.summary) &&
        std::any_of(x.cellsOf[d].begin(), x.cellsOf[d].end(), hasLoss))
      x.optimizerStep[d] = x.addBuffer(d, stepBytes, MemoryCategory::State, true);
    if (x.optimizerStep[d] != kNone)
      x.graph.state.push_back(
          {region(x.optimizerStep[d], 0, stepBytes), Value::optimizerStep(), bundle::F64});
    stateSpan.end = static_cast<uint32_t>(x.graph.state.size());
  }
}
