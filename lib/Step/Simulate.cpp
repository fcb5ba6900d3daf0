// List scheduling on a simulated clock: the global list is the order in which entries start.
//
// Every queue of a device serves one entry at a time; a transfer or a collective needs the queues of all its halves at once. An entry starts when
// what its predecessors make is there, so the list is an order in which the step can run with nothing buffered. How long bytes take is found when
// they start, beside what is under way then; their latency keeps no queue busy.

#include "Expansion.h"

#include <algorithm>
#include <functional>
#include <queue>

using namespace zorse::step;

namespace {

using zorse::sim::Passage;

struct Key {
  uint64_t priority;
  uint32_t op;
  bool operator>(const Key &o) const { return priority != o.priority ? priority > o.priority : op > o.op; }
};

using Heap = std::priority_queue<Key, std::vector<Key>, std::greater<Key>>;

struct Event {
  double time;
  uint32_t op;
  uint8_t what; ///< bits: kFree, kArrived
  bool operator>(const Event &o) const { return time != o.time ? time > o.time : op != o.op ? op > o.op : what > o.what; }
};
enum : uint8_t { kFree = 1, kArrived = 2 };

class Simulator {
public:
  Simulator(Expansion &x, const Admission &admission) : x(x), traffic(x.costs->network()), admission(admission) {
    size_t n = x.ops.size();
    x.link();
    missing.assign(n, 0);
    for (uint32_t after : x.nextOps)
      ++missing[after];
    busy.assign(x.plan.devices.size() * kQueues, 0);
    waiting.resize(busy.size());
    finished.assign(n, 0);
    x.list.reserve(n);
    if (!admission.groups.empty())
      prepareAdmission();
  }

  bool run(std::string &error) {
    for (uint32_t op = 0; op < x.ops.size(); ++op)
      if (missing[op] == 0)
        ready(op);
    while (true) {
      startCandidates();
      if (!events.empty()) {
        now = events.top().time;
        while (!events.empty() && events.top().time == now) {
          Event event = events.top();
          events.pop();
          if (event.what & kFree)
            freeQueues(event.op);
          if (event.what & kArrived)
            finish(event.op);
        }
        continue;
      }
      if (!admitOldest()) // nothing can run: too few samples in flight, or too little memory, for this tiling here
        break;
    }
    if (count == x.ops.size())
      return true;
    error = describeCycle();
    return false;
  }

private:
  Key keyOf(uint32_t op) const { return {x.ops[op].priority, op}; }

  void ready(uint32_t op) {
    uint32_t cell = x.ops[op].cell;
    if (cell != kNone && !admitted.empty() && !admitted[cell]) {
      if (blocked[cell].empty())
        oldest.push({priorityOf(0, x.plan.cells[cell].sampleBegin, x.plan.cells[cell].unitBegin), cell});
      blocked[cell].push_back(op);
    } else {
      candidates.push(keyOf(op));
    }
  }

  size_t queueOf(uint32_t half) const { return x.halfQueues[half]; }

  void startCandidates() {
    while (!candidates.empty()) {
      Key key = candidates.top();
      candidates.pop();
      Op &op = x.ops[key.op];
      if (defers(key.op)) {
        heldBack[deviceOf(key.op)].push_back(key);
        for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
          offer(queueOf(h));
        continue;
      }
      size_t blocker = SIZE_MAX;
      for (uint32_t h = op.halves.begin; h < op.halves.end && blocker == SIZE_MAX; ++h)
        if (busy[queueOf(h)])
          blocker = queueOf(h);
      if (blocker != SIZE_MAX) {
        waiting[blocker].push(key);
        for (uint32_t h = op.halves.begin; h < op.halves.end; ++h) // its other queues may serve someone else meanwhile
          offer(queueOf(h));
        continue;
      }
      for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
        busy[queueOf(h)] = 1;
      if (!deferring.empty())
        beginBackward(key.op);
      Passage passage = pass(op);
      op.start = now;
      op.end = passage.arrived;
      ++count;
      if (op.halves.size() != 0) {
        op.position = static_cast<uint32_t>(x.list.size());
        x.list.push_back(key.op);
      }
      if (passage.sent < passage.arrived) {
        events.push({passage.sent, key.op, kFree});
        events.push({passage.arrived, key.op, kArrived});
      } else {
        events.push({passage.arrived, key.op, kFree | kArrived});
      }
    }
  }

  Passage pass(const Op &op) {
    if (op.work == Work::Fixed) {
      size_t queue = op.halves.size() != 0 ? queueOf(op.halves.begin) : 0;
      bool computes = op.halves.size() != 0 && kQueueTable[queue % kQueues].kind == zorse::bundle::COMPUTE;
      double end = computes ? traffic.compute(static_cast<uint32_t>(queue / kQueues), op.duration, now) : now + op.duration;
      return {end, end};
    }
    if (op.work == Work::Transfer)
      return traffic.send(op.from, op.to, op.bytes, now);
    const Collective &collective = x.graph.collectives[op.from];
    if (op.work == Work::Sum)
      return traffic.allReduce(collective.members, op.bytes, now, x.costs->reduceAlgorithm());
    pieces.clear();
    double size = static_cast<double>(elementBytes(collective.type));
    for (const Collective::Shard &shard : collective.shards)
      pieces.push_back({shard.device, static_cast<double>(shard.end - shard.begin) * size});
    return op.work == Work::Gather ? traffic.allGather(pieces, collective.members, now, x.costs->gatherAlgorithm())
                                   : traffic.reduceScatter(collective.members, pieces, now, x.costs->reduceAlgorithm());
  }

  void offer(size_t queue) {
    if (busy[queue] || waiting[queue].empty())
      return;
    candidates.push(waiting[queue].top());
    waiting[queue].pop();
  }

  void freeQueues(uint32_t index) {
    const Op &op = x.ops[index];
    for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
      busy[queueOf(h)] = 0;
    for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
      offer(queueOf(h));
  }

  void finish(uint32_t index) {
    finished[index] = 1;
    for (uint32_t i = x.firstNext[index]; i < x.firstNext[index + 1]; ++i)
      if (--missing[x.nextOps[i]] == 0)
        ready(x.nextOps[i]);
    if (!admitted.empty())
      leave(index);
  }

  // ---- Admission: a cell's first ops wait until its group has room.

  void prepareAdmission() {
    admitted.assign(x.cells.size(), 1);
    blocked.resize(x.cells.size());
    cellOf.assign(x.ops.size(), kNone);
    groupOf.assign(x.cells.size(), kNone);
    cursor.assign(admission.groups.size(), 0);
    rows.assign(admission.groups.size(), 0);
    used.assign(x.plan.devices.size(), 0);
    if (!admission.holds.empty()) {
      deferring.assign(x.plan.devices.size(), 0);
      heldBack.resize(x.plan.devices.size());
    }
    groupsOf.resize(x.plan.devices.size());
    for (uint32_t g = 0; g < admission.groups.size(); ++g) {
      groupsOf[admission.groups[g].device].push_back(g);
      for (uint32_t c : admission.groups[g].cells) {
        groupOf[c] = g;
        admitted[c] = 0;
        cellOf[x.cells[c].backward] = cellOf[x.cells[c].last()] = c;
      }
    }
    for (uint32_t d = 0; d < groupsOf.size(); ++d)
      admit(d);
  }

  void enter(uint32_t cell) {
    admitted[cell] = 1;
    const Cell &c = x.plan.cells[cell];
    rows[groupOf[cell]] += c.rows();
    if (!admission.holds.empty())
      used[c.device] += admission.holds[cell];
    for (uint32_t op : blocked[cell])
      candidates.push(keyOf(op));
    blocked[cell].clear();
  }

  /// What holds and deferred blocks take of a device's budget.
  uint64_t taken(uint32_t device, uint64_t deferredMore = 0) const {
    return used[device] + std::max(deferring[device] + deferredMore, admission.aside[device]);
  }

  bool isBackward(uint32_t op) const {
    return !deferring.empty() && cellOf[op] != kNone && op == x.cells[cellOf[op]].backward && op != x.cells[cellOf[op]].last();
  }
  uint32_t deviceOf(uint32_t op) const { return x.plan.cells[cellOf[op]].device; }

  /// Whether a backward has to wait for a W, which can run: what it leaves for its own W has no room. One always has.
  bool defers(uint32_t op) const {
    if (!isBackward(op))
      return false;
    uint32_t device = deviceOf(op);
    return deferring[device] > 0 && taken(device, admission.deferred[cellOf[op]]) > admission.budget[device];
  }

  void beginBackward(uint32_t op) {
    if (isBackward(op))
      deferring[deviceOf(op)] += admission.deferred[cellOf[op]];
  }

  /// Admits what there is room for on a device: of its groups' next cells the one that is due first.
  void admit(uint32_t device) {
    while (true) {
      uint32_t best = kNone;
      uint64_t bestPriority = UINT64_MAX;
      for (uint32_t g : groupsOf[device]) {
        const Admission::Group &group = admission.groups[g];
        while (cursor[g] < group.cells.size() && admitted[group.cells[cursor[g]]])
          ++cursor[g];
        if (cursor[g] == group.cells.size())
          continue;
        uint32_t cell = group.cells[cursor[g]];
        if (rows[g] > 0 && static_cast<double>(rows[g] + x.plan.cells[cell].rows()) > group.mostRows)
          continue;
        uint64_t priority = x.ops[x.cells[cell].forward].priority;
        if (best == kNone || priority < bestPriority) {
          best = cell;
          bestPriority = priority;
        }
      }
      if (best == kNone || (!admission.holds.empty() && used[device] > 0 && taken(device) + admission.holds[best] > admission.budget[device]))
        return;
      enter(best);
    }
  }

  void leave(uint32_t op) {
    uint32_t cell = cellOf[op];
    if (cell == kNone)
      return;
    const Cell &c = x.plan.cells[cell];
    if (op == x.cells[cell].backward)
      rows[groupOf[cell]] -= c.rows();
    if (op == x.cells[cell].last() && !admission.holds.empty()) {
      used[c.device] -= admission.holds[cell];
      if (op != x.cells[cell].backward)
        deferring[c.device] -= admission.deferred[cell];
      for (const Key &key : heldBack[c.device])
        candidates.push(key);
      heldBack[c.device].clear();
    }
    admit(admission.groups[groupOf[cell]].device);
  }

  /// Of the cells that could start but for admission the one with the oldest samples: it leads to what frees memory.
  bool admitOldest() {
    while (!oldest.empty()) {
      uint32_t cell = oldest.top().op;
      oldest.pop();
      if (admitted[cell])
        continue;
      enter(cell);
      return true;
    }
    return false;
  }

  // ---- Messages.

  std::string describe(uint32_t op) const {
    if (x.ops[op].halves.size() == 0)
      return "the end of all forwards";
    const Entry &entry = x.graph.entries[x.ops[op].halves.begin];
    switch (entry.kind) {
    case EntryKind::Compute:
      switch (entry.task) {
      case zorse::bundle::Compute::F:
        return "F of " + describeCell(x.plan, entry.cell);
      case zorse::bundle::Compute::B:
        return "B of " + describeCell(x.plan, entry.cell);
      case zorse::bundle::Compute::W:
        return "W of " + describeCell(x.plan, entry.cell);
      default:
        break;
      }
      break;
    case EntryKind::Send: {
      const Entry &other = x.graph.entries[x.ops[op].halves.begin + 1];
      return std::string("transfer of ") + (entry.phase == zorse::bundle::BACKWARD ? "gradient of '" : "'") +
             x.summary.values(entry.value.id).name() + "', samples " + std::to_string(entry.value.begin) + "-" + std::to_string(entry.value.end) +
             ", from " + x.plan.devices[entry.id].name + " to " + x.plan.devices[other.id].name;
    }
    case EntryKind::Copy:
      return "copy of '" + x.summary.values(entry.value.id).name() + "' on " + x.plan.devices[entry.id].name;
    default:
      break;
    }
    return "entry on " + x.plan.devices[entry.id].name;
  }

  /// Follows unfinished predecessors until one repeats.
  std::string describeCycle() const {
    if (x.options.timeOnly)
      return "the order cannot run";
    std::vector<uint32_t> before(x.ops.size(), kNone);
    for (auto [from, to] : x.edges)
      if (!finished[from] && !finished[to] && before[to] == kNone)
        before[to] = from;
    uint32_t at = kNone;
    for (uint32_t op = 0; op < x.ops.size() && at == kNone; ++op)
      if (!finished[op] && before[op] != kNone)
        at = op;
    std::vector<uint32_t> seen(x.ops.size(), 0);
    while (!seen[at]) {
      seen[at] = 1;
      at = before[at];
    }
    std::string text = "the order cannot run; this cycle of tasks waits for itself:";
    uint32_t op = at;
    size_t lines = 0;
    do {
      if (++lines <= 24)
        text += "\n  " + describe(op) + " waits for";
      op = before[op];
    } while (op != at);
    if (lines > 24)
      text += "\n  ... " + std::to_string(lines - 24) + " more, then";
    return text + "\n  " + describe(at) + "\nmove a forward before, or a backward after, the task that waits for it";
  }

  Expansion &x;
  zorse::sim::Traffic traffic;
  const Admission &admission;
  double now = 0;
  size_t count = 0;
  std::vector<uint32_t> missing;
  std::vector<uint8_t> busy, finished;
  std::vector<Heap> waiting;
  Heap candidates;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
  std::vector<zorse::sim::Piece> pieces;

  std::vector<uint8_t> admitted;               ///< per cell; empty: no admission
  std::vector<std::vector<uint32_t>> blocked;  ///< per cell: ops that wait for its admission
  Heap oldest;                                 ///< cells with blocked ops, by first sample
  std::vector<uint32_t> cellOf;                ///< per op: the cell it frees
  std::vector<uint32_t> groupOf;               ///< per cell
  std::vector<std::vector<uint32_t>> groupsOf; ///< per device
  std::vector<size_t> cursor;                  ///< per group: first cell that is not admitted
  std::vector<int64_t> rows;                   ///< per group: in flight
  std::vector<uint64_t> used;                  ///< per device: bytes held
  std::vector<uint64_t> deferring;             ///< per device: deferred bytes between B and W; empty: memory is not limited
  std::vector<std::vector<Key>> heldBack;      ///< per device: backwards that wait for a W
};

} // namespace

bool zorse::step::simulate(Expansion &x, const Admission &admission, std::string &error) {
  x.list.clear();
  for (Op &op : x.ops)
    op.position = kNone;
  return Simulator(x, admission).run(error);
}
