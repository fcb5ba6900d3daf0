// Computes windows. A window (an unshard interval) is the set of tasks that read one gathered copy
// (image) of a group's parameters.
//
// - A group that is gathered once per step has one window: all tasks that read it.
// - A group that is gathered by phase has one window per direction and per first unit that reads it
//   in a chunk. Chunks that start to read the group at the same unit share a window.
//
// findUnshardHints merges windows and limits the number of images on a device. It uses the
// preliminary list.

#include "PlanLowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

using namespace zorse::step;

namespace {

/// Returns the first unit of a range that uses a group. Precondition: there is one.
int32_t firstUser(const PlanLowering &x, uint32_t group, int32_t unitBegin) {
  const auto &units = x.summary.groups(static_cast<int>(group)).units();
  return static_cast<int32_t>(
      *std::lower_bound(units.begin(), units.end(), static_cast<uint32_t>(unitBegin)));
}

bool reads(const CellTemplate &shape, uint32_t group, bool backward) {
  for (const CellTemplate::GroupUse &use : shape.groups)
    if (use.group == group)
      return use.parameters & (backward ? kInB | kInW : kInF);
  return false;
}

/// Whether, in some cell of a chunk, tasks of one direction read a group's parameters. Cells may
/// differ: a backward that recomputes reads the parameters that the forward reads.
bool reads(const PlanLowering &x, const ModelChunk &chunk, uint32_t group, bool backward) {
  const CellTemplate *before = nullptr;
  return std::any_of(chunk.cells.begin(), chunk.cells.end(), [&](uint32_t c) {
    const CellTemplate *shape = std::exchange(before, x.shapeOf[c]);
    return shape != x.shapeOf[c] && reads(*x.shapeOf[c], group, backward);
  });
}

} // namespace

void zorse::step::findUnshardIntervals(PlanLowering &x) {
  const auto groups = static_cast<uint32_t>(x.summary.groups_size());
  x.usesOf.assign(groups, {});
  // By (backward, first unit).
  std::vector<std::map<std::pair<bool, int32_t>, std::set<uint32_t>>> readers(groups);
  for (const ModelChunk &chunk : x.chunks)
    for (uint32_t g : x.groupsIn(chunk))
      if (x.plan.reshardAfterForward(g))
        for (bool backward : {false, true})
          if (reads(x, chunk, g, backward))
            readers[g][{backward, firstUser(x, g, chunk.unitBegin)}].insert(chunk.device);
  for (uint32_t g = 0; g < groups; ++g) {
    const auto first = static_cast<uint32_t>(x.unshardIntervals.size());
    if (readers[g].empty()) {
      x.unshardIntervals.push_back({g, x.firstUnit(g), false, x.readersOf[g]});
      x.firstUnshardInterval.push_back(first);
      continue;
    }
    std::vector<std::set<uint32_t>> devices;
    uint32_t use = 0;
    for (const auto &[key, who] : readers[g]) {
      const uint32_t interval = x.hints && !x.hints->same[g].empty() ? x.hints->same[g][use] : use;
      ++use;
      x.usesOf[g].push_back({key.first, key.second, first + interval});
      if (interval == devices.size()) {
        devices.emplace_back();
        x.unshardIntervals.push_back({g, key.second, key.first, {}});
      }
      devices[interval].insert(who.begin(), who.end());
    }
    for (uint32_t w = 0; w < devices.size(); ++w)
      x.unshardIntervals[first + w].readers.assign(devices[w].begin(), devices[w].end());
    x.firstUnshardInterval.push_back(first);
  }
  x.firstUnshardInterval.push_back(static_cast<uint32_t>(x.unshardIntervals.size()));
}

uint32_t PlanLowering::unshardIntervalOf(uint32_t group, int32_t unitBegin, bool backward) const {
  if (usesOf[group].empty())
    return firstUnshardInterval[group];
  const int32_t unit = firstUser(*this, group, unitBegin);
  for (const UnshardUse &use : usesOf[group])
    if (use.backward == backward && use.unit == unit)
      return use.interval;
  return kNone;
}

namespace {

/// Tasks of a device's chunk in one direction, by which windows are ordered.
struct PhaseTasks {
  uint32_t device = 0;
  bool backward = false;
  std::vector<TaskId> tasks; ///< in list order
  std::vector<uint32_t> intervals;
  uint32_t firstUse = kNone; ///< list position of the first use of one of its windows, on any
                             ///< device
};

class UnshardIntervalFinder {
public:
  explicit UnshardIntervalFinder(PlanLowering &x) : x(x) {
    for (const ModelChunk &chunk : x.chunks)
      for (bool backward : {false, true})
        addPhase(chunk, backward);
  }

  UnshardHints run() {
    UnshardHints hints;
    hints.same.resize(static_cast<size_t>(x.summary.groups_size()));
    for (uint32_t g = 0; g < hints.same.size(); ++g)
      if (!x.usesOf[g].empty())
        hints.same[g] = merge(g);
    limit(hints);
    return hints;
  }

private:
  void addPhase(const ModelChunk &chunk, bool backward) {
    PhaseTasks phase{chunk.device, backward, {}, {}};
    for (uint32_t c : chunk.cells)
      for (TaskKind kind : {TaskKind::Forward, TaskKind::Backward, TaskKind::Weights})
        if (const uint32_t op = x.cells[c].of(kind).begin;
            (kind != TaskKind::Forward) == backward && op != kNone &&
            x.globalOrder.positions[op] != kNone)
          phase.tasks.push_back({kind, c});
    if (phase.tasks.empty())
      return;
    std::sort(phase.tasks.begin(), phase.tasks.end(),
              [&](TaskId a, TaskId b) { return beginOf(a) < beginOf(b); });
    for (uint32_t g : x.groupsIn(chunk))
      if (const uint32_t interval =
              x.usesOf[g].empty() ? kNone : x.unshardIntervalOf(g, chunk.unitBegin, backward);
          interval != kNone)
        phase.intervals.push_back(interval);
    std::sort(phase.intervals.begin(), phase.intervals.end());
    phases.push_back(std::move(phase));
  }

  // Positions in the list.
  uint32_t beginOf(TaskId task) const {
    return x.globalOrder.positions[x.cells[task.cell].of(task.kind).begin];
  }
  uint32_t endOf(TaskId task) const {
    return x.globalOrder.positions[x.cells[task.cell].of(task.kind).end];
  }
  uint32_t first(const PhaseTasks &phase) const { return beginOf(phase.tasks.front()); }
  uint32_t last(const PhaseTasks &phase) const { return endOf(phase.tasks.back()); }
  static bool reads(const PhaseTasks &phase, uint32_t interval) {
    return std::binary_search(phase.intervals.begin(), phase.intervals.end(), interval);
  }

  /// Merges windows of a group if, on some reader, their uses interleave or no other phase is
  /// between them. \returns number of the window by use
  std::vector<uint32_t> merge(uint32_t g) const {
    const std::vector<UnshardUse> &uses = x.usesOf[g];
    std::vector<uint32_t> root(uses.size());
    for (uint32_t u = 0; u < root.size(); ++u)
      root[u] = u;
    auto find = [&](uint32_t u) {
      while (root[u] != u)
        u = root[u];
      return u;
    };
    for (uint32_t device : x.readersOf[g]) {
      struct Run {
        uint32_t first, last, use;
      };
      std::vector<Run> runs; // uses of the group's windows on this device
      std::vector<std::pair<uint32_t, uint32_t>> others;
      for (const PhaseTasks &phase : phases) {
        if (phase.device != device)
          continue;
        bool mine = false;
        for (uint32_t u = 0; u < uses.size(); ++u)
          if (reads(phase, uses[u].interval)) {
            runs.push_back({first(phase), last(phase), u});
            mine = true;
          }
        if (!mine)
          others.push_back({first(phase), last(phase)});
      }
      std::sort(runs.begin(), runs.end(),
                [](const Run &a, const Run &b) { return a.first < b.first; });
      for (size_t i = 0; i + 1 < runs.size(); ++i)
        for (size_t k = i + 1; k < runs.size(); ++k) {
          const bool interleave = runs[k].first < runs[i].last;
          const bool between = std::any_of(others.begin(), others.end(), [&](auto &other) {
            return other.first < runs[k].first && other.second > runs[i].last;
          });
          if (interleave || (k == i + 1 && !between))
            root[find(runs[k].use)] = find(runs[i].use);
        }
    }
    std::vector<uint32_t> number(uses.size(), kNone), same;
    uint32_t count = 0;
    for (uint32_t u = 0; u < uses.size(); ++u) {
      uint32_t &n = number[find(u)];
      same.push_back(n == kNone ? n = count++ : n);
    }
    return same;
  }

  /// Limits images: a window's image waits for the tasks of the n-th phase before it, n being
  /// Plan::bufferCountOf. Only tasks that precede the window's first use on any device in the
  /// preliminary list are included. All such edges agree with that list, so they form no cycle.
  void limit(UnshardHints &hints) {
    auto merged = [&](uint32_t interval) {
      const uint32_t g = x.unshardIntervals[interval].group;
      return std::pair(g, hints.same[g][interval - x.firstUnshardInterval[g]]);
    };
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> firstUses;
    for (const PhaseTasks &phase : phases)
      for (uint32_t interval : phase.intervals) {
        auto [at, fresh] = firstUses.emplace(merged(interval), first(phase));
        at->second = std::min(at->second, first(phase));
      }
    std::map<uint32_t, std::vector<PhaseTasks *>> byDevice;
    for (PhaseTasks &phase : phases) {
      for (uint32_t interval : phase.intervals)
        phase.firstUse = std::min(phase.firstUse, firstUses[merged(interval)]);
      if (!phase.intervals.empty())
        byDevice[phase.device].push_back(&phase);
    }
    for (auto &[device, list] : byDevice) {
      std::stable_sort(list.begin(), list.end(), [&](auto *a, auto *b) {
        return std::pair(a->firstUse, first(*a)) < std::pair(b->firstUse, first(*b));
      });
      const uint32_t images = x.plan.bufferCountOf(device);
      for (size_t i = images; i < list.size(); ++i) {
        const PhaseTasks &before = *list[i - images];
        std::set<std::pair<uint32_t, uint32_t>> own;
        for (uint32_t interval : before.intervals)
          own.insert(merged(interval));
        for (uint32_t interval : list[i]->intervals) {
          const auto key = merged(interval);
          if (own.count(key))
            continue;
          std::vector<TaskId> tasks;
          for (TaskId task : before.tasks)
            if (endOf(task) < firstUses[key])
              tasks.push_back(task);
          if (!tasks.empty())
            hints.limits.push_back({key.first, key.second, device, std::move(tasks)});
        }
      }
    }
  }

  PlanLowering &x;
  std::vector<PhaseTasks> phases;
};

} // namespace

UnshardHints zorse::step::findUnshardHints(PlanLowering &x) {
  return UnshardIntervalFinder(x).run();
}
