// List scheduling on a simulated clock. The global list is the order in which instructions start.
//
// A queue of a device executes one instruction at a time. A transfer or a collective needs the
// queues of all its halves at the same time. An instruction starts when the results of its
// predecessors are available, so the step can run in this order without buffering. The duration of
// a transfer is computed when it starts, and depends on the transfers in progress. Latency does not
// occupy a queue.
//
// With Communication::Eager, the halves of a transfer start separately: the sender's as soon as its
// data are available, the receiver's after the first byte has arrived.

#include "LowerCollectives.h"
#include "MinHeap.h"
#include "PlanLowering.h"
#include "ReadyCollectives.h"
#include "Tables.h"

#include "zorse/Simulation/UniformParts.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

using namespace zorse::step;

namespace {

using zorse::sim::TransferTimes;

/// The rank of a priority (priorityOf): all bits set is the last one, none the first.
constexpr uint64_t kPriorityRank = uint64_t(7) << 61;

/// End of an op: its queues are free, its result is available, or both; of an eager transfer also
/// the arrival of its first byte. The order of events at the same time does not matter, because no
/// op starts until all of them are processed.
struct Event {
  enum : uint32_t { kFree = 1, kArrived = 2, kReceivable = 4 };
  double time = INFINITY;
  uint32_t op = kNone, what = 0;
  bool operator<(const Event &other) const { return time < other.time; }
};

class Simulator {
public:
  Simulator(const PlanLowering &x, const Order &order, ListSchedule &listed)
      : x(x), opCount(static_cast<uint32_t>(x.ops.size())), order(order), listed(listed),
        traffic(x.tables.traffic), admission(order.admission), collectives(x),
        missing(x.tables.listScratch.missing), finished(x.tables.listScratch.finished),
        next(x.tables.listScratch.next) {
    traffic.reset();
    const size_t n = order.priority.size();
    linkEdges(order.edges, n, next);
    missing.assign(n, 0);
    for (uint32_t after : x.next.items)
      ++missing[after];
    for (uint32_t after : next.items)
      ++missing[after];
    busy.assign(x.plan.devices.size() * kQueues, 0);
    if (x.plan.communication == Communication::Eager)
      messages.resize(opCount);
    if (x.plan.communication != Communication::Overlapped) {
      heldBy.assign(x.plan.devices.size(), SIZE_MAX);
      holds.assign(x.plan.devices.size(), 0);
    }
    heapOf.assign(busy.size(), kNone);
    finished.assign(n, 0);
    listed.ops.reserve(n);
    findLeaders();
    if (!admission.groups.empty())
      prepareAdmission();
  }

  zorse::Status run() {
    for (uint32_t op = 0; op < missing.size(); ++op)
      if (missing[op] == 0)
        ready(op);
    while (true) {
      startCandidates();
      if (!events.empty()) {
        now = events.top().time;
        do {
          const Event event = events.pop();
          if (event.what & Event::kFree)
            freeQueues(event.op);
          if (event.what & Event::kReceivable)
            candidates.push({heapKey(receivePriority(event.op), event.op)});
          if (event.what & Event::kArrived)
            finish(event.op);
        } while (events.top().time == now);
        continue;
      }
      if (!admitOldest()) // no op can start: the limits of samples in flight or of memory are too
                          // small for this tiling
        break;
    }
    if (count == missing.size())
      return zorse::Status::success();
    return zorse::userError(describeCycle(x, order, finished));
  }

private:
  void ready(uint32_t op) {
    const uint32_t cell = opOf(op).cell;
    if (!opOf(op).needsAdmission || admitted.empty() || admitted[cell] || isEager(op))
      return apply(op);
    if (blocked[cell] == kNone)
      oldest.push({heapKey(
          priorityOf(0, x.plan.cells[cell].sampleBegin, x.plan.cells[cell].unitBegin), cell)});
    blockedNext[op] = blocked[cell];
    blocked[cell] = op;
  }

  void apply(uint32_t op) {
    const ReadyOp candidate{heapKey(isEager(op) ? sendPriority(op) : order.priority[op], op)};
    if (!collectives.has(op) || collectives.add(candidate))
      candidates.push(candidate);
  }

  size_t queueOf(uint32_t instruction) const { return x.instructionQueues[instruction]; }

  bool blocks(const ScheduledOp &op) const { return !heldBy.empty() && op.work != Work::Fixed; }

  // ---- Eager transfers. A framework's program sends right after the task that computes the data,
  // and receives right before the task that needs them: a send precedes the device's other work, a
  // receive follows it.

  /// A transfer whose ends take part at different times. Its first half is the sender's.
  struct Message {
    bool sent = false;
    double seconds = 0; ///< of each half
    double arrived = 0; ///< time of the last byte's arrival
  };

  bool isEager(uint32_t op) const { return !messages.empty() && opOf(op).work == Work::Transfer; }
  uint64_t sendPriority(uint32_t op) const { return order.priority[op] & ~kPriorityRank; }
  uint64_t receivePriority(uint32_t op) const { return order.priority[op] | kPriorityRank; }

  Span sendOf(uint32_t op) const {
    return {opOf(op).instructions.begin, opOf(op).instructions.begin + 1};
  }
  Span receiveOf(uint32_t op) const {
    return {opOf(op).instructions.begin + 1, opOf(op).instructions.end};
  }

  /// Returns the halves that start together, of an op that is a candidate.
  Span halvesOf(uint32_t op) const {
    return !isEager(op) ? opOf(op).instructions : messages[op].sent ? receiveOf(op) : sendOf(op);
  }

  void send(uint32_t op, const TransferTimes &times) {
    messages[op] = {true, times.sent - now, times.arrived};
    events.push({times.sent, op, Event::kFree});
    events.push({now + (times.arrived - times.sent), op, Event::kReceivable});
  }

  /// The receiver's half takes as long as the sender's; bytes that have arrived before wait in a
  /// buffer.
  void receive(uint32_t op) {
    listed.endTime[op] = std::max(messages[op].arrived, now + messages[op].seconds);
    events.push({listed.endTime[op], op, Event::kArrived});
  }

  // ---- Queues.

  size_t computing(uint32_t instruction) const {
    return queueOf(instruction) / kQueues * kQueues + kCompute;
  }

  bool shares(uint32_t instruction) const {
    return sharedHardwareQueue(queueOf(instruction) % kQueues) != kQueues;
  }
  size_t shared(uint32_t instruction) const {
    return queueOf(instruction) / kQueues * kQueues +
           sharedHardwareQueue(queueOf(instruction) % kQueues);
  }

  /// Returns the first queue that an op needs and that is busy; `busy.size()` if there is none. If
  /// communication blocks, the next transfer on the blocking queue may start before the previous
  /// bytes have arrived.
  size_t missingQueue(uint32_t index) const {
    const ScheduledOp &op = opOf(index);
    const Span halves = halvesOf(index);
    for (uint32_t h = halves.begin; h < halves.end; ++h) {
      if (busy[queueOf(h)])
        return queueOf(h);
      if (shares(h) && busy[shared(h)])
        return shared(h);
      if (blocks(op) && busy[computing(h)] && heldBy[queueOf(h) / kQueues] != queueOf(h))
        return computing(h);
    }
    return busy.size();
  }

  /// If a queue is free, makes the first op that waits for it a candidate. A candidate that cannot
  /// start passes the queue on.
  void offer(size_t queue) {
    if (queue < busy.size() && !busy[queue] && heapOf[queue] != kNone &&
        !waiting[heapOf[queue]].empty())
      candidates.push(waiting[heapOf[queue]].pop());
  }

  void waitFor(size_t queue, const ReadyOp &op) {
    if (heapOf[queue] == kNone) {
      heapOf[queue] = static_cast<uint32_t>(waiting.size());
      waiting.emplace_back();
    }
    waiting[heapOf[queue]].push({op.key, queue});
  }

  void startCandidates() {
    while (!candidates.empty())
      tryCandidate(candidates.pop());
  }

  void tryCandidate(ReadyOp candidate) {
    const uint32_t index = candidate.op();
    if (waitsForLeader(index) || defers(index)) {
      if (isFollower(opOf(index).cell))
        blockedOnLeader[index] = 1;
      else
        blockedOnMemory[deviceOf(index)].push_back(index);
      return offer(candidate.waitedFor);
    }
    if (collectives.has(index) && !collectives.isFirst(candidate))
      return offer(candidate.waitedFor);
    const size_t taken = missingQueue(index);
    if (taken < busy.size()) {
      waitFor(taken, candidate);
      return offer(candidate.waitedFor);
    }
    start(index);
    if (collectives.has(index))
      if (const ReadyOp next = collectives.remove(index); next.key != ReadyOp().key)
        candidates.push(next);
  }

  void occupy(const ScheduledOp &op, Span halves) {
    for (uint32_t h = halves.begin; h < halves.end; ++h) {
      busy[queueOf(h)] = 1;
      if (shares(h))
        busy[shared(h)] = 1;
      if (blocks(op)) {
        busy[computing(h)] = 1;
        heldBy[queueOf(h) / kQueues] = queueOf(h);
        ++holds[queueOf(h) / kQueues];
      }
    }
  }

  void start(uint32_t index) {
    const ScheduledOp &op = opOf(index);
    occupy(op, halvesOf(index));
    if (isEager(index) && messages[index].sent)
      return receive(index);
    if (!deferring.empty())
      beginBackward(index);
    if (!leaderOf.empty())
      beginMember(index);
    const TransferTimes times = pass(op);
    listed.startTime[index] = now;
    listed.endTime[index] = times.arrived;
    ++count;
    if (op.instructions.size() != 0) {
      listed.positions[index] = static_cast<uint32_t>(listed.ops.size());
      listed.ops.push_back(index);
      listed.instructions.push_back(op.instructions);
    }
    if (isEager(index)) {
      send(index, times);
    } else if (times.sent < times.arrived) {
      events.push({times.sent, index, Event::kFree});
      events.push({times.arrived, index, Event::kArrived});
    } else {
      events.push({times.arrived, index, Event::kFree | Event::kArrived});
    }
  }

  TransferTimes pass(const ScheduledOp &op) {
    if (op.work == Work::Fixed) {
      size_t queue = op.instructions.size() != 0 ? queueOf(op.instructions.begin) : 0;
      bool computes = op.instructions.size() != 0 &&
                      kQueueTable[queue % kQueues].kind == zorse::bundle::COMPUTE;
      if (computes)
        listed.busy[queue / kQueues] += op.duration;
      double end = computes
                       ? traffic.compute(static_cast<uint32_t>(queue / kQueues), op.duration, now)
                       : now + op.duration;
      return {end, end};
    }
    if (op.work == Work::Transfer)
      return traffic.send(op.from, op.to, op.bytes, now);
    const Collective &collective = x.graph.collectives[op.from];
    if (op.work == Work::Sum)
      return traffic.allReduce(collective.members, op.bytes, now);
    return zorse::sim::collectiveTimes(
        traffic, op.work == Work::Gather, collective.members, collective.shards, collective.parts,
        {static_cast<double>(elementBytes(collective.type)), collective.termBytes()}, now);
  }

  void freeQueues(uint32_t index) {
    if (!isEager(index))
      return freeQueues(opOf(index).instructions);
    freeQueues(sendOf(index));
    release(sendOf(index));
  }

  void freeQueues(Span halves) {
    for (uint32_t h = halves.begin; h < halves.end; ++h) {
      busy[queueOf(h)] = 0;
      if (shares(h))
        busy[shared(h)] = 0;
    }
    for (uint32_t h = halves.begin; h < halves.end; ++h) {
      offer(queueOf(h));
      if (shares(h))
        offer(shared(h));
    }
  }

  /// Unblocks compute and the other queues after the arrival of the last transfer that blocked a
  /// device.
  void release(Span halves) {
    for (uint32_t h = halves.begin; h < halves.end; ++h)
      if (--holds[queueOf(h) / kQueues] == 0) {
        busy[computing(h)] = 0;
        heldBy[queueOf(h) / kQueues] = SIZE_MAX;
      }
    for (uint32_t h = halves.begin; h < halves.end; ++h)
      offer(computing(h));
  }

  void finish(uint32_t index) {
    finished[index] = 1;
    if (isEager(index)) {
      freeQueues(receiveOf(index));
      release(receiveOf(index));
    } else if (blocks(opOf(index))) {
      release(opOf(index).instructions);
    }
    if (index < opCount && !x.next.items.empty())
      finishBefore(x.next[index]);
    if (!next.items.empty())
      finishBefore(next[index]);
    if (!admitted.empty())
      leave(index);
  }

  void finishBefore(CellIndices after) {
    for (uint32_t op : after)
      if (--missing[op] == 0)
        ready(op);
  }

  // ---- Admission: a cell's first ops wait until the limits of its group permit.
  //
  // The first device of a group decides for all devices that divide a cell, and the others begin
  // tasks in its order. If each admitted cells alone, two devices could wait for each other's
  // part of different cells.

  bool isFollower(uint32_t cell) const {
    return !leaderOf.empty() && cell != kNone && leaderOf[cell] != cell;
  }

  /// Calls `visit` with a cell and, if devices divide it, the cells of the other devices.
  template <typename Visit> void eachMember(uint32_t cell, Visit visit) const {
    visit(cell);
    if (!leaderOf.empty())
      for (uint32_t other : followers[cell])
        visit(other);
  }

  void findLeaders() {
    if (x.plan.groups.empty())
      return;
    leaderOf.resize(x.cells.size());
    followers.resize(x.cells.size());
    blockedOnLeader.assign(missing.size(), 0);
    begun.resize(x.plan.devices.size());
    for (uint32_t c = 0; c < x.cells.size(); ++c) {
      leaderOf[c] = x.plan.cells[c].member == 0 ? c : membersOf(x, c).front();
      if (leaderOf[c] != c)
        followers[leaderOf[c]].push_back(c);
    }
  }

  /// Returns the kind of task that begins with the op of a divided cell, if any.
  std::optional<TaskKind> beginsTask(uint32_t op) const {
    if (leaderOf.empty() || opOf(op).cell == kNone)
      return std::nullopt;
    const uint32_t cell = opOf(op).cell;
    if (leaderOf[cell] == cell && followers[cell].empty())
      return std::nullopt;
    for (TaskKind kind : {TaskKind::Forward, TaskKind::Backward, TaskKind::Weights})
      if (x.cells[cell].of(kind).begin == op)
        return kind;
    return std::nullopt;
  }

  bool waitsForLeader(uint32_t op) const {
    if (!beginsTask(op) || !isFollower(opOf(op).cell))
      return false;
    const auto &next = begun[deviceOf(op)];
    return next.empty() || next.front() != op;
  }

  /// Lets the other devices begin a task after the first, and a device the next task.
  void beginMember(uint32_t op) {
    const std::optional<TaskKind> kind = beginsTask(op);
    if (!kind)
      return;
    auto wake = [&](std::deque<uint32_t> &next) {
      if (!next.empty() && std::exchange(blockedOnLeader[next.front()], 0))
        apply(next.front());
    };
    if (isFollower(opOf(op).cell)) {
      begun[deviceOf(op)].pop_front();
      return wake(begun[deviceOf(op)]);
    }
    for (uint32_t c : followers[opOf(op).cell]) {
      begun[x.plan.cells[c].device].push_back(x.cells[c].of(*kind).begin);
      wake(begun[x.plan.cells[c].device]);
    }
  }

  void prepareAdmission() {
    admitted.assign(x.cells.size(), 1);
    blocked.assign(x.cells.size(), kNone);
    blockedNext.resize(missing.size());
    groupOf.assign(x.cells.size(), kNone);
    cursor.assign(admission.groups.size(), 0);
    rows.assign(admission.groups.size(), 0);
    used.assign(x.plan.devices.size(), 0);
    if (!admission.residentBytes.empty()) {
      deferring.assign(x.plan.devices.size(), 0);
      blockedOnMemory.resize(x.plan.devices.size());
    }
    groupsOf.resize(x.plan.devices.size());
    for (uint32_t g = 0; g < admission.groups.size(); ++g) {
      if (!isFollower(admission.groups[g].cells.front()))
        groupsOf[admission.groups[g].device].push_back(g);
      for (uint32_t c : admission.groups[g].cells) {
        groupOf[c] = g;
        admitted[c] = 0;
      }
    }
    for (uint32_t d = 0; d < groupsOf.size(); ++d)
      admit(d);
  }

  void enter(uint32_t cell) {
    eachMember(cell, [&](uint32_t c) { enterOne(c); });
  }

  void enterOne(uint32_t cell) {
    admitted[cell] = 1;
    const Cell &c = x.plan.cells[cell];
    rows[groupOf[cell]] += c.rows();
    if (!admission.residentBytes.empty())
      used[c.device] += admission.residentBytes[cell];
    for (uint32_t op = std::exchange(blocked[cell], kNone); op != kNone; op = blockedNext[op])
      apply(op);
  }

  /// Returns the bytes of a device's budget that held and deferred blocks occupy.
  uint64_t taken(uint32_t device, uint64_t deferredMore = 0) const {
    return used[device] +
           std::max(deferring[device] + deferredMore, admission.reservedForWeightGrad[device]);
  }

  bool isBackward(uint32_t op) const {
    if (deferring.empty() || opOf(op).cell == kNone)
      return false;
    const CellInfo &cell = x.cells[opOf(op).cell];
    return op == cell.backward.begin && cell.weights.exists();
  }
  uint32_t deviceOf(uint32_t op) const { return x.plan.cells[x.ops[op].cell].device; }

  /// Whether a backward must wait for a W that can run, because its deferred block does not fit.
  /// One deferred block is always allowed.
  bool defers(uint32_t op) const {
    if (!isBackward(op))
      return false;
    if (isFollower(x.ops[op].cell))
      return false;
    bool exceeds = false;
    eachMember(x.ops[op].cell, [&](uint32_t c) {
      const uint32_t device = x.plan.cells[c].device;
      exceeds = exceeds || (deferring[device] > 0 &&
                            taken(device, admission.deferred[c]) > admission.budget[device]);
    });
    return exceeds;
  }

  void beginBackward(uint32_t op) {
    if (!isBackward(op) || isFollower(x.ops[op].cell))
      return;
    eachMember(x.ops[op].cell,
               [&](uint32_t c) { deferring[x.plan.cells[c].device] += admission.deferred[c]; });
  }

  /// Whether a device of the cell has other cells admitted and not enough bytes left for this one.
  bool exceedsMemory(uint32_t cell) const {
    bool exceeds = false;
    eachMember(cell, [&](uint32_t c) {
      const uint32_t device = x.plan.cells[c].device;
      exceeds = exceeds || (used[device] > 0 &&
                            taken(device) + admission.residentBytes[c] > admission.budget[device]);
    });
    return exceeds;
  }

  /// Admits cells of a device while the limits permit, in the order of their forwards' priorities.
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
        if (rows[g] > 0 && static_cast<double>(rows[g] + x.plan.cells[cell].rows()) > group.maxRows)
          continue;
        uint64_t priority = order.priority[x.cells[cell].forward.begin];
        if (best == kNone || priority < bestPriority) {
          best = cell;
          bestPriority = priority;
        }
      }
      if (best == kNone || (!admission.residentBytes.empty() && exceedsMemory(best)))
        return;
      enter(best);
    }
  }

  uint32_t leadingDevice(uint32_t cell) const {
    return x.plan.cells[leaderOf.empty() ? cell : leaderOf[cell]].device;
  }

  void leave(uint32_t op) {
    const uint32_t cell = opOf(op).cell;
    if (cell == kNone || opOf(op).needsAdmission || groupOf[cell] == kNone)
      return;
    const Cell &c = x.plan.cells[cell];
    const uint32_t backward = x.cells[cell].backward.end, last = x.cells[cell].last().end;
    if (op != backward && op != last && leaderOf.empty())
      return; // nothing is free that was not free before
    if (op == backward)
      rows[groupOf[cell]] -= c.rows();
    if (op == last && !admission.residentBytes.empty()) {
      used[c.device] -= admission.residentBytes[cell];
      if (op != backward)
        deferring[c.device] -= admission.deferred[cell];
      for (uint32_t waits : std::exchange(blockedOnMemory[leadingDevice(cell)], {}))
        apply(waits);
    }
    const uint32_t leader = leaderOf.empty() ? cell : leaderOf[cell];
    admit(admission.groups[groupOf[leader]].device); // that of a pipeline has cells of several
  }

  /// Admits the cell with the oldest samples among those that wait only for admission, because it
  /// leads to tasks that free memory.
  bool admitOldest() {
    while (!oldest.empty()) {
      const auto cell = oldest.pop().op();
      if (admitted[cell])
        continue;
      enter(leaderOf.empty() ? cell : leaderOf[cell]);
      return true;
    }
    return false;
  }

  /// Indices after those of the expansion are barriers of the order.
  const ScheduledOp &opOf(uint32_t index) const { return index < opCount ? x.ops[index] : barrier; }

  const PlanLowering &x;
  const uint32_t opCount; ///< number of the expansion's ops; cached because it is read for every op
                          ///< and vector::size() divides
  const Order &order;
  ListSchedule &listed;
  const ScheduledOp barrier;
  zorse::sim::Traffic &traffic;
  const Admission &admission;
  ReadyCollectives collectives;
  double now = 0;
  size_t count = 0;
  std::vector<uint32_t> &missing; ///< by op: number of unfinished predecessors
  std::vector<uint8_t> &finished;
  IndexLists &next; ///< edges of the order by the op before
  std::vector<uint8_t> busy;
  std::vector<size_t> heldBy;  ///< per device: queue that blocks it; empty: communication does not
                               ///< block
  std::vector<uint32_t> holds; ///< per device: number of ops that block it
  std::vector<Message> messages;         ///< by op; empty: the halves of transfers start together
  std::vector<uint32_t> heapOf;          ///< per queue: index in `waiting`; kNone: no op waited
  std::vector<MinHeap<ReadyOp>> waiting; ///< ops that wait for a queue
  MinHeap<ReadyOp> candidates;           ///< ops that may be able to start
  MinHeap<Event> events;

  std::vector<uint8_t> admitted; ///< per cell; empty: no admission
  std::vector<uint32_t> blocked,
      blockedNext;               ///< per cell: list of the ops that wait for its admission
  MinHeap<ReadyOp> oldest;       ///< cells with blocked ops, by first sample
  std::vector<uint32_t> groupOf; ///< per cell
  std::vector<std::vector<uint32_t>> groupsOf; ///< per device
  std::vector<size_t> cursor;                  ///< per group: first cell that is not admitted
  std::vector<int64_t> rows;                   ///< per group: rows in flight
  std::vector<uint64_t> used;                  ///< per device: bytes held
  std::vector<uint64_t> deferring; ///< per device: deferred bytes between B and W; empty: memory is
                                   ///< unlimited
  std::vector<std::vector<uint32_t>> blockedOnMemory; ///< per device: backwards that wait for a W
  // Of plans with groups of devices, by cell.
  std::vector<uint32_t> leaderOf;               ///< cell of the group's first device
  std::vector<std::vector<uint32_t>> followers; ///< the cells of its other devices
  /// By device: first ops of tasks that the first device has begun and this one has not, in order.
  std::vector<std::deque<uint32_t>> begun;
  std::vector<uint8_t> blockedOnLeader; ///< by op: it could start if it were first in `begun`
};

} // namespace

zorse::Status zorse::step::simulate(const PlanLowering &x, const Order &order,
                                    ListSchedule &listed) {
  const size_t n = order.priority.size();
  listed.ops.clear();
  listed.instructions.clear();
  listed.positions.assign(n, kNone);
  listed.startTime.resize(n);
  listed.endTime.resize(n);
  listed.busy.assign(x.plan.devices.size(), 0);
  return Simulator(x, order, listed).run();
}
