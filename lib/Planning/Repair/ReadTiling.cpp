#include "ReadTiling.h"

#include "../Layout/AssignStageCells.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

using step::Cell;

auto keyOf(const Cell &cell) {
  return std::tuple(cell.sampleBegin, cell.unitBegin, cell.unitEnd, cell.sampleEnd, cell.device);
}

void sortCells(std::vector<Cell> &cells) {
  std::sort(cells.begin(), cells.end(),
            [](const Cell &a, const Cell &b) { return keyOf(a) < keyOf(b); });
}

/// Returns where pipelines begin, and the end of the batch. Samples of one device are in one
/// pipeline. \param inOrder  pipelines only begin where the plan lists a cell of the last unit and
/// then one of the first unit, as plans of the planner do
std::vector<int64_t> findPipelines(const step::Plan &plan, int32_t units, bool inOrder) {
  std::map<uint32_t, std::pair<int64_t, int64_t>> samplesOf;
  for (const Cell &cell : plan.cells) {
    auto [at, isNew] = samplesOf.try_emplace(cell.device, cell.sampleBegin, cell.sampleEnd);
    at->second.first = std::min(at->second.first, cell.sampleBegin);
    at->second.second = std::max(at->second.second, cell.sampleEnd);
  }
  std::vector<std::pair<int64_t, int64_t>> spans;
  spans.reserve(samplesOf.size());
  for (const auto &[device, span] : samplesOf)
    spans.push_back(span);
  std::sort(spans.begin(), spans.end());
  std::set<int64_t> allowed;
  int64_t end = 0;
  for (size_t c = 0; inOrder && c < plan.cells.size(); ++c) {
    const Cell &cell = plan.cells[c];
    if (cell.unitBegin == 0 && cell.sampleBegin == end &&
        (c == 0 || plan.cells[c - 1].unitEnd == units))
      allowed.insert(end);
    end = std::max(end, cell.sampleEnd);
  }
  std::vector<int64_t> begins;
  int64_t reached = 0;
  for (auto [begin, last] : spans) {
    if (begin >= reached && (!inOrder || allowed.count(begin)))
      begins.push_back(begin);
    reached = std::max(reached, last);
  }
  begins.push_back(plan.batch);
  return begins;
}

/// Reads one pipeline. Cells are sorted by sample and unit.
class PipelineReader {
public:
  /// \param pattern  denominator and samples per variant of the strategy
  PipelineReader(std::vector<Cell> cells, int64_t base, int64_t samples, int32_t units,
                 const Strategy &pattern)
      : cells(std::move(cells)), base(base), samples(samples), units(units), pattern(pattern),
        variants(static_cast<size_t>(pattern.boundaryDenominator)) {}

  /// Returns nullopt if there are no such stages.
  std::optional<Pipeline> run() {
    if (!(variants == 1 ? findRanges() : findVariants()))
      return std::nullopt;
    Pipeline pipeline{samples, {}};
    int32_t begin = 0;
    for (size_t s = 0; s < cellsOf.size(); ++s) {
      const int32_t end = std::accumulate(ends[s].begin(), ends[s].end(), 0);
      if (end <= begin)
        return std::nullopt;
      pipeline.stages.push_back({begin, end, membersOf(cellsOf[s])});
      begin = end;
    }
    if (begin != units * static_cast<int32_t>(variants))
      return std::nullopt;
    return pipeline;
  }

private:
  /// Stages of whole units: every range of units is one.
  bool findRanges() {
    std::map<std::pair<int32_t, int32_t>, size_t> stageOf;
    for (const Cell &cell : cells)
      stageOf[{cell.unitBegin, cell.unitEnd}] = 0;
    int32_t end = 0;
    for (auto &[range, stage] : stageOf) {
      if (range.first != end)
        return false;
      end = range.second;
      stage = ends.size();
      ends.push_back({end});
    }
    cellsOf.resize(ends.size());
    for (const Cell &cell : cells)
      cellsOf[stageOf[{cell.unitBegin, cell.unitEnd}]].push_back(cell);
    return true;
  }

  size_t variantOf(const Cell &cell) const {
    return static_cast<size_t>(boundaryVariantOf(pattern, cell.sampleBegin - base));
  }

  /// Stages that share units: every variant of samples has other ranges. A stage without units
  /// has none in a variant. Devices identify stages.
  bool findVariants() {
    std::vector<std::map<int32_t, int32_t>> rangesOf(variants);
    for (const Cell &cell : cells) {
      const int64_t next = ((cell.sampleBegin - base) / pattern.samplesPerVariant + 1) *
                           pattern.samplesPerVariant;
      if (cell.sampleEnd - base > next)
        return false;
      auto [at, isNew] = rangesOf[variantOf(cell)].try_emplace(cell.unitBegin, cell.unitEnd);
      if (at->second != cell.unitEnd)
        return false;
    }
    const auto most =
        std::max_element(rangesOf.begin(), rangesOf.end(),
                         [](const auto &a, const auto &b) { return a.size() < b.size(); });
    const size_t full = static_cast<size_t>(most - rangesOf.begin());
    std::map<uint32_t, size_t> stageOf; // by device
    for (const Cell &cell : cells)
      if (variantOf(cell) == full)
        stageOf[cell.device] =
            static_cast<size_t>(std::distance(most->begin(), most->find(cell.unitBegin)));
    return assign(rangesOf, most->size(), stageOf);
  }

  bool assign(const std::vector<std::map<int32_t, int32_t>> &rangesOf, size_t stages,
              std::map<uint32_t, size_t> &stageOf) {
    constexpr int32_t kNone = -1;
    ends.assign(stages, std::vector<int32_t>(variants, kNone));
    cellsOf.resize(stages);
    // A device without samples of the full variant has the ranges of others of its stage.
    for (bool changed = true; changed;) {
      changed = false;
      for (const Cell &cell : cells) {
        const auto at = stageOf.find(cell.device);
        std::vector<int32_t> known(stages);
        for (size_t s = 0; s < stages; ++s)
          known[s] = ends[s][variantOf(cell)];
        if (at != stageOf.end()) {
          changed |= known[at->second] == kNone;
          ends[at->second][variantOf(cell)] = cell.unitEnd;
        } else if (const auto s = std::find(known.begin(), known.end(), cell.unitEnd);
                   s != known.end()) {
          stageOf[cell.device] = static_cast<size_t>(s - known.begin());
          changed = true;
        }
      }
    }
    for (const Cell &cell : cells) {
      const auto at = stageOf.find(cell.device);
      if (at == stageOf.end() || ends[at->second][variantOf(cell)] != cell.unitEnd)
        return false;
      cellsOf[at->second].push_back(cell);
    }
    for (size_t v = 0; v < variants; ++v) {
      if (rangesOf[v].empty())
        return false; // too few samples to tell
      for (size_t s = 0; s < stages; ++s)
        if (ends[s][v] == kNone)
          ends[s][v] = s == 0 ? 0 : ends[s - 1][v];
    }
    return true;
  }

  /// Returns the members of a stage. Samples without units of the stage are divided in proportion.
  std::vector<step::StageDevice> membersOf(const std::vector<Cell> &list) const {
    std::vector<step::StageDevice> members;
    std::map<uint32_t, size_t> index;
    int64_t sum = 0;
    for (const Cell &cell : list) {
      const auto [at, isNew] = index.try_emplace(cell.device, members.size());
      if (isNew)
        members.push_back({cell.device, 0, 1});
      step::StageDevice &member = members[at->second];
      member.samples += cell.rows();
      member.microBatchSize = std::max(member.microBatchSize, cell.rows());
      sum += cell.rows();
    }
    int64_t seen = 0, given = 0;
    if (sum < samples)
      for (step::StageDevice &member : members) {
        seen += member.samples;
        const int64_t upTo = samples * seen / sum;
        member.samples = upTo - given;
        given = upTo;
      }
    return inDealingOrder(std::move(members), list);
  }

  /// Orders members as their stage lists them: of devices that are equally far, the first listed
  /// gets the next cell (assignMicroBatches).
  std::vector<step::StageDevice> inDealingOrder(std::vector<step::StageDevice> members,
                                                const std::vector<Cell> &list) const {
    const size_t n = members.size();
    if (n < 2)
      return members;
    std::vector<std::set<size_t>> behind(n); // by member: those that it precedes
    std::vector<int64_t> dealt(n, 0);
    std::vector<double> next(n);
    std::set<std::pair<double, size_t>> queue;
    std::map<uint32_t, size_t> index;
    auto push = [&](size_t i) {
      if (dealt[i] >= members[i].samples)
        return;
      const int64_t rows = std::min(members[i].microBatchSize, members[i].samples - dealt[i]);
      next[i] = static_cast<double>(dealt[i] + rows) / static_cast<double>(members[i].samples);
      queue.insert({next[i], i});
    };
    for (size_t i = 0; i < n; ++i) {
      index[members[i].device] = i;
      push(i);
    }
    for (size_t c = 0; c < list.size() && !queue.empty(); ++c) {
      const size_t i = index[list[c].device];
      if (queue.erase({next[i], i}) == 0)
        break;
      for (auto other = queue.lower_bound({next[i], 0});
           other != queue.end() && other->first == next[i]; ++other)
        if (!behind[other->second].count(i))
          behind[i].insert(other->second);
      dealt[i] += std::min(members[i].microBatchSize, members[i].samples - dealt[i]);
      push(i);
    }
    return sorted(std::move(members), behind);
  }

  static std::vector<step::StageDevice> sorted(std::vector<step::StageDevice> members,
                                               const std::vector<std::set<size_t>> &behind) {
    std::vector<size_t> before(members.size(), 0);
    for (const std::set<size_t> &list : behind)
      for (size_t i : list)
        ++before[i];
    std::set<size_t> ready;
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i] == 0)
        ready.insert(i);
    std::vector<step::StageDevice> order;
    while (!ready.empty()) {
      const size_t i = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(members[i]);
      for (size_t j : behind[i])
        if (--before[j] == 0)
          ready.insert(j);
    }
    return order.size() == members.size() ? order : members; // a cycle: no order has these cells
  }

  const std::vector<Cell> cells;
  const int64_t base, samples;
  const int32_t units;
  const Strategy &pattern;
  const size_t variants;
  std::vector<std::vector<Cell>> cellsOf; ///< per stage
  std::vector<std::vector<int32_t>> ends; ///< per stage and variant: the end of its units
};

/// Reads with one number of parts and one place of pipelines.
std::optional<Strategy> read(const std::vector<Cell> &sorted, const std::vector<int64_t> &begins,
                             int32_t units, int32_t parts, int64_t samplesPerVariant) {
  Strategy strategy;
  strategy.boundaryDenominator = parts;
  strategy.samplesPerVariant = samplesPerVariant;
  auto next = sorted.begin();
  for (size_t p = 0; p + 1 < begins.size(); ++p) {
    const auto end = std::partition_point(
        next, sorted.end(), [&](const Cell &cell) { return cell.sampleBegin < begins[p + 1]; });
    std::optional<Pipeline> pipeline =
        PipelineReader({next, end}, begins[p], begins[p + 1] - begins[p], units, strategy).run();
    if (!pipeline)
      return std::nullopt;
    strategy.pipelines.push_back(std::move(*pipeline));
    next = end;
  }
  return strategy;
}

bool hasCells(const Strategy &strategy, const std::vector<Cell> &sorted) {
  std::vector<Cell> cells;
  std::vector<step::StageDevice> scratch;
  int64_t base = 0;
  for (const Pipeline &pipeline : strategy.pipelines) {
    for (const Stage &stage : pipeline.stages)
      assignStageCells(strategy, stage, base, scratch, cells);
    base += pipeline.samples;
  }
  sortCells(cells);
  return std::equal(cells.begin(), cells.end(), sorted.begin(), sorted.end(),
                    [](const Cell &a, const Cell &b) { return keyOf(a) == keyOf(b); });
}

} // namespace

Result<ReadStrategy> zorse::planning::readTiling(const step::Plan &plan, int32_t units) {
  if (!plan.groups.empty())
    return userError("devices divide units among them (tensor parallelism)");
  std::vector<Cell> sorted = plan.cells;
  sortCells(sorted);
  int64_t rows = 1;
  for (const Cell &cell : sorted)
    rows = std::max(rows, cell.rows());
  std::optional<Strategy> closest;
  // The number of parts of the search is tried before other powers of two.
  for (int32_t parts : {1, 4, 2, 8})
    for (bool inOrder : {true, false})
      for (int64_t turn : parts == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{rows, 1}) {
        std::optional<Strategy> strategy =
            read(sorted, findPipelines(plan, units, inOrder), units, parts, turn);
        if (strategy && hasCells(*strategy, sorted))
          return ReadStrategy{std::move(*strategy), ""};
        if (strategy && !closest)
          closest = std::move(strategy);
      }
  if (!closest)
    return userError("its cells are no pipelines of stages");
  return ReadStrategy{std::move(*closest), "cells are dealt to devices in another way"};
}
