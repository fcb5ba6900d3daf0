// List scheduling on a simulated clock: the global list is the order in which entries start.
//
// Every queue of a device serves one entry at a time; a transfer or a collective needs the queues of all its halves at once. An entry starts when
// all its predecessors have finished, so the list is an order in which the step can run with nothing buffered.

#include "Expansion.h"

#include <algorithm>
#include <queue>
#include <tuple>

using namespace zorse::step;

namespace {

struct Key {
  uint8_t rank;
  int64_t sample;
  int32_t unit;
  uint32_t op;
  bool operator>(const Key &o) const { return std::tie(rank, sample, unit, op) > std::tie(o.rank, o.sample, o.unit, o.op); }
};

using Heap = std::priority_queue<Key, std::vector<Key>, std::greater<Key>>;

class Simulator {
public:
  Simulator(Expansion &x, int64_t window) : x(x), window(window) {
    size_t n = x.ops.size();
    missing.assign(n, 0);
    first.assign(n + 1, 0);
    for (auto [before, after] : x.edges) {
      ++missing[after];
      ++first[before + 1];
    }
    for (size_t i = 0; i < n; ++i)
      first[i + 1] += first[i];
    next.resize(x.edges.size());
    std::vector<uint32_t> fill(first.begin(), first.end() - 1);
    for (auto [before, after] : x.edges)
      next[fill[before]++] = after;
    busy.assign(x.plan.devices.size() * kQueueKinds, 0);
    waiting.resize(busy.size());
    finished.assign(n, 0);

    for (uint32_t c : x.cellsByBegin[0])
      front.push_back(c);
    cellOf.assign(n, kNone);
    for (uint32_t c : front)
      cellOf[x.cells[c].last()] = c;
    frontDone.assign(x.cells.size(), 0);
  }

  bool run(std::string &error) {
    for (uint32_t op = 0; op < x.ops.size(); ++op)
      if (missing[op] == 0)
        ready(op);
    while (true) {
      startCandidates();
      if (!events.empty()) {
        now = events.top().first;
        while (!events.empty() && events.top().first == now) {
          uint32_t op = events.top().second;
          events.pop();
          finish(op);
        }
        continue;
      }
      if (blocked.empty())
        break;
      candidates.push(blocked.top()); // nothing can run: the window is too narrow for this tiling here
      blocked.pop();
    }
    if (count == x.ops.size())
      return true;
    error = describeCycle();
    return false;
  }

private:
  Key keyOf(uint32_t op) const { return {x.ops[op].rank, x.ops[op].sample, x.ops[op].unit, op}; }

  void ready(uint32_t op) {
    if (window > 0 && x.ops[op].gated && x.ops[op].sample >= doneSamples + window)
      blocked.push(keyOf(op));
    else
      candidates.push(keyOf(op));
  }

  size_t queueOf(uint32_t half) const { return x.graph.entries[half].id * kQueueKinds + x.graph.entries[half].queue; }

  void startCandidates() {
    while (!candidates.empty()) {
      Key key = candidates.top();
      candidates.pop();
      Op &op = x.ops[key.op];
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
      op.start = now;
      op.end = now + op.duration;
      ++count;
      if (op.halves.size() != 0) {
        op.position = static_cast<uint32_t>(x.list.size());
        x.list.push_back(key.op);
      }
      events.push({op.end, key.op});
    }
  }

  void offer(size_t queue) {
    if (busy[queue] || waiting[queue].empty())
      return;
    candidates.push(waiting[queue].top());
    waiting[queue].pop();
  }

  void finish(uint32_t index) {
    const Op &op = x.ops[index];
    finished[index] = 1;
    for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
      busy[queueOf(h)] = 0;
    for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
      offer(queueOf(h));
    for (uint32_t i = first[index]; i < first[index + 1]; ++i)
      if (--missing[next[i]] == 0)
        ready(next[i]);
    if (window > 0 && cellOf[index] != kNone)
      advanceWindow(cellOf[index]);
  }

  void advanceWindow(uint32_t cell) {
    frontDone[cell] = 1;
    while (cursor < front.size() && frontDone[front[cursor]])
      doneSamples = x.plan.cells[front[cursor++]].sampleEnd;
    while (!blocked.empty() && blocked.top().sample < doneSamples + window) {
      candidates.push(blocked.top());
      blocked.pop();
    }
  }

  std::string describe(uint32_t op) const {
    if (x.ops[op].halves.size() == 0) {
      for (uint32_t c = 0; c < x.cells.size(); ++c)
        if (op == x.cells[c].backward || op == x.cells[c].weights)
          return (op == x.cells[c].backward ? "B of " : "W of ") + describeCell(x.plan, c);
      return "the end of all forwards";
    }
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
      return std::string("transfer of ") + (entry.phase == zorse::bundle::BACKWARD ? "gradient of '" : "'") + x.summary.values(entry.value.id).name() +
             "', samples " + std::to_string(entry.value.begin) + "-" + std::to_string(entry.value.end) + ", from " + x.plan.devices[entry.id].name + " to " +
             x.plan.devices[other.id].name;
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
  int64_t window;
  double now = 0;
  size_t count = 0;
  std::vector<uint32_t> missing, first, next;
  std::vector<uint8_t> busy, finished;
  std::vector<Heap> waiting;
  Heap candidates, blocked;
  using Event = std::pair<double, uint32_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
  std::vector<uint32_t> front, cellOf;
  std::vector<uint8_t> frontDone;
  size_t cursor = 0;
  int64_t doneSamples = 0;
};

} // namespace

bool zorse::step::simulate(Expansion &x, int64_t window, std::string &error) {
  x.list.clear();
  for (Op &op : x.ops)
    op.position = kNone;
  return Simulator(x, window).run(error);
}
