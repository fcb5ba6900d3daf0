// Computes the waits of programs by a replay of the placed regions over two steps.
//
// The arenas of a device are concatenated. Every byte range records its last writer and the last
// reader on each queue. An instruction must follow the writers of the data that it reads, and the
// writers and readers of the data that it writes. A wait is omitted if the instruction's own queue
// or another of its waits implies it. The instructions known to be finished are a vector clock with
// one component per queue of the device. The second step starts in the state at the end of the
// first, so its waits apply to every step.

#include "zorse/Step/StepGraph.h"

#include "PlanLowering.h"

#include <algorithm>
#include <array>
#include <thread>

using namespace zorse::step;

namespace {

bool isInside(const Region &part, const Region &whole) {
  return part.arena == whole.arena && whole.offset <= part.offset &&
         part.offset + part.bytes <= whole.offset + whole.bytes;
}

// Vector clock. Per queue: last position known to be finished, counted through both steps; -1:
// none.
using VectorClock = std::array<int32_t, kQueues>;

bool isBetweenDevices(InstructionKind kind) {
  return kind == InstructionKind::Send || kind == InstructionKind::Receive ||
         kind == InstructionKind::AllGather || kind == InstructionKind::ReduceScatter ||
         kind == InstructionKind::AllReduce;
}

VectorClock nothing() {
  VectorClock clock;
  clock.fill(-1);
  return clock;
}

struct Bytes {
  int32_t writerQueue = -1, writer = -1;
  VectorClock readers = nothing();
};

/// Bytes [begin, end) as numbered intervals. All offsets at which a region of the program begins or
/// ends are known in advance.
struct Access {
  uint32_t begin, end;
  bool write;
};

/// Recorded accesses of byte ranges, in pieces: a piece begins at a marked interval and extends to
/// the next.
class Pieces {
public:
  explicit Pieces(size_t intervals) : bytes(intervals + 1), begins(intervals / 64 + 1, 0) {
    mark(0);
  }

  /// Starts a piece at `at`.
  void split(uint32_t at) {
    if (marked(at))
      return;
    size_t word = at / 64;
    uint64_t before = begins[word] & ((uint64_t(1) << at % 64) - 1);
    while (!before)
      before = begins[--word];
    bytes[at] = bytes[word * 64 + 63 - static_cast<size_t>(__builtin_clzll(before))];
    mark(at);
  }
  template <typename Visit> void each(const Access &a, Visit visit) {
    for (uint32_t at = a.begin; at < a.end; at = next(at, a.end))
      visit(bytes[at]);
  }
  void replace(const Access &a, const Bytes &by) {
    for (uint32_t at = next(a.begin, a.end); at < a.end; at = next(at, a.end))
      begins[at / 64] &= ~(uint64_t(1) << at % 64);
    bytes[a.begin] = by;
  }

private:
  bool marked(uint32_t at) const { return begins[at / 64] >> at % 64 & 1; }
  void mark(uint32_t at) { begins[at / 64] |= uint64_t(1) << at % 64; }
  /// Returns the piece after the one at `at`, or `end`.
  uint32_t next(uint32_t at, uint32_t end) const {
    ++at;
    if (at >= end)
      return end;
    size_t word = at / 64;
    for (uint64_t rest = begins[word] & ~uint64_t(0) << at % 64;; rest = begins[word]) {
      if (rest)
        return std::min(end, static_cast<uint32_t>(word * 64) +
                                 static_cast<uint32_t>(__builtin_ctzll(rest)));
      if (++word * 64 >= end)
        return end;
    }
  }

  std::vector<Bytes> bytes;     ///< by interval at which a piece begins
  std::vector<uint64_t> begins; ///< one bit per interval
};

class DeviceReplay {
public:
  DeviceReplay(StepGraph &graph, DeviceProgram &program, bool overlapCommunication)
      : graph(graph), program(program), overlapCommunication(overlapCommunication),
        pieces(findAccesses()) {
    uint32_t n = program.instructions.size();
    position.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      auto &queue = instructionsOf[graph.instructions[program.instructions.begin + i].queue];
      position[i] = static_cast<int32_t>(queue.size());
      queue.push_back(i);
    }
    known.assign(2 * static_cast<size_t>(n), nothing());
  }

  void run() {
    for (int step = 0; step < 2; ++step)
      for (uint32_t i = 0; i < position.size(); ++i)
        replay(i, step);
  }

  std::vector<Wait> found; ///< all waits; Instruction::waits refers to it

private:
  Instruction &instructionAt(uint32_t i) {
    return graph.instructions[program.instructions.begin + i];
  }

  /// Fills `accesses`. Returns the number of intervals.
  size_t findAccesses() {
    std::vector<uint64_t> arenaBegins{0};
    for (const Arena &arena : program.arenas)
      arenaBegins.push_back(arenaBegins.back() + zorse::alignRegion(arena.bytes));
    auto begin = [&](const Region &r) { return arenaBegins[r.arena] + r.offset; };
    std::vector<std::pair<const Region *, bool>> regions;
    for (uint32_t e = program.instructions.begin; e < program.instructions.end; ++e) {
      firstAccess.push_back(static_cast<uint32_t>(regions.size()));
      forEachAccess(graph.instructions[e],
                    [&](const Region &r, bool write) { regions.push_back({&r, write}); });
    }
    firstAccess.push_back(static_cast<uint32_t>(regions.size()));
    // The same regions occur many times: a cache of recent offsets avoids searches.
    constexpr size_t kRecent = 1024; // instructions; regions begin at multiples of 64 bytes
    std::vector<std::pair<uint64_t, uint32_t>> recent(kRecent, {~uint64_t(0), 0});
    auto place = [&](uint64_t offset) -> auto & {
      return recent[(offset / 64 + offset / 64 / kRecent * 7) % kRecent];
    };
    std::vector<uint64_t> offsets{0};
    for (auto [r, write] : regions)
      for (uint64_t offset : {begin(*r), begin(*r) + r->bytes})
        if (auto &last = place(offset); last.first != offset) {
          last.first = offset;
          offsets.push_back(offset);
        }
    std::sort(offsets.begin(), offsets.end());
    offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
    std::fill(recent.begin(), recent.end(), std::make_pair(~uint64_t(0), 0u));
    auto at = [&](uint64_t offset) {
      auto &last = place(offset);
      if (last.first != offset)
        last = {offset,
                static_cast<uint32_t>(std::lower_bound(offsets.begin(), offsets.end(), offset) -
                                      offsets.begin())};
      return last.second;
    };
    accesses.reserve(regions.size());
    for (auto [r, write] : regions)
      accesses.push_back({at(begin(*r)), at(begin(*r) + r->bytes), write});
    return offsets.size();
  }

  template <typename Visit> void forEachAccess(const Instruction &instruction, Visit visit) {
    auto access = [&](const Region &r, bool write) {
      if (r.bytes)
        visit(r, write);
    };
    switch (instruction.kind) {
    case InstructionKind::Compute:
      for (uint32_t c = instruction.calls.begin; c < instruction.calls.end; ++c)
        for (uint32_t s = graph.calls[c].arguments.begin; s < graph.calls[c].arguments.end; ++s)
          access(graph.arguments[s].region, graph.arguments[s].mode != zorse::bundle::READ);
      break;
    case InstructionKind::Copy:
      access(instruction.region, false);
      access(instruction.to, true);
      break;
    case InstructionKind::Send:
    case InstructionKind::ReadMetrics:
      access(instruction.region, false);
      break;
    case InstructionKind::AllGather:
      access(instruction.region, true); // including an owner's shard inside `full`: no other
                                        // instruction accesses it at the same time
      if (!isInside(instruction.to, instruction.region))
        access(instruction.to, false);
      break;
    case InstructionKind::ReduceScatter:
      access(instruction.region, true);
      access(instruction.to, true);
      access(instruction.parts, true);
      access(instruction.sends, true);
      break;
    case InstructionKind::Receive:
    case InstructionKind::LoadInput:
    case InstructionKind::LoadScalars:
    case InstructionKind::AllReduce:
      access(instruction.region, true);
      access(instruction.parts, true);
      break;
    }
  }

  void replay(uint32_t i, int step) {
    Instruction &instruction = instructionAt(i);
    uint32_t own = instruction.queue;
    auto length = [&](size_t q) { return static_cast<int32_t>(instructionsOf[q].size()); };
    const int32_t now = step * length(own) + position[i];

    VectorClock needed = nothing();
    for (uint32_t k = firstAccess[i]; k < firstAccess[i + 1]; ++k) {
      const Access &access = accesses[k];
      pieces.split(access.begin);
      pieces.split(access.end);
      pieces.each(access, [&](const Bytes &b) {
        if (b.writerQueue >= 0)
          needed[b.writerQueue] = std::max(needed[b.writerQueue], b.writer);
        if (access.write)
          for (size_t q = 0; q < kQueues; ++q)
            needed[q] = std::max(needed[q], b.readers[q]);
      });
    }
    if (!overlapCommunication)
      blockOn(instruction, now, needed);

    // Instructions that the own queue implies.
    VectorClock clock = nothing();
    if (now > 0) {
      clock = known[index(own, now - 1)];
      clock[own] = now - 1;
    }
    // Waits on later instructions are tried first, because they may imply the others.
    std::vector<std::pair<uint32_t, size_t>> candidates; // (index among the device's instructions
                                                         // over both steps, queue)
    for (size_t q = 0; q < kQueues; ++q)
      if (q != own && needed[q] > clock[q])
        candidates.push_back({index(q, needed[q]), q});
    std::sort(candidates.rbegin(), candidates.rend());
    std::vector<Wait> waits;
    for (auto [place, q] : candidates) {
      if (clock[q] >= needed[q])
        continue;
      for (size_t k = 0; k < kQueues; ++k)
        clock[k] = std::max(clock[k], known[place][k]);
      clock[q] = std::max(clock[q], needed[q]);
      bool previous = step == 1 && needed[q] < length(q);
      waits.push_back({static_cast<uint32_t>(q),
                       static_cast<uint32_t>(needed[q] - (step == 1 && !previous ? length(q) : 0)),
                       previous});
    }
    known[static_cast<size_t>(step) * position.size() + i] = clock;
    if (step == 1) {
      std::sort(waits.begin(), waits.end(),
                [](const Wait &a, const Wait &b) { return a.queue < b.queue; });
      instruction.waits.begin = static_cast<uint32_t>(found.size());
      found.insert(found.end(), waits.begin(), waits.end());
      instruction.waits.end = static_cast<uint32_t>(found.size());
    }

    Bytes written;
    written.writerQueue = static_cast<int32_t>(own);
    written.writer = now;
    for (uint32_t k = firstAccess[i]; k < firstAccess[i + 1]; ++k) {
      const Access &access = accesses[k];
      pieces.split(access.begin); // an earlier write of this instruction may have merged pieces
      pieces.split(access.end);
      if (access.write)
        pieces.replace(access, written);
      else
        pieces.each(access, [&](Bytes &b) { b.readers[own] = std::max(b.readers[own], now); });
    }
  }

  /// If communication blocks: it follows the device's earlier compute and communication, and the
  /// device's later compute follows it.
  void blockOn(const Instruction &instruction, int32_t now, VectorClock &needed) {
    const bool moves = isBetweenDevices(instruction.kind);
    if (!moves && instruction.kind != InstructionKind::Compute)
      return;
    for (size_t q = 0; q < kQueues; ++q)
      needed[q] = std::max(needed[q], moves ? std::max(moved[q], computed[q]) : moved[q]);
    (moves ? moved : computed)[instruction.queue] = now;
  }

  /// Returns the index, among the device's instructions over both steps, of the instruction at a
  /// position of queue `q`.
  uint32_t index(size_t q, int32_t place) const {
    const int32_t length = static_cast<int32_t>(instructionsOf[q].size());
    return place < length ? instructionsOf[q][static_cast<size_t>(place)]
                          : static_cast<uint32_t>(position.size()) +
                                instructionsOf[q][static_cast<size_t>(place - length)];
  }

  StepGraph &graph;
  DeviceProgram &program;
  const bool overlapCommunication;
  VectorClock moved = nothing(),
              computed = nothing();  ///< last communication and compute before the current
                                     ///< instruction, per queue; only if communication blocks
  std::vector<Access> accesses;      ///< of all instructions; declared before `pieces`, which needs
                                     ///< their number
  std::vector<uint32_t> firstAccess; ///< per instruction, and the total
  Pieces pieces;
  std::vector<int32_t> position;
  std::array<std::vector<uint32_t>, kQueues> instructionsOf;
  std::vector<VectorClock> known; ///< instructions known to be finished before the instruction
                                  ///< starts
};

} // namespace

/// Devices are independent: two threads process them, and their waits are appended in device order.
void zorse::step::insertWaits(StepGraph &graph, bool overlapCommunication) {
  std::vector<std::vector<Wait>> found(graph.devices.size());
  auto replay = [&](size_t begin, size_t end) {
    for (size_t d = begin; d < end; ++d) {
      DeviceReplay replay(graph, graph.devices[d], overlapCommunication);
      replay.run();
      found[d] = std::move(replay.found);
    }
  };
  constexpr size_t kWorthAThread = 10000; // instructions
  if (graph.instructions.size() < kWorthAThread) {
    replay(0, found.size());
  } else {
    size_t half = 0; // of the instructions
    while (graph.devices[half].instructions.end < graph.instructions.size() / 2)
      ++half;
    std::thread other([&] { replay(0, half); });
    replay(half, found.size());
    other.join();
  }
  for (size_t d = 0; d < found.size(); ++d) {
    uint32_t base = static_cast<uint32_t>(graph.waits.size());
    graph.waits.insert(graph.waits.end(), found[d].begin(), found[d].end());
    for (uint32_t e = graph.devices[d].instructions.begin; e < graph.devices[d].instructions.end;
         ++e) {
      graph.instructions[e].waits.begin += base;
      graph.instructions[e].waits.end += base;
    }
  }
}
