// Who reads and owns state, and what stays in memory for the whole step.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {} // namespace

void QuickSimulation::layOutState(const Layout &layout) {
  // Sets of groups with the same readers. Nearly always: one per stage.
  shares.clear();
  for (auto &list : stagesOfGroup)
    list.clear();
  std::vector<uint32_t> seen;
  for (uint32_t s = 0; s < stages.size(); ++s) {
    tables.groupsOf(stages[s].unitBegin, stages[s].unitEnd, scratchGroups);
    for (uint32_t g : scratchGroups)
      stagesOfGroup[g].push_back(s);
  }
  std::vector<const std::vector<uint32_t> *> keys;
  auto unitsOf = [&](uint32_t g, uint32_t s) {
    const auto &units = tables.groups()[g].units;
    return std::count_if(units.begin(), units.end(),
                         [&](uint32_t u) { return static_cast<int32_t>(u) >= stages[s].unitBegin && static_cast<int32_t>(u) < stages[s].unitEnd; });
  };
  for (uint32_t g = 0; g < tables.groups().size(); ++g) {
    sharesOfGroup[g] = kNone;
    if (stagesOfGroup[g].empty())
      continue;
    // Weights differ only where a group has several units in a stage; compare what decides them.
    uint32_t found = kNone;
    size_t from = keys.size() > 8 ? keys.size() - 8 : 0; // groups of a stage come one after the other
    for (size_t i = keys.size(); i-- > from && found == kNone;) {
      uint32_t other = shares[i].groups.front();
      bool same = *keys[i] == stagesOfGroup[g] && tables.groups()[other].trainable == tables.groups()[g].trainable;
      for (uint32_t s : stagesOfGroup[g])
        same = same && (stagesOfGroup[g].size() == 1 || unitsOf(other, s) == unitsOf(g, s));
      if (same)
        found = static_cast<uint32_t>(i);
    }
    if (found == kNone) {
      found = static_cast<uint32_t>(shares.size());
      keys.push_back(&stagesOfGroup[g]);
      OwnerShares set;
      std::vector<std::pair<uint32_t, double>> weights;
      for (uint32_t s : stagesOfGroup[g]) {
        double units = static_cast<double>(unitsOf(g, s));
        auto weigh = [&](uint32_t device, int64_t samples) {
          weights.push_back({device, units * static_cast<double>(samples)});
          twins.each(device, [&](uint32_t twin) { weights.push_back({twin, weights.back().second}); });
        };
        if (layout.parts == 1) {
          for (const Member &member : stages[s].stage->members)
            if (member.samples > 0)
              weigh(member.device, member.samples);
        } else {
          for (uint32_t c = stages[s].cellBegin; c < stages[s].cellEnd; ++c)
            weigh(cells[c].device, cells[c].rows());
        }
      }
      std::sort(weights.begin(), weights.end());
      for (auto &[device, weight] : weights) {
        if (!set.readers.empty() && set.readers.back() == device) {
          set.weights.back() += weight;
          continue;
        }
        set.readers.push_back(device);
        set.weights.push_back(weight);
      }
      if (layout.state != StateRule::Proportional)
        std::fill(set.weights.begin(), set.weights.end(), 1.0);
      shares.push_back(std::move(set));
    }
    shares[found].groups.push_back(g);
    sharesOfGroup[g] = found;
  }
}

void QuickSimulation::staticMemory(const Layout &layout) {
  (void)layout;
  std::fill(resident.begin(), resident.end(), 0);
  std::fill(accumulators.begin(), accumulators.end(), 0);
  for (const OwnerShares &set : shares)
    for (uint32_t d : set.readers)
      if (resident[d] == 0)
        resident[d] = kScalarsBlock + 64;
  for (const StageInfo &info : stages)
    for (const Member &member : info.stage->members)
      if (member.samples > 0) {
        uint64_t &held = alive[member.device]; // for the moment: the workspace
        held = std::max(held, tables.workspace(info.unitBegin, info.unitEnd, std::min(member.rows, member.samples), split));
      }
  for (uint32_t d : devicesUsed) {
    resident[d] = std::max<uint64_t>(resident[d], kScalarsBlock) + alive[d];
    alive[d] = 0;
  }
  for (const OwnerShares &set : shares)
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      uint64_t elements = static_cast<uint64_t>(group.elements);
      for (uint32_t d : set.readers) {
        resident[d] += alignRegion(elements * group.computeSize);
        accumulators[d] += group.trainable ? alignRegion(elements * group.elementSize) : 0;
      }
    }
  for (auto [like, twin] : twins.devices())
    resident[twin] = resident[like]; // with its workspace
}

/// Peak of a device's activations in the order of its tasks, transfers aside.
uint64_t QuickSimulation::orderedPeak(uint32_t device) const {
  uint64_t held = 0, most = 0;
  auto run = [&](uint32_t task) {
    const CellBytes &bytes = kinds[kindOf[task & kCellMask]].bytes;
    switch (task & ~kCellMask) {
    case kForwardTask:
      held += bytes.takenByReceive + bytes.takenByForward;
      most = std::max(most, held);
      held -= std::min(held, bytes.freedByForward + bytes.freedBySend);
      break;
    case kBackwardTask:
      held += bytes.takenByGradientReceive + bytes.takenByBackward;
      most = std::max(most, held);
      held -= std::min(held, bytes.freedByBackward + bytes.freedByGradientSend);
      break;
    default:
      held -= std::min(held, bytes.freedByWeights);
    }
  };
  if (chained) {
    for (uint32_t i = chainBegin[device]; i < chainBegin[device + 1]; ++i)
      run(chain[i]);
    return most;
  }
  for (uint32_t i = cellsOfBegin[device]; i < cellsOfBegin[device + 1]; ++i)
    run(kForwardTask | cellsOf[i]);
  for (uint32_t i = cellsOfBegin[device]; i < cellsOfBegin[device + 1]; ++i)
    run(kBackwardTask | cellsOf[i]);
  return most;
}

/// StateRule::FreeMemory: moments and masters go where most memory is left, so that the least that any owner has left is greatest.
void QuickSimulation::weighOwners(const Layout &layout) {
  if (layout.state != StateRule::FreeMemory)
    return;
  std::vector<double> left(problem.cluster.devices.size(), 0);
  bool limited = true;
  for (uint32_t d : devicesUsed) {
    const ClusterDevice &device = problem.cluster.devices[d];
    limited &= device.capacity() > 0;
    left[d] = static_cast<double>(device.capacity()) - static_cast<double>(resident[d] + accumulators[d] + orderedPeak(d));
  }
  for (auto [like, twin] : twins.devices())
    left[twin] = left[like];
  if (!limited)
    return;
  std::vector<double> sorted;
  for (OwnerShares &set : shares) {
    double bytes = 0;
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      if (group.trainable)
        bytes += static_cast<double>(group.elements) * static_cast<double>(group.elementSize) *
                 (tables.moments() + (group.computeSize != group.elementSize ? 1 : 0));
    }
    if (bytes <= 0 || set.readers.size() < 2)
      continue;
    sorted.clear();
    for (uint32_t d : set.readers)
      sorted.push_back(left[d]);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double sum = 0, level = 0; // all owners end at `level` or are below it and own nothing
    for (size_t i = 0; i < sorted.size(); ++i) {
      sum += sorted[i];
      level = (sum - bytes) / static_cast<double>(i + 1);
      if (i + 1 == sorted.size() || level >= sorted[i + 1])
        break;
    }
    for (size_t i = 0; i < set.readers.size(); ++i) {
      double owned = std::max(0.0, left[set.readers[i]] - level);
      set.weights[i] = owned / bytes;
      left[set.readers[i]] -= owned;
    }
  }
}

const std::vector<sim::Piece> &QuickSimulation::pieces(const OwnerShares &set, uint32_t group) {
  // As the expansion: whole multiples of 512 bytes in proportion.
  const GroupTable &table = tables.groups()[group];
  int64_t align = static_cast<int64_t>(kStateAlignment / table.elementSize);
  int64_t blocks = (table.elements + align - 1) / align;
  pieceList.clear();
  std::vector<int64_t> parts = step::splitInProportion(blocks, set.weights);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t end = std::min(begin + parts[i] * align, table.elements);
    if (begin < end)
      pieceList.push_back({set.readers[i], static_cast<double>(end - begin)});
    begin = end;
  }
  return pieceList;
}

/// Moments and masters.
void QuickSimulation::ownedMemory() {
  std::fill(owned.begin(), owned.end(), 0);
  for (const OwnerShares &set : shares) {
    int64_t elements = -1;
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      if (!group.trainable)
        continue;
      uint64_t copies = tables.moments() + (group.computeSize != group.elementSize ? 1 : 0);
      if (group.elements != elements) // most groups of a stage are alike
        pieces(set, g);
      elements = group.elements;
      for (const sim::Piece &piece : pieceList)
        owned[piece.device] += copies * alignRegion(static_cast<uint64_t>(piece.bytes) * group.elementSize);
    }
  }
}
