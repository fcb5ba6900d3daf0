// Gathers, reductions, norms, the decision and the report. Updates follow the decision: ExpandUpdates.cpp.
//
//   Copy from the host -> CAST (g, owner) -> AllGather g -> F        (the copy where the host keeps it, the cast where units read copies)
//   B, W  -> ReduceScatter g -> NORM (g, owner) -> AllReduce of sums -> DECIDE per owner -> updates
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
  explicit StateExpander(Expansion &x)
      : x(x), reduction(x.summary.groups_size(), kNone), imagesMade(x.summary.groups_size()), left(x.plan.devices.size()) {}

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
    std::stable_sort(groups.begin(), groups.end(), [&](uint32_t a, uint32_t b) { return x.firstUnit(a) < x.firstUnit(b); });
    for (uint32_t g = 0; g < x.ownersOf.size(); ++g)
      for (uint32_t d : x.summary.groups(g).trainable() ? x.ownersOf[g] : x.readersOf[g])
        makeImage(*x.findHolding(d, g), d);
    for (uint32_t g : groups) {
      addGather(g);
      for (auto [device, op] : imagesMade[g])
        x.addEdge(op, x.gather[g]);
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
          for (auto [device, op] : imagesMade[g]) // of devices that read and have all of it
            if (device == chunk.device)
              x.addEdge(op, ready);
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
        leave(*x.findHolding(d, g), d, norm);
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

  /// Elements [begin, end) of a holding's gradients.
  Region gradients(const Holding &h, int64_t begin, int64_t end) const { return elementRegion(h.gradients, h.base(), begin, end, size(h.group)); }

  void addGather(uint32_t g) {
    std::vector<uint32_t> all = participants(g);
    const uint64_t bytes = static_cast<uint64_t>(x.summary.groups(g).elements()) * gatheredSize(g);
    x.gather[g] = x.addOp(0, kShortRank, 0, x.firstUnit(g));
    uint32_t collective = addCollective(g, x.readersOf[g], Work::Gather);
    x.graph.collectives.back().type = x.computeType(g);
    for (uint32_t d : all) {
      const Holding &h = *x.findHolding(d, g);
      x.touch(x.gather[g], h.image);
      Entry &half = x.addHalf(d, kCollective, EntryKind::AllGather, bundle::GATHER);
      half.group = static_cast<int32_t>(g);
      half.collective = collective;
      half.value = {readKind(g), g, 0, 0, x.summary.groups(g).elements(), 0};
      if (h.reads)
        half.region = region(h.image, 0, bytes);
      if (h.owns())
        half.to = elementRegion(h.image, h.base(), h.begin, h.end, gatheredSize(g));
    }
  }

  bundle::Value::Kind readKind(uint32_t g) const { return x.hasMaster(g) ? bundle::Value::PARAMETER_COPY : bundle::Value::PARAMETERS; }

  /// What a device keeps of a group apart from what units read: comes from the host, and is cast, into its place in the image.
  void makeImage(const Holding &h, uint32_t d) {
    const uint32_t g = h.group;
    const bool host = h.at.parameters == Tier::Host, casts = x.casts(g);
    if (!h.isApart() || (!host && !casts) || x.summary.groups(g).elements() == 0)
      return;
    const int64_t begin = h.owns() ? h.begin : 0, end = h.owns() ? h.end : x.summary.groups(g).elements();
    const Value value{bundle::Value::PARAMETERS, g, 0, begin, end, 0};
    Region from = elementRegion(h.home, begin, begin, end, size(g));
    const Region image = elementRegion(h.image, h.base(), begin, end, gatheredSize(g));
    uint32_t fetch = kNone;
    if (host) {
      const Region to = casts ? region(x.addBuffer(d, from.bytes, Purpose::Images), 0, from.bytes) : image;
      fetch = x.addTierCopy(d, kLoad, bundle::GATHER, from, to, value, priorityOf(kShortRank, 0, x.firstUnit(g)));
      from = to;
    }
    const uint32_t made = casts ? addCast(h, d, from, image) : fetch;
    if (casts && host)
      x.addEdge(fetch, made);
    imagesMade[g].push_back({d, made});
  }

  /// The owned extent of a group's copy, whole: gathers carry the padding, too.
  uint32_t addCast(const Holding &h, uint32_t d, Region from, Region image) {
    const uint32_t g = h.group;
    uint32_t op = x.addOp(x.costs->norm(d, h.end - h.begin), kShortRank, 0, x.firstUnit(g)); // as a norm it reads every element once
    addTask(d, bundle::Compute::CAST_PARAMETERS, bundle::GATHER, static_cast<int32_t>(g));
    x.addEdge(x.loadScalars[d], op);
    x.touch(op, from.arena);
    x.touch(op, image.arena);
    if (x.lean)
      return op;
    x.addCall(x.summary.cast_body(), -1, h.end - h.begin, 0);
    x.addSlot(bundle::STATE, 0, bundle::READ, from, {bundle::Value::PARAMETERS, g, 0, h.begin, h.end, 0});
    x.addSlot(bundle::PARAMETER, 0, bundle::WRITE, image, {bundle::Value::PARAMETER_COPY, g, 0, h.begin, h.end, 0});
    return op;
  }

  /// Reduced gradients to the host, where they wait for the update.
  void leave(const Holding &h, uint32_t d, uint32_t norm) {
    if (h.at.gradients == Tier::Device)
      return;
    const Region there = elementRegion(h.left, h.begin, h.begin, h.end, size(h.group));
    const uint32_t op = x.addTierCopy(d, kReport, bundle::COMMIT, gradients(h, h.begin, h.end), there,
                                      {bundle::Value::REDUCED_GRADIENTS, h.group, 0, h.begin, h.end, 0}, x.ops[norm].priority);
    x.addEdge(norm, op);
    left[d].push_back(op);
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
        half.to = gradients(h, h.begin, h.end);
    }
  }

  /// Gradients of late units are complete first.
  int32_t lastUnit(uint32_t g) const {
    int n = x.summary.groups(g).units_size();
    return n ? -static_cast<int32_t>(x.summary.groups(g).units(n - 1)) : 0;
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
    for (const Expansion::Run &run : x.runsOf(g, h.begin, h.end)) {
      x.addCall(x.summary.norm_body(), -1, run.end - run.begin, 0);
      x.addSlot(bundle::STATE, 1, bundle::READ, gradients(h, run.begin, run.end), {bundle::Value::REDUCED_GRADIENTS, g, 0, run.begin, run.end, 0});
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
      for (const auto *list : {&done[d], &left[d]})
        for (uint32_t before : *list)
          x.addEdge(before, op);
      for (const Holding &h : x.holdings[d])
        if (h.owns() && x.gather[h.group] != kNone)
          x.addEdge(x.gather[h.group], op);
      if (reporter == kNone) {
        reporter = d;
        reportAfter = op;
      }
      expandUpdates(x, d, op);
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

  Expansion &x;
  std::vector<std::vector<uint32_t>> done;                            ///< per device: ops after all of a chunk's tasks
  std::vector<uint32_t> reduction;                                    ///< per group: what its backward tasks precede
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> imagesMade; ///< per group: (device, op after which its part is what units read)
  std::vector<std::vector<uint32_t>> left;                            ///< per device: ops that take reduced gradients to the host
};

} // namespace

void zorse::step::expandState(Expansion &x) {
  StateExpander state(x);
  state.loadsAndGathers();
  state.reductionsAndUpdates();
}
