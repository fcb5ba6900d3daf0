// The waits a program needs: a replay of the placed regions over two steps.
//
// Bytes remember their last writer and the last reader of every queue. An entry must follow the writers of what it reads, and the writers and readers
// of what it writes; a wait is kept only if neither the entry's own queue nor a wait kept before implies it. What an entry knows to be finished is a
// vector with one place per queue of the device. The second step sees the end of the first, so its waits are those of every step.

#include "zorse/Step/StepGraph.h"

#include "Expansion.h"

#include <algorithm>
#include <array>
#include <map>
#include <thread>

using namespace zorse::step;

namespace {

using Clock = std::array<int64_t, kQueueKinds>; // per queue: the last place known to be finished, counting through both steps; -1: none

Clock nothing() {
  Clock clock;
  clock.fill(-1);
  return clock;
}

struct Bytes {
  int8_t writerQueue = -1;
  int64_t writer = -1;
  Clock readers = nothing();
};

class DeviceReplay {
public:
  DeviceReplay(StepGraph &graph, DeviceProgram &program) : graph(graph), program(program) {
    uint64_t bytes = program.arenas.empty() ? 0 : program.arenas[0].bytes;
    arena.emplace(0, Bytes());
    arena.emplace(bytes, Bytes()); // sentinel
    uint32_t n = program.entries.size();
    position.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      auto &queue = entriesOf[graph.entries[program.entries.begin + i].queue];
      position[i] = queue.size();
      queue.push_back(i);
    }
    known.assign(2 * static_cast<size_t>(n), nothing());
  }

  void run() {
    for (int step = 0; step < 2; ++step)
      for (uint32_t i = 0; i < position.size(); ++i)
        replay(i, step);
  }

  std::vector<Wait> found; ///< entries name places in it

private:
  Entry &entryAt(uint32_t i) { return graph.entries[program.entries.begin + i]; }

  /// Splits so that an interval begins at `offset`.
  std::map<uint64_t, Bytes>::iterator split(uint64_t offset) {
    auto it = arena.lower_bound(offset);
    if (it != arena.end() && it->first == offset)
      return it;
    Bytes copy = std::prev(it)->second;
    return arena.emplace_hint(it, offset, copy);
  }

  template <typename Visit> void forEachAccess(const Entry &entry, Visit visit) {
    auto access = [&](const Region &r, bool write) {
      if (r.bytes)
        visit(r, write);
    };
    switch (entry.kind) {
    case EntryKind::Compute:
      for (uint32_t c = entry.calls.begin; c < entry.calls.end; ++c)
        for (uint32_t s = graph.calls[c].slots.begin; s < graph.calls[c].slots.end; ++s)
          access(graph.slots[s].region, graph.slots[s].mode != zorse::bundle::READ);
      break;
    case EntryKind::Copy:
      access(entry.region, false);
      access(entry.to, true);
      break;
    case EntryKind::Send:
    case EntryKind::Report:
      access(entry.region, false);
      break;
    case EntryKind::AllGather:
      access(entry.region, true); // an owner's shard inside `full` included: nobody else touches it meanwhile
      if (!entry.region.bytes)
        access(entry.to, false);
      break;
    case EntryKind::ReduceScatter:
      access(entry.region, true);
      access(entry.to, true);
      break;
    case EntryKind::Receive:
    case EntryKind::LoadInput:
    case EntryKind::LoadScalars:
    case EntryKind::AllReduce:
      access(entry.region, true);
      break;
    }
  }

  void replay(uint32_t i, int step) {
    Entry &entry = entryAt(i);
    uint32_t own = entry.queue;
    auto length = [&](size_t q) { return static_cast<int64_t>(entriesOf[q].size()); };
    int64_t now = step * length(own) + position[i];

    Clock needed = nothing();
    forEachAccess(entry, [&](const Region &r, bool write) {
      auto end = split(r.offset + r.bytes);
      auto begin = split(r.offset);
      for (auto it = begin; it != end; ++it) {
        const Bytes &b = it->second;
        if (b.writerQueue >= 0)
          needed[b.writerQueue] = std::max(needed[b.writerQueue], b.writer);
        if (write)
          for (size_t q = 0; q < kQueueKinds; ++q)
            needed[q] = std::max(needed[q], b.readers[q]);
      }
    });

    // What the own queue implies.
    Clock clock = nothing();
    if (now > 0) {
      clock = known[index(own, now - 1)];
      clock[own] = now - 1;
    }
    // Waits on later entries first: they may imply the others.
    std::vector<std::pair<uint32_t, size_t>> candidates; // (place among the device's entries over both steps, queue)
    for (size_t q = 0; q < kQueueKinds; ++q)
      if (q != own && needed[q] > clock[q])
        candidates.push_back({index(q, needed[q]), q});
    std::sort(candidates.rbegin(), candidates.rend());
    std::vector<Wait> waits;
    for (auto [place, q] : candidates) {
      if (clock[q] >= needed[q])
        continue;
      for (size_t k = 0; k < kQueueKinds; ++k)
        clock[k] = std::max(clock[k], known[place][k]);
      clock[q] = std::max(clock[q], needed[q]);
      bool previous = step == 1 && needed[q] < length(q);
      waits.push_back({static_cast<uint32_t>(q), static_cast<uint32_t>(needed[q] - (step == 1 && !previous ? length(q) : 0)), previous});
    }
    known[static_cast<size_t>(step) * position.size() + i] = clock;
    if (step == 1) {
      std::sort(waits.begin(), waits.end(), [](const Wait &a, const Wait &b) { return a.queue < b.queue; });
      entry.waits.begin = static_cast<uint32_t>(found.size());
      found.insert(found.end(), waits.begin(), waits.end());
      entry.waits.end = static_cast<uint32_t>(found.size());
    }

    forEachAccess(entry, [&](const Region &r, bool write) {
      auto end = split(r.offset + r.bytes);
      auto begin = split(r.offset);
      if (!write) {
        for (auto it = begin; it != end; ++it)
          it->second.readers[own] = std::max(it->second.readers[own], now);
        return;
      }
      Bytes fresh;
      fresh.writerQueue = static_cast<int8_t>(own);
      fresh.writer = now;
      begin->second = fresh;
      arena.erase(std::next(begin), end);
    });
  }

  /// Place among the device's entries over both steps of an entry of queue `q`.
  uint32_t index(size_t q, int64_t place) const {
    int64_t length = static_cast<int64_t>(entriesOf[q].size());
    return static_cast<uint32_t>(place < length ? entriesOf[q][place] : position.size() + entriesOf[q][place - length]);
  }

  StepGraph &graph;
  DeviceProgram &program;
  std::map<uint64_t, Bytes> arena;
  std::vector<int64_t> position;
  std::array<std::vector<uint32_t>, kQueueKinds> entriesOf;
  std::vector<Clock> known; ///< finished before the entry starts
};

} // namespace

/// Devices are independent: two threads share them, and the waits are put together in the order of devices.
void zorse::step::computeWaits(StepGraph &graph) {
  std::vector<std::vector<Wait>> found(graph.devices.size());
  auto replay = [&](size_t begin, size_t end) {
    for (size_t d = begin; d < end; ++d) {
      DeviceReplay replay(graph, graph.devices[d]);
      replay.run();
      found[d] = std::move(replay.found);
    }
  };
  constexpr size_t kWorthAThread = 10000; // entries
  if (graph.entries.size() < kWorthAThread) {
    replay(0, found.size());
  } else {
    size_t half = 0; // of the entries
    while (graph.devices[half].entries.end < graph.entries.size() / 2)
      ++half;
    std::thread other([&] { replay(0, half); });
    replay(half, found.size());
    other.join();
  }
  for (size_t d = 0; d < found.size(); ++d) {
    uint32_t base = static_cast<uint32_t>(graph.waits.size());
    graph.waits.insert(graph.waits.end(), found[d].begin(), found[d].end());
    for (uint32_t e = graph.devices[d].entries.begin; e < graph.devices[d].entries.end; ++e) {
      graph.entries[e].waits.begin += base;
      graph.entries[e].waits.end += base;
    }
  }
}
