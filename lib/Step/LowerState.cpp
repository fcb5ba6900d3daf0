// Gathers, reductions, norms, the clip/skip decision and the report. Updates follow the decision:
// LowerUpdates.cpp.
//
//   Copy from the host -> CAST (g, owner) -> AllGather g -> F
//
//   B, W -> ReduceScatter g -> NORM (g, owner) -+-> AllReduce of sums -> CLIP_AND_CHECK per owner
//   SUM_LOSS -----------------------------------+
//   CLIP_AND_CHECK -> updates, ReadMetrics (first owner)
//
//   SCALE_LOSS_GRADIENT -> B of the loss
//
// The copy exists if the host keeps the group, the cast if units read copies, SCALE_LOSS_GRADIENT
// if the loss is scaled. The devices of SCALE_LOSS_GRADIENT decide, too.
//
// CLIP_AND_CHECK follows every task of its device, so no update overwrites parameters that a task
// still reads. If groups commit separately, CLIP_AND_CHECK is at the start of the step, and every
// update follows its norm and all instructions that read the old version in its home buffer.

#include "LowerCollectives.h"
#include "PlanLowering.h"
#include "Tables.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

class StateLowering {
public:
  explicit StateLowering(PlanLowering &x)
      : x(x), reductions(static_cast<size_t>(x.summary.groups_size())),
        unshardedParamsMade(x.unshardIntervals.size()) {}

  void loadsAndGathers() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      if (x.scalars[d] == kNone)
        continue;
      x.loadScalars[d] = x.addOp(0, kShortPriority, -1, 0);
      x.addInstruction(d, kLoad);
      x.describe(OpKind::LoadScalars, d);
    }
    for (uint32_t w = 0; w < x.unshardIntervals.size(); ++w)
      for (uint32_t d : keepersOf(w))
        gatherUnshardedParam(w, *x.findGroupState(d, x.unshardIntervals[w].group), d);
    // Windows of early units first, because their readers start first. For windows that only
    // backwards read, late units first.
    std::vector<uint32_t> gathers;
    for (uint32_t w = 0; w < x.unshardIntervals.size(); ++w)
      if (needsGather(w))
        gathers.push_back(w);
    std::stable_sort(gathers.begin(), gathers.end(),
                     [&](uint32_t a, uint32_t b) { return x.gatherRank(a) < x.gatherRank(b); });
    for (uint32_t w : gathers) {
      CollectiveOps &gather = x.unshardIntervals[w].gather;
      gather = addGather(x, w);
      for (const ImageOps &made : unshardedParamsMade[w])
        CollectiveOps::on(gather.begins, made.device,
                          [&](uint32_t op) { x.addEdge(made.last, op); });
    }
    limitUnshardedParams();
    if (zorse::scalesLoss(x.summary))
      scaleLossGradient();
    // One op between a chunk's state and its forwards replaces edges from every group to every
    // cell.
    for (const ModelChunk &chunk : x.chunks) {
      uint32_t ready = x.addOp(0, kShortPriority, 0, chunk.unitBegin);
      x.addEdge(x.loadScalars[chunk.device], ready);
      const std::vector<uint32_t> groups = x.groupsIn(chunk);
      std::vector<uint32_t> later; // state that backwards read and forwards did not wait for
      for (uint32_t g : groups) {
        const uint32_t forwards = x.unshardIntervalOf(g, chunk.unitBegin, false),
                       backwards = x.unshardIntervalOf(g, chunk.unitBegin, true);
        if (forwards != kNone)
          for (uint32_t op : imageOps(forwards, chunk.device))
            x.addEdge(op, ready);
        if (backwards != forwards && backwards != kNone)
          for (uint32_t op : imageOps(backwards, chunk.device))
            later.push_back(op);
      }
      for (uint32_t c : chunk.cells)
        x.addEdge(ready, x.cells[c].forward.begin);
      if (later.empty())
        continue;
      const uint32_t again = x.addOp(0, kShortPriority, 0, -chunk.unitBegin);
      for (uint32_t op : later)
        x.addEdge(op, again);
      for (uint32_t c : chunk.cells) // W follows its B. If B has no work, later instructions could
                                     // pass it before the image is complete
        x.addEdge(
            again,
            (x.hasWork(c, TaskKind::Backward) ? x.cells[c].backward : x.cells[c].weights).begin);
    }
  }

  void reductionsAndUpdates() {
    norms.resize(x.plan.devices.size());
    for (uint32_t g : byCompletion()) {
      bool sole = x.ownersOf[g].size() == 1 && x.contributorsOf[g].size() == 1 &&
                  x.ownersOf[g][0] == x.contributorsOf[g][0];
      if (!sole)
        reductions[g] = addReduction(x, g);
      for (uint32_t d : x.ownersOf[g]) {
        uint32_t norm = addNorm(g, d);
        if (!norms[d].empty())
          x.addEdge(norms[d].back().op, norm);
        norms[d].push_back({g, norm, leave(*x.findGroupState(d, g), d, norm)});
        if (sole)
          reductions[g].begins.push_back({d, norm});
        CollectiveOps::on(reductions[g].ends, d, [&](uint32_t op) { x.addEdge(op, norm); });
        x.addEdge(x.loadScalars[d], norm);
      }
    }
    done.resize(x.plan.devices.size());
    for (const ModelChunk &chunk : x.chunks) {
      uint32_t all = x.addOp(0, kShortPriority, 0, chunk.unitBegin);
      for (uint32_t c : chunk.cells)
        x.addEdge(x.cells[c].last().end, all);
      for (uint32_t g : x.groupsIn(chunk)) {
        auto precede = [&](uint32_t device) {
          CollectiveOps::on(reductions[g].begins, device, [&](uint32_t op) { x.addEdge(all, op); });
        };
        precede(chunk.device);
        auto replica =
            std::lower_bound(x.replicas.begin(), x.replicas.end(), std::pair(chunk.device, 0u));
        for (; replica != x.replicas.end() && replica->first == chunk.device; ++replica)
          precede(replica->second);
      }
      done[chunk.device].push_back({&chunk, all});
    }
    for (auto [like, replica] : x.replicas) {
      done[replica] = done[like];
      x.sumLoss[replica] = x.sumLoss[like];
    }
    decide();
  }

private:
  /// Returns the groups with owners in the order in which their gradients are complete: after the
  /// backward of their first unit, late units first, then by index. A device adds its norms in this
  /// order, independent of the list, so that the bits of the clip factor do not depend on when a
  /// group's gradients are complete or where they are stored.
  std::vector<uint32_t> byCompletion() const {
    std::vector<uint32_t> groups;
    for (uint32_t g = 0; g < x.ownersOf.size(); ++g)
      if (!x.ownersOf[g].empty())
        groups.push_back(g);
    std::stable_sort(groups.begin(), groups.end(), [&](uint32_t a, uint32_t b) {
      return x.completionRank(a) < x.completionRank(b);
    });
    return groups;
  }

  /// A gather is needed if a reader does not own the whole group.
  bool needsGather(uint32_t w) {
    const uint32_t g = x.unshardIntervals[w].group;
    if (!x.summary.groups(g).trainable())
      return false;
    int64_t elements = x.summary.groups(g).elements();
    return std::any_of(x.unshardIntervals[w].readers.begin(), x.unshardIntervals[w].readers.end(),
                       [&](uint32_t d) {
                         const GroupState &h = *x.findGroupState(d, g);
                         return h.owned.elements() != elements;
                       });
  }

  /// Returns the devices that copy their persistent parameters to a window's image: owners if it is
  /// gathered, else readers, each of which has all of it.
  const std::vector<uint32_t> &keepersOf(uint32_t w) {
    return needsGather(w) ? x.ownersOf[x.unshardIntervals[w].group] : x.unshardIntervals[w].readers;
  }

  /// Returns the ops that complete a window's image on one of its readers.
  std::vector<uint32_t> imageOps(uint32_t w, uint32_t device) const {
    std::vector<uint32_t> ops;
    if (const CollectiveOps &gather = x.unshardIntervals[w].gather; gather.exists()) {
      CollectiveOps::on(gather.ends, device, [&](uint32_t op) { ops.push_back(op); });
      return ops;
    }
    for (const ImageOps &made : unshardedParamsMade[w])
      if (made.device == device)
        ops.push_back(made.last);
    return ops;
  }

  /// Limits the number of images on a device at the same time: see UnshardHints.
  void limitUnshardedParams() {
    if (!x.hints)
      return;
    for (const UnshardHints::Limit &limit : x.hints->limits) {
      const uint32_t w = x.firstUnshardInterval[limit.group] + limit.interval;
      std::vector<uint32_t> begins;
      x.unshardIntervals[w].gather.on(limit.device, [&](uint32_t op) { begins.push_back(op); });
      for (const ImageOps &made : unshardedParamsMade[w])
        if (made.device == limit.device)
          begins.push_back(made.first);
      if (begins.empty())
        continue;
      const uint32_t free = x.addOp(0, kShortPriority, 0, 0);
      for (const TaskId &task : limit.tasks)
        x.addEdge(x.cells[task.cell].of(task.kind).end, free);
      for (uint32_t op : begins)
        x.addEdge(free, op);
    }
  }

  uint64_t size(uint32_t g) const { return elementBytes(x.summary.groups(g).type()); }

  uint64_t gatheredSize(uint32_t g) const { return elementBytes(x.computeType(g)); }

  /// Adds the ops that make a device's part of a window's image from separately stored parameters:
  /// copied from the host, and cast or copied to their position in the image.
  void gatherUnshardedParam(uint32_t w, const GroupState &h, uint32_t d) {
    const uint32_t g = h.group;
    if (h.readsPersistentBuffer || x.summary.groups(g).elements() == 0 ||
        (x.hasMaster(g) && !x.casts(g) && h.at.parameters == MemoryTier::Device))
      return;
    for (const Compact::Run &run : h.owned.runs())
      gatherUnshardedParam(w, h, d, run, x.offsetInUnsharded(d, h, w, run));
    if (!h.owns())
      for (const Compact::Run &run : h.read.runs())
        gatherUnshardedParam(w, h, d, run, run.place);
  }

  void gatherUnshardedParam(uint32_t w, const GroupState &h, uint32_t d, const Compact::Run &run,
                            int64_t place) {
    const uint32_t g = h.group;
    const bool host = h.at.parameters == MemoryTier::Host, casts = x.casts(g);
    const Value value = Value::parameters(g, {run.begin, run.end});
    const Region home = elementRegion(h.persistentShard, run.place, run.size(), size(g));
    const Region image =
        elementRegion(x.unshardedParamOf(h, w), place, run.size(), gatheredSize(g));
    ImageOps made{d, kNone, kNone};
    if (!casts) {
      made.first = made.last = bring(w, d, host, home, image, value);
    } else if (host) {
      const Region here =
          region(x.addBuffer(d, home.bytes, MemoryCategory::UpdateStaging), 0, home.bytes);
      made.first = bring(w, d, host, home, here, value);
      made.last = addCast(w, d, here, image, value);
      x.addEdge(made.first, made.last);
    } else {
      made.first = made.last = addCast(w, d, home, image, value);
    }
    unshardedParamsMade[w].push_back(made);
  }

  uint32_t bring(uint32_t w, uint32_t d, bool host, Region home, Region here, Value value) {
    if (host)
      return x.addTierCopy(d, kLoad, x.gatherPhase(w), home, here, value,
                           priorityOf(kShortPriority, 0, x.gatherRank(w)));
    const uint32_t op = x.addOp(x.costs->copy(d, here.bytes), kShortPriority, 0, x.gatherRank(w));
    x.addInstruction(d, kCompute);
    x.describeCopy(home, here, value, x.gatherPhase(w));
    x.addAccess(op, home.arena);
    x.addAccess(op, here.arena);
    return op;
  }

  /// Casts an owned run of a group, including padding, because gathers transfer it.
  uint32_t addCast(uint32_t w, uint32_t d, Region from, Region image, Value value) {
    uint32_t op = x.addOp(x.costs->norm(d, value.end - value.begin), kShortPriority, 0,
                          x.gatherRank(w)); // like a norm, it reads every element once
    x.addInstruction(d, kCompute);
    x.describeCopy(from, image, value, x.gatherPhase(w), OpKind::Cast);
    x.addEdge(x.loadScalars[d], op);
    x.addAccess(op, from.arena);
    x.addAccess(op, image.arena);
    return op;
  }

  /// Copies reduced gradients to the host, where they stay until the update. \returns ops by owned
  /// run; none if the gradients stay on the device
  std::vector<uint32_t> leave(const GroupState &h, uint32_t d, uint32_t norm) {
    std::vector<uint32_t> ops;
    if (h.at.gradients == MemoryTier::Device)
      return ops;
    for (const Compact::Run &run : h.owned.runs()) {
      auto at = [&](uint32_t buffer, int64_t place) {
        return elementRegion(buffer, place, run.size(), size(h.group));
      };
      ops.push_back(x.addTierCopy(
          d, kReport, bundle::GRAD_NORM, at(h.reduced, h.reducedPosition(run)),
          at(h.hostGradients, run.place), Value::reducedGradients(h.group, {run.begin, run.end}),
          x.ops[norm].priority));
      x.addEdge(norm, ops.back());
    }
    return ops;
  }

  /// Adds the scaling of loss gradients on devices. The scale depends on the decision of the
  /// previous step, which the host does not know when it submits the step.
  void scaleLossGradient() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      std::vector<uint32_t> users;
      for (uint32_t c : x.cellsOf[d])
        if (x.hasLoss(x.plan.cells[c]))
          users.push_back(c);
      if (users.empty())
        continue;
      uint32_t op = x.addOp(0, kShortPriority, 0, x.plan.cells[users.front()].unitBegin);
      x.addInstruction(d, kCompute);
      x.describe(OpKind::ScaleLossGradient, d);
      x.addEdge(x.loadScalars[d], op);
      for (uint32_t c : users)
        x.addEdge(op, x.cells[c].backward.begin);
    }
  }

  uint32_t addNorm(uint32_t g, uint32_t d) {
    const GroupState &h = *x.findGroupState(d, g);
    uint32_t op =
        x.addOp(x.costs->norm(d, h.owned.elements()), kShortPriority, 0, x.completionRank(g));
    x.addInstruction(d, kCompute);
    x.describe(OpKind::Norm, g);
    const Compact::Runs runs = h.owned.runs();
    if (!x.summary.groups(g).running_stat() &&
        std::any_of(runs.begin(), runs.end(),
                    [&](const Compact::Run &run) { return x.hasRuns(g, run.begin, run.end); }))
      x.addAccess(op, h.reduced);
    return op;
  }

  void decide() {
    std::vector<uint32_t> members;
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d)
      if (x.optimizerStep[d] != kNone || !x.sumLoss[d].empty())
        members.push_back(d);
    if (members.empty())
      return;

    const uint32_t total = members.size() > 1 ? addSum(members) : kNone;
    uint32_t reporter = kNone, decision = kNone;
    for (uint32_t d : members) {
      if (x.optimizerStep[d] == kNone)
        continue;
      const uint32_t op = byGroup() ? decideFirst(d) : decideLast(d, total);
      if (reporter == kNone) {
        reporter = d;
        decision = op;
      }
      lowerUpdates(x, d, op, updatesOf(d));
    }

    const bool decided = reporter != kNone;
    if (!decided)
      reporter = members.front();
    uint32_t report = x.addOp(0, kShortPriority, 0, 0);
    x.addInstruction(reporter, kReport);
    x.describe(OpKind::ReadMetrics, decided);
    if (decided)
      x.addEdge(decision, report);
    if (!decided || byGroup())
      afterSums(reporter, total, report);
  }

  bool byGroup() const { return x.plan.optimizerStep == OptimizerStep::InBackward; }

  /// Adds the all-reduce of the sums of all members.
  uint32_t addSum(const std::vector<uint32_t> &members) {
    const uint32_t total = x.addOp(0, kShortPriority, 0, 0);
    x.ops[total].bytes = static_cast<double>(kSumsBytes);
    Collective collective;
    collective.value = Value::sums();
    collective.phase = bundle::READ_METRICS;
    collective.type = bundle::F64;
    collective.members = x.tables.reductions.ownerOrder(members); // as devices gather
    x.describeCollective(Work::Sum, std::move(collective));
    for (uint32_t d : members)
      x.addPart(d, region(x.scalars[d], kScalarsBytes, kSumsBytes), {});
    for (uint32_t d : members) {
      x.addEdge(x.loadScalars[d], total);
      afterSums(d, kNone, total);
    }
    return total;
  }

  /// Makes `op` wait for sums. \param total  op of the sums of all devices; kNone: the device's own
  /// sums
  void afterSums(uint32_t d, uint32_t total, uint32_t op) {
    if (total != kNone)
      return x.addEdge(total, op);
    for (const Norm &norm : norms[d])
      x.addEdge(norm.op, op);
    for (uint32_t sum : x.sumLoss[d])
      x.addEdge(sum, op);
  }

  uint32_t addDecision(uint32_t d, QueueIndex queue, bool first) {
    const uint32_t op = x.addOp(0, kShortPriority, 0, 0);
    x.addInstruction(d, queue);
    x.describe(OpKind::ClipAndCheck, first);
    return op;
  }

  uint32_t decideLast(uint32_t d, uint32_t total) {
    const uint32_t op = addDecision(d, kCompute, /*first=*/false);
    afterSums(d, total, op);
    for (const ChunkEnd &before : done[d])
      x.addEdge(before.op, op);
    for (const GroupState &h : x.groupStates[d])
      for (uint32_t w = x.firstUnshardInterval[h.group];
           w < x.firstUnshardInterval[h.group + 1] && h.owns(); ++w)
        x.unshardIntervals[w].gather.on(d, [&](uint32_t gather) { x.addEdge(gather, op); });
    return op;
  }

  /// Decides before sums exist: it reads bytes that the load of the scalars clears and to which no
  /// instruction adds. It runs on the updates' queue, so that a snapshot that delays it delays
  /// nothing else.
  uint32_t decideFirst(uint32_t d) {
    const uint32_t op = addDecision(d, kUpdate, /*first=*/true);
    x.addEdge(x.loadScalars[d], op);
    return op;
  }

  /// Returns the updates of a device, in order. By step: early units first, because the next step
  /// gathers and runs them first. By group: as gradients are complete.
  std::vector<GroupUpdate> updatesOf(uint32_t d) {
    std::vector<const Norm *> order;
    for (const Norm &norm : norms[d])
      order.push_back(&norm);
    if (!byGroup())
      std::sort(order.begin(), order.end(), [&](const Norm *a, const Norm *b) {
        return std::pair(x.firstUnit(a->group), a->group) <
               std::pair(x.firstUnit(b->group), b->group);
      });
    std::vector<GroupUpdate> updates;
    updates.reserve(order.size());
    for (const Norm *norm : order) {
      const GroupState &h = *x.findGroupState(d, norm->group);
      updates.push_back({&h, norm->hostGradients, {}});
      if (byGroup())
        updates.back().after = beforeVersionOne(h, d, norm->op);
    }
    return updates;
  }

  /// Returns the predecessors of the ops that write a group's next version: its norm, and every
  /// instruction of the device that reads the present version in its home buffer.
  std::vector<uint32_t> beforeVersionOne(const GroupState &h, uint32_t d, uint32_t norm) {
    std::vector<uint32_t> before{norm};
    for (uint32_t w = x.firstUnshardInterval[h.group]; w < x.firstUnshardInterval[h.group + 1];
         ++w) {
      for (const ImageOps &made : unshardedParamsMade[w])
        if (made.device == d)
          before.push_back(made.last);
      if (h.readsPersistentBuffer)
        x.unshardIntervals[w].gather.on(d, [&](uint32_t op) { before.push_back(op); });
    }
    const bool inPlace = h.readsPersistentBuffer || (x.hasMaster(h.group) && !x.casts(h.group));
    for (const ChunkEnd &task : done[d])
      if (inPlace && h.reads && uses(*task.chunk, h.group))
        before.push_back(task.op);
    return before;
  }

  bool uses(const ModelChunk &chunk, uint32_t group) const {
    const auto &units = x.summary.groups(static_cast<int>(group)).units();
    auto unit =
        std::lower_bound(units.begin(), units.end(), static_cast<uint32_t>(chunk.unitBegin));
    return unit != units.end() && *unit < static_cast<uint32_t>(chunk.unitEnd);
  }

  /// Norm of the elements of a group that a device owns.
  struct Norm {
    uint32_t group, op;
    std::vector<uint32_t> hostGradients; ///< ops that copy its gradients to the host
  };
  /// End of a chunk's tasks.
  struct ChunkEnd {
    const ModelChunk *chunk;
    uint32_t op;
  };

  PlanLowering &x;
  std::vector<std::vector<Norm>> norms;    ///< per device, in the order in which gradients are
                                           ///< complete
  std::vector<std::vector<ChunkEnd>> done; ///< per device
  std::vector<CollectiveOps> reductions;   ///< per group
  /// A device's part of a window's image: first and last op that make it.
  struct ImageOps {
    uint32_t device, first, last;
  };
  std::vector<std::vector<ImageOps>> unshardedParamsMade; ///< per window
};

} // namespace

void zorse::step::lowerState(PlanLowering &x, bool reductions) {
  StateLowering state(x);
  state.loadsAndGathers();
  if (reductions)
    state.reductionsAndUpdates();
}
