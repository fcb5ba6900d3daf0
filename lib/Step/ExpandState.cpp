// Gathers, reductions, norms, the decision, updates and the report.
//
//   CAST (g, owner) -> AllGather g -> F                    (the cast where units read copies)
//   B, W  -> ReduceScatter g -> NORM (g, owner) -> AllReduce of sums -> DECIDE per owner -> UPDATE (g, owner)
//   SUM_LOSS ------------------------------------^                          '-> Report (first owner)
//   SCALE_SEEDS -> B of the loss                            (where the loss is scaled; its devices decide, too)
//
// DECIDE follows every task of its device, so no update overtakes a reader of the old version.

#include "Expansion.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

class StateExpander {
public:
  explicit StateExpander(Expansion &x) : x(x), reduction(x.summary.groups_size(), kNone), casts(x.summary.groups_size()) {}

  void loadsAndGathers() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      if (x.scalars[d] == kNone)
        continue;
      x.loadScalars[d] = x.addOp(0, kShortRank, -1, 0);
      Entry &load = x.addHalf(d, kLoad, EntryKind::LoadScalars, bundle::LOAD);
      load.region = region(x.scalars[d], 0, kScalarsBlock);
      load.value.kind = bundle::Value::STEP_SCALARS;
    }
    // Groups of early units first: their readers start first.
    std::vector<uint32_t> groups;
    for (uint32_t g = 0; g < x.readersOf.size(); ++g)
      if (needsGather(g))
        groups.push_back(g);
    auto firstUnit = [&](uint32_t g) { return x.summary.groups(g).units_size() ? x.summary.groups(g).units(0) : 0; };
    std::stable_sort(groups.begin(), groups.end(), [&](uint32_t a, uint32_t b) { return firstUnit(a) < firstUnit(b); });
    for (uint32_t g = 0; g < x.ownersOf.size(); ++g)
      if (x.casts(g))
        for (uint32_t d : x.ownersOf[g])
          addCast(g, d, static_cast<int32_t>(firstUnit(g)));
    for (uint32_t g : groups) {
      addGather(g, static_cast<int32_t>(firstUnit(g)));
      for (auto [device, cast] : casts[g])
        x.addEdge(cast, x.gather[g]);
    }
    if (zorse::scalesLoss(x.summary))
      scaleSeeds();
    // One op between a chunk's state and its forwards: not an edge from every group to every cell.
    for (const Chunk &chunk : x.chunks) {
      uint32_t ready = x.addOp(0, kShortRank, 0, chunk.unitBegin);
      x.addEdge(x.loadScalars[chunk.device], ready);
      for (uint32_t g : x.groupsIn(chunk.unitBegin, chunk.unitEnd))
        if (x.gather[g] != kNone)
          x.addEdge(x.gather[g], ready);
        else
          for (auto [device, cast] : casts[g])
            x.addEdge(cast, ready); // of the device that reads, owns all and shares nothing
      for (uint32_t c : chunk.cells)
        x.addEdge(ready, x.cells[c].forward);
    }
  }

  void reductionsAndUpdates() {
    std::vector<std::vector<uint32_t>> norms(x.plan.devices.size());
    for (uint32_t g : byCompletion()) {
      bool sole = x.ownersOf[g].size() == 1 && x.readersOf[g].size() == 1 && x.ownersOf[g][0] == x.readersOf[g][0];
      if (!sole)
        addReduction(g);
      for (uint32_t d : x.ownersOf[g]) {
        uint32_t norm = addNorm(g, d);
        if (!norms[d].empty())
          x.addEdge(norms[d].back(), norm);
        norms[d].push_back(norm);
        if (sole)
          reduction[g] = norm;
        else
          x.addEdge(reduction[g], norm);
        x.addEdge(x.loadScalars[d], norm);
      }
    }
    done.resize(x.plan.devices.size());
    for (const Chunk &chunk : x.chunks) {
      uint32_t all = x.addOp(0, kShortRank, 0, chunk.unitBegin);
      for (uint32_t c : chunk.cells)
        x.addEdge(x.cells[c].last(), all);
      for (uint32_t g : x.groupsIn(chunk.unitBegin, chunk.unitEnd))
        if (reduction[g] != kNone)
          x.addEdge(all, reduction[g]);
      done[chunk.device].push_back(all);
    }
    for (auto [like, twin] : x.twins()) {
      done[twin] = done[like];
      x.sumLoss[twin] = x.sumLoss[like];
    }
    decide(norms);
  }

private:
  /// Groups with owners in the order in which their gradients are complete: those of the last units first, then by index. A device adds its norms in
  /// this order whatever the list would prefer, so that the clip factor's bits do not depend on when a group's gradients come or where they are kept.
  std::vector<uint32_t> byCompletion() const {
    std::vector<uint32_t> groups;
    for (uint32_t g = 0; g < x.ownersOf.size(); ++g)
      if (!x.ownersOf[g].empty())
        groups.push_back(g);
    std::stable_sort(groups.begin(), groups.end(), [&](uint32_t a, uint32_t b) { return lastUnit(a) < lastUnit(b); });
    return groups;
  }

  /// A reader that does not own everything needs the rest.
  bool needsGather(uint32_t g) {
    if (!x.summary.groups(g).trainable())
      return false;
    int64_t elements = x.summary.groups(g).elements();
    return std::any_of(x.readersOf[g].begin(), x.readersOf[g].end(), [&](uint32_t d) {
      const Holding &h = *x.findHolding(d, g);
      return h.end - h.begin != elements;
    });
  }

  /// Of the op added last.
  uint32_t addCollective(uint32_t g, const std::vector<uint32_t> &members, Work work) {
    x.ops.back().work = work;
    x.ops.back().from = static_cast<uint32_t>(x.graph.collectives.size());
    Collective collective;
    collective.group = g;
    collective.type = x.summary.groups(g).type();
    collective.members = members;
    for (uint32_t d : x.ownersOf[g]) {
      const Holding &h = *x.findHolding(d, g);
      collective.shards.push_back({d, h.begin, h.end});
    }
    x.graph.collectives.push_back(std::move(collective));
    return static_cast<uint32_t>(x.graph.collectives.size() - 1);
  }

  std::vector<uint32_t> participants(uint32_t g) const {
    std::vector<uint32_t> all(x.readersOf[g]);
    all.insert(all.end(), x.ownersOf[g].begin(), x.ownersOf[g].end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  uint64_t groupBytes(uint32_t g) const { return static_cast<uint64_t>(x.summary.groups(g).elements()) * size(g); }
  uint64_t size(uint32_t g) const { return elementBytes(x.summary.groups(g).type()); }

  uint64_t gatheredSize(uint32_t g) const { return elementBytes(x.computeType(g)); }

  /// Elements [begin, end) of what a holding keeps in `buffer`.
  Region shard(const Holding &h, uint32_t buffer, int64_t begin, int64_t end) const {
    return elementRegion(buffer, h.reads ? 0 : h.begin, begin, end, size(h.group));
  }

  Region masterRegion(const Holding &h, int64_t begin, int64_t end) const {
    return x.hasMaster(h.group) ? elementRegion(h.master, h.begin, begin, end, size(h.group)) : shard(h, h.master, begin, end);
  }

  void addGather(uint32_t g, int32_t firstUnit) {
    std::vector<uint32_t> all = participants(g);
    const uint64_t bytes = static_cast<uint64_t>(x.summary.groups(g).elements()) * gatheredSize(g);
    x.gather[g] = x.addOp(0, kShortRank, 0, firstUnit);
    uint32_t collective = addCollective(g, x.readersOf[g], Work::Gather);
    x.graph.collectives.back().type = x.computeType(g);
    for (uint32_t d : all) {
      const Holding &h = *x.findHolding(d, g);
      x.touch(x.gather[g], h.parameters);
      Entry &half = x.addHalf(d, kCollective, EntryKind::AllGather, bundle::GATHER);
      half.group = static_cast<int32_t>(g);
      half.collective = collective;
      half.value = {readKind(g), g, 0, 0, x.summary.groups(g).elements(), 0};
      if (h.reads)
        half.region = region(h.parameters, 0, bytes);
      if (h.owns())
        half.to = elementRegion(h.parameters, h.reads ? 0 : h.begin, h.begin, h.end, gatheredSize(g));
    }
  }

  bundle::Value::Kind readKind(uint32_t g) const { return x.hasMaster(g) ? bundle::Value::PARAMETER_COPY : bundle::Value::PARAMETERS; }

  /// The owned extent of a group's copy, whole: gathers carry the padding, too.
  void addCast(uint32_t g, uint32_t d, int32_t firstUnit) {
    const Holding &h = *x.findHolding(d, g);
    uint32_t op = x.addOp(x.costs->norm(d, h.end - h.begin), kShortRank, 0, firstUnit); // as a norm it reads every element once
    casts[g].push_back({d, op});
    addTask(d, bundle::Compute::CAST_PARAMETERS, bundle::GATHER, static_cast<int32_t>(g));
    x.addEdge(x.loadScalars[d], op);
    x.touch(op, h.master);
    x.touch(op, h.parameters);
    if (x.lean)
      return;
    x.addCall(x.summary.cast_body(), -1, h.end - h.begin, 0);
    x.addSlot(bundle::STATE, 0, bundle::READ, masterRegion(h, h.begin, h.end), {bundle::Value::PARAMETERS, g, 0, h.begin, h.end, 0});
    x.addSlot(bundle::PARAMETER, 0, bundle::WRITE, elementRegion(h.parameters, h.reads ? 0 : h.begin, h.begin, h.end, gatheredSize(g)),
              {bundle::Value::PARAMETER_COPY, g, 0, h.begin, h.end, 0});
  }

  /// What a step's first gradients are multiplied by follows from the decision of the step before, which the host has not seen when it submits the
  /// step: so devices do it.
  void scaleSeeds() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      std::vector<uint32_t> users;
      for (uint32_t c : x.cellsOf[d])
        if (x.hasLoss(x.plan.cells[c]))
          users.push_back(c);
      if (users.empty())
        continue;
      uint32_t op = x.addOp(0, kShortRank, 0, x.plan.cells[users.front()].unitBegin);
      addTask(d, bundle::Compute::SCALE_SEEDS, bundle::BACKWARD, -1);
      x.addEdge(x.loadScalars[d], op);
      for (uint32_t c : users)
        x.addEdge(op, x.cells[c].backward);
      if (x.lean)
        continue;
      x.addCall(x.summary.scale_seeds_body(), -1, 1, 0);
      x.addSlot(bundle::SCALARS, 0, bundle::UPDATE, region(x.scalars[d], 0, kScalarsBytes), {bundle::Value::STEP_SCALARS, 0, 0, 0, 0, 0});
      x.addSlot(bundle::OPTIMIZER_STEP_SLOT, 0, bundle::READ, region(x.optimizerStep[d], 0, zorse::optimizerStepBytes(x.summary)),
                {bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0, 0});
    }
  }

  void addReduction(uint32_t g) {
    std::vector<uint32_t> all = participants(g);
    reduction[g] = x.addOp(0, kShortRank, 0, lastUnit(g));
    uint32_t collective = addCollective(g, x.readersOf[g], Work::Scatter);
    for (uint32_t d : all) {
      const Holding &h = *x.findHolding(d, g);
      x.touch(reduction[g], h.gradients);
      Entry &half = x.addHalf(d, kCollective, EntryKind::ReduceScatter, bundle::REDUCE);
      half.group = static_cast<int32_t>(g);
      half.collective = collective;
      half.value = {bundle::Value::GRADIENTS, g, 0, 0, x.summary.groups(g).elements(), 0};
      if (h.reads)
        half.region = region(h.gradients, 0, groupBytes(g));
      if (h.owns())
        half.to = shard(h, h.gradients, h.begin, h.end);
    }
  }

  /// Gradients of late units are complete first.
  int32_t lastUnit(uint32_t g) const {
    int n = x.summary.groups(g).units_size();
    return n ? -static_cast<int32_t>(x.summary.groups(g).units(n - 1)) : 0;
  }

  struct Run {
    int64_t begin, end;
    bool decays;
  };

  /// The owned extent without padding, cut where weight decay changes.
  std::vector<Run> runsOf(const Holding &h) const {
    std::vector<Run> runs;
    for (uint32_t p : x.summary.groups(h.group).parameters()) {
      const auto &parameter = x.summary.parameters(p);
      int64_t begin = std::max(h.begin, parameter.offset()), end = std::min(h.end, parameter.offset() + zorse::elementsOf(parameter));
      if (begin >= end)
        continue;
      if (!runs.empty() && runs.back().end == begin && runs.back().decays == parameter.decays())
        runs.back().end = end;
      else
        runs.push_back({begin, end, parameter.decays()});
    }
    return runs;
  }

  Entry &addTask(uint32_t d, bundle::Compute::Task task, bundle::Phase phase, int32_t g) {
    Entry &entry = x.addHalf(d, kCompute, EntryKind::Compute, phase);
    entry.task = task;
    entry.group = g;
    return entry;
  }

  Region sums(uint32_t d) const { return region(x.scalars[d], kScalarsBytes, kSumsBytes); }

  uint32_t addNorm(uint32_t g, uint32_t d) {
    const Holding &h = *x.findHolding(d, g);
    uint32_t op = x.addOp(x.costs->norm(d, h.end - h.begin), kShortRank, 0, lastUnit(g));
    addTask(d, bundle::Compute::NORM, bundle::COMMIT, static_cast<int32_t>(g));
    x.touch(op, h.gradients);
    if (x.lean)
      return op;
    for (const Run &run : runsOf(h)) {
      x.addCall(x.summary.norm_body(), -1, run.end - run.begin, 0);
      x.addSlot(bundle::STATE, 1, bundle::READ, shard(h, h.gradients, run.begin, run.end),
                {bundle::Value::REDUCED_GRADIENTS, g, 0, run.begin, run.end, 0});
      x.addSlot(bundle::SUMS_SLOT, 0, bundle::ACCUMULATE, sums(d), {bundle::Value::SUMS, 0, 0, 0, 0, 0});
    }
    return op;
  }

  void decide(const std::vector<std::vector<uint32_t>> &norms) {
    std::vector<uint32_t> members;
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d)
      if (x.optimizerStep[d] != kNone || !x.sumLoss[d].empty())
        members.push_back(d);
    if (members.empty())
      return;

    // The sums of all devices, known to all members.
    uint32_t total = kNone;
    if (members.size() > 1) {
      total = x.addOp(0, kShortRank, 0, 0);
      x.ops[total].work = Work::Sum;
      x.ops[total].from = static_cast<uint32_t>(x.graph.collectives.size());
      x.ops[total].bytes = static_cast<double>(kSumsBytes);
      Collective collective;
      collective.type = bundle::F64;
      collective.members = members;
      x.graph.collectives.push_back(std::move(collective));
      for (uint32_t d : members) {
        Entry &half = x.addHalf(d, kCollective, EntryKind::AllReduce, bundle::REPORT);
        half.collective = static_cast<uint32_t>(x.graph.collectives.size() - 1);
        half.region = sums(d);
        half.value.kind = bundle::Value::SUMS;
        half.toValue.kind = bundle::Value::GLOBAL_SUM;
      }
    }
    auto afterSums = [&](uint32_t d, uint32_t op) {
      if (total != kNone)
        return x.addEdge(total, op);
      for (uint32_t norm : norms[d])
        x.addEdge(norm, op);
      for (uint32_t sum : x.sumLoss[d])
        x.addEdge(sum, op);
    };
    if (total != kNone)
      for (uint32_t d : members) {
        x.addEdge(x.loadScalars[d], total);
        for (uint32_t norm : norms[d])
          x.addEdge(norm, total);
        for (uint32_t sum : x.sumLoss[d])
          x.addEdge(sum, total);
      }

    uint32_t reporter = kNone, reportAfter = total;
    for (uint32_t d : members) {
      if (x.optimizerStep[d] == kNone)
        continue;
      uint32_t op = x.addOp(0, kShortRank, 0, 0);
      addTask(d, bundle::Compute::DECIDE, bundle::COMMIT, -1);
      x.addCall(x.summary.decide_body(), -1, 1, 0);
      x.addSlot(bundle::SCALARS, 0, bundle::UPDATE, region(x.scalars[d], 0, kScalarsBytes), {bundle::Value::STEP_SCALARS, 0, 0, 0, 0, 0});
      x.addSlot(bundle::SUMS_SLOT, 0, bundle::READ, sums(d), {bundle::Value::GLOBAL_SUM, 0, 0, 0, 0, 0});
      x.addSlot(bundle::OPTIMIZER_STEP_SLOT, 0, bundle::UPDATE, region(x.optimizerStep[d], 0, zorse::optimizerStepBytes(x.summary)),
                {bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0, 0});
      afterSums(d, op);
      for (uint32_t all : done[d])
        x.addEdge(all, op);
      for (const Holding &h : x.holdings[d])
        if (h.owns() && x.gather[h.group] != kNone)
          x.addEdge(x.gather[h.group], op);
      if (reporter == kNone) {
        reporter = d;
        reportAfter = op;
      }
      for (const Holding &h : x.holdings[d])
        if (h.owns())
          addUpdate(h, d, op);
    }

    bool decided = reporter != kNone;
    if (!decided)
      reporter = members.front();
    uint32_t report = x.addOp(0, kShortRank, 0, 0);
    Entry &entry = x.addHalf(reporter, kReport, EntryKind::Report, bundle::REPORT);
    entry.region = region(x.scalars[reporter], 0, kScalarsBlock);
    entry.value = {bundle::Value::STEP_SCALARS, decided ? 1u : 0u, 0, 0, 0, 0};
    if (reportAfter != kNone)
      x.addEdge(reportAfter, report);
    else
      afterSums(reporter, report);
  }

  void addUpdate(const Holding &h, uint32_t d, uint32_t decision) {
    uint32_t g = h.group;
    // Early units first: the next step gathers and forwards them first.
    int32_t firstUnit = x.summary.groups(g).units_size() ? static_cast<int32_t>(x.summary.groups(g).units(0)) : 0;
    uint32_t op = x.addOp(x.costs->update(d, h.end - h.begin), kShortRank, 0, firstUnit);
    x.addEdge(decision, op);
    addTask(d, bundle::Compute::UPDATE_GROUP, bundle::UPDATE_STATE, static_cast<int32_t>(g));
    x.touch(op, h.master);
    x.touch(op, h.gradients);
    if (x.lean)
      return;
    for (const Run &run : runsOf(h)) {
      x.addCall(run.decays ? x.summary.update_body_decay() : x.summary.update_body_plain(), -1, run.end - run.begin, 0);
      x.addSlot(bundle::SCALARS, 0, bundle::READ, region(x.scalars[d], 0, kScalarsBytes), {bundle::Value::STEP_SCALARS, 1, 0, 0, 0, 0});
      x.addSlot(bundle::STATE, 0, bundle::UPDATE, masterRegion(h, run.begin, run.end), {bundle::Value::PARAMETERS, g, 0, run.begin, run.end, 0});
      x.addSlot(bundle::STATE, 1, bundle::READ, shard(h, h.gradients, run.begin, run.end),
                {bundle::Value::REDUCED_GRADIENTS, g, 0, run.begin, run.end, 0});
      for (uint32_t m = 0; m < x.summary.moments(); ++m)
        x.addSlot(bundle::STATE, 2 + m, bundle::UPDATE, elementRegion(h.moments[m], h.begin, run.begin, run.end, size(g)),
                  {bundle::Value::MOMENTS, g, m, run.begin, run.end, 0});
      x.addSlot(bundle::OPTIMIZER_STEP_SLOT, 0, bundle::READ, region(x.optimizerStep[d], 0, 8), {bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0, 1});
    }
  }

  Expansion &x;
  std::vector<std::vector<uint32_t>> done;                       ///< per device: ops after all of a chunk's tasks
  std::vector<uint32_t> reduction;                               ///< per group: what its backward tasks precede
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> casts; ///< per group: (owner, op that makes its part of the copy)
};

} // namespace

void zorse::step::expandState(Expansion &x) {
  StateExpander state(x);
  state.loadsAndGathers();
  state.reductionsAndUpdates();
}
