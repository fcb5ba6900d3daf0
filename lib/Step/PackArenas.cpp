// Assigns an offset in an arena to every buffer. A device has one arena per memory kind.
//
// Buffers are allocated in list order from a list of free segments (best fit). A segment is reused
// only if, on the simulated clock, its last instruction ends before the first instruction of the
// new buffer starts. The wait that the reuse needs then costs no time in the planned step. If the
// arena does not fit, it is packed again in list order without this condition. A reuse may then
// delay an instruction.

#include "CellTemplates.h"
#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Base/Format.h"
#include "zorse/Step/Schedules.h"

#include <algorithm>
#include <iterator>
#include <map>

using namespace zorse::step;

namespace {

struct Segment {
  uint64_t offset, bytes;
  double freeTime;
};

class ArenaAllocator {
public:
  explicit ArenaAllocator(bool reuseWithoutWaiting) : reuseWithoutWaiting(reuseWithoutWaiting) {}

  uint64_t allocate(uint64_t bytes, double now) {
    auto usable = [&](const Segment &s) { return !reuseWithoutWaiting || s.freeTime <= now; };
    // The smallest run of usable adjacent segments that fits; ties to the lowest address.
    size_t best = SIZE_MAX, bestEnd = 0;
    uint64_t bestBytes = UINT64_MAX;
    for (size_t i = 0; i < free.size(); ++i) {
      if (!usable(free[i]))
        continue;
      uint64_t run = 0;
      size_t j = i;
      for (; j < free.size() && usable(free[j]) && free[j].offset == free[i].offset + run; ++j)
        run += free[j].bytes;
      if (run >= bytes && run < bestBytes) {
        best = i;
        bestEnd = j;
        bestBytes = run;
      }
      if (best == SIZE_MAX && j == free.size() && free[i].offset + run == end) { // extend the last
                                                                                 // free run
        best = i;
        bestEnd = j;
      }
      i = j - 1;
    }
    uint64_t offset = best == SIZE_MAX ? end : free[best].offset;
    if (best != SIZE_MAX) {
      uint64_t until = offset + bytes, runEnd = free[bestEnd - 1].offset + free[bestEnd - 1].bytes;
      double latest = free[bestEnd - 1].freeTime;
      free.erase(free.begin() + best, free.begin() + bestEnd);
      if (runEnd > until)
        free.insert(free.begin() + best, {until, runEnd - until, latest});
    }
    end = std::max(end, offset + bytes);
    return offset;
  }

  void release(uint64_t offset, uint64_t bytes, double freeTime, double now) {
    auto it = std::lower_bound(free.begin(), free.end(), offset,
                               [](const Segment &s, uint64_t o) { return s.offset < o; });
    it = free.insert(it, {offset, bytes, freeTime});
    auto mergeable = [&](const Segment &a, const Segment &b) {
      return a.offset + a.bytes == b.offset &&
             (!reuseWithoutWaiting || (a.freeTime <= now && b.freeTime <= now) ||
              a.freeTime == b.freeTime);
    };
    if (std::next(it) != free.end() && mergeable(*it, *std::next(it))) {
      it->bytes += std::next(it)->bytes;
      it->freeTime = std::max(it->freeTime, std::next(it)->freeTime);
      free.erase(std::next(it));
    }
    if (it != free.begin() && mergeable(*std::prev(it), *it)) {
      std::prev(it)->bytes += it->bytes;
      std::prev(it)->freeTime = std::max(std::prev(it)->freeTime, it->freeTime);
      free.erase(it);
    }
  }

  uint64_t end = 0;

private:
  bool reuseWithoutWaiting;
  std::vector<Segment> free; ///< by offset
};

std::string gib(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  return bytes >= 1ull << 30   ? zorse::format("%.1f GiB", b / (1ull << 30))
         : bytes >= 1ull << 20 ? zorse::format("%.1f MiB", b / (1ull << 20))
                               : zorse::format("%.1f KiB", b / 1024);
}

/// Packs buffers by decreasing size, each at the lowest free offset. Tighter than list order, but
/// quadratic, so it is limited to cases that gain enough and have few enough buffers.
uint64_t packLargestFirst(const PlanLowering &x, const std::vector<uint32_t> &fixed,
                          std::vector<uint32_t> order, bool patient,
                          std::vector<uint64_t> &offsets) {
  uint64_t base = 0;
  for (uint32_t b : fixed)
    base += alignRegion(x.placement.buffers[b].bytes);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return x.placement.buffers[a].bytes > x.placement.buffers[b].bytes;
  });
  auto before = [&](uint32_t a, uint32_t b) {
    return x.placement.buffers[a].last < x.placement.buffers[b].first &&
           (!patient || x.placement.allocations[a].freeTime <=
                            x.globalOrder.startOf(x.placement.buffers[b].first));
  };
  struct AllocatedBuffer {
    uint64_t offset, end;
    uint32_t buffer;
  };
  std::vector<AllocatedBuffer> placed; // by offset
  uint64_t total = base;
  offsets.assign(order.size(), 0);
  std::vector<std::pair<uint32_t, uint64_t>> result;
  for (uint32_t b : order) {
    const Buffer &buffer = x.placement.buffers[b];
    uint64_t bytes = alignRegion(buffer.bytes), offset = base;
    for (const AllocatedBuffer &other : placed) {
      if (other.offset >= offset + bytes)
        break;
      if (other.end > offset && !before(b, other.buffer) && !before(other.buffer, b))
        offset = other.end;
    }
    auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                               [](uint64_t o, const AllocatedBuffer &p) { return o < p.offset; });
    placed.insert(at, {offset, offset + bytes, b});
    total = std::max(total, offset + bytes);
    result.push_back({b, offset});
  }
  std::sort(result.begin(), result.end());
  for (size_t i = 0; i < result.size(); ++i)
    offsets[i] = result[i].second; // by buffer index
  return total;
}

uint64_t packInListOrder(PlanLowering &x, const std::vector<uint32_t> &fixed,
                         const std::vector<uint32_t> &byFirst, const std::vector<uint32_t> &byLast,
                         bool patient) {
  ArenaAllocator allocator(patient);
  for (uint32_t b : fixed) {
    x.placement.allocations[b].offset = allocator.end;
    allocator.end += alignRegion(x.placement.buffers[b].bytes);
  }
  size_t next = 0;
  for (uint32_t b : byFirst) {
    const Buffer &buffer = x.placement.buffers[b];
    double now = x.globalOrder.startOf(buffer.first);
    for (; next < byLast.size() && x.placement.buffers[byLast[next]].last < buffer.first; ++next) {
      const Allocation &old = x.placement.allocations[byLast[next]];
      allocator.release(old.offset, alignRegion(x.placement.buffers[byLast[next]].bytes),
                        old.freeTime, now);
    }
    x.placement.allocations[b].offset = allocator.allocate(alignRegion(buffer.bytes), now);
  }
  return allocator.end;
}

std::string tooLittleMemory(const PlanLowering &x, uint32_t device, const MemoryUse &use) {
  const PlanDevice &info = x.plan.devices[device];
  std::string text = "device " + info.name + " needs " + gib(use.total) + " of its " +
                     gib(info.memory) + ": state " + gib(use.state) + ", activations " +
                     gib(use.activations) + " (" + std::to_string(use.peakInFlightCells) +
                     (use.peakInFlightCells == 1 ? " micro-batch" : " micro-batches") +
                     " alive), gradients " + gib(use.gradients) + ", gathered " +
                     gib(use.gathered) + ", workspace " + gib(use.workspace);
  text += ". Remedies: ";
  if (use.state + use.gradients + use.gathered > info.memory)
    return text + "fewer units on it, or owners of state on other devices";
  if (std::string remedy = scheduleRule(x.plan.schedule.kind).memoryHint();
      use.peakInFlightCells > 1 && !remedy.empty())
    return text + remedy + ", smaller micro-batches, or fewer units on it";
  return text + "a smaller batch, smaller micro-batches, or fewer units on it";
}

/// Buffers of one memory kind on a device.
struct ArenaBuffers {
  std::vector<uint32_t> fixed;   ///< persistent
  std::vector<uint32_t> byFirst; ///< in the order of their first instruction, after packing
};

/// Packs one arena. \param least  peak of its live bytes. \returns its bytes
uint64_t packArena(PlanLowering &x, ArenaBuffers &buffers, uint64_t limit, uint64_t min) {
  std::vector<uint32_t> &byFirst = buffers.byFirst, byLast(byFirst);
  // Among buffers that begin at the same instruction, larger ones first: they leave smaller gaps.
  auto begins = [&](uint32_t a, uint32_t b) {
    const Buffer &p = x.placement.buffers[a], &q = x.placement.buffers[b];
    return p.first != q.first ? p.first < q.first : p.bytes != q.bytes ? p.bytes > q.bytes : a < b;
  };
  auto ends = [&](uint32_t a, uint32_t b) {
    const Buffer &p = x.placement.buffers[a], &q = x.placement.buffers[b];
    return p.last != q.last ? p.last < q.last : a < b;
  };
  std::sort(byFirst.begin(), byFirst.end(), begins);
  std::sort(byLast.begin(), byLast.end(), ends);
  // Buffers of updates that overlap the next step are placed after the others. If they shared bytes
  // with them, the next step would wait.
  std::vector<uint32_t> lateFirst, lateLast;
  auto isLate = [&](uint32_t b) { return x.placement.buffers[b].crossesStep; };
  for (auto [from, to] : {std::pair(&byFirst, &lateFirst), {&byLast, &lateLast}}) {
    std::copy_if(from->begin(), from->end(), std::back_inserter(*to), isLate);
    from->erase(std::remove_if(from->begin(), from->end(), isLate), from->end());
  }
  uint64_t behind = packInListOrder(x, {}, lateFirst, lateLast, /*patient=*/false);
  uint64_t total = packInListOrder(x, buffers.fixed, byFirst, byLast, /*patient=*/true);
  auto tighten = [&](bool patient) {
    constexpr uint64_t kPairs = 100000000; // limit on pairs of buffers, over all devices
    uint64_t n = byFirst.size();
    if (total <= min + min / 50 || n * n * x.plan.devices.size() > kPairs)
      return;
    std::vector<uint64_t> offsets;
    uint64_t tighter = packLargestFirst(x, buffers.fixed, byFirst, patient, offsets);
    if (tighter >= total)
      return;
    total = tighter;
    std::vector<uint32_t> byIndex(byFirst);
    std::sort(byIndex.begin(), byIndex.end());
    for (size_t i = 0; i < byIndex.size(); ++i)
      x.placement.allocations[byIndex[i]].offset = offsets[i];
  };
  tighten(/*patient=*/true);
  if (limit && behind && total + behind > limit) { // they do not fit separately
    byFirst.insert(byFirst.end(), lateFirst.begin(), lateFirst.end());
    byLast.insert(byLast.end(), lateLast.begin(), lateLast.end());
    std::sort(byFirst.begin(), byFirst.end(), begins);
    std::sort(byLast.begin(), byLast.end(), ends);
    lateFirst.clear();
    behind = 0;
    total = packInListOrder(x, buffers.fixed, byFirst, byLast, /*patient=*/true);
    tighten(/*patient=*/true);
  }
  if (limit && total > limit) {
    total = packInListOrder(x, buffers.fixed, byFirst, byLast, /*patient=*/false);
    tighten(/*patient=*/false);
  }
  for (uint32_t b : lateFirst) {
    x.placement.allocations[b].offset += total;
    byFirst.push_back(b);
  }
  return total + behind;
}

/// Returns the peak of live bytes of the buffers for which `counts` is true.
template <typename Counts>
uint64_t peakOf(const PlanLowering &x, const ArenaBuffers &buffers, Counts counts) {
  uint64_t fixed = 0;
  for (uint32_t b : buffers.fixed)
    fixed += counts(x.placement.buffers[b]) ? alignRegion(x.placement.buffers[b].bytes) : 0;
  std::vector<std::pair<uint64_t, int64_t>> changes; // at 2 x list position, and after it
  for (uint32_t b : buffers.byFirst)
    if (const Buffer &buffer = x.placement.buffers[b]; counts(buffer)) {
      const auto bytes = static_cast<int64_t>(alignRegion(buffer.bytes));
      changes.push_back({2 * static_cast<uint64_t>(buffer.first), bytes});
      changes.push_back({2 * static_cast<uint64_t>(buffer.last) + 1, -bytes});
    }
  std::sort(changes.begin(), changes.end());
  int64_t alive = 0, max = 0;
  for (auto [place, change] : changes)
    max = std::max(max, alive += change);
  return fixed + static_cast<uint64_t>(max);
}

/// Sets the bytes of a device's own memory by purpose.
void itemise(const PlanLowering &x, const ArenaBuffers &buffers, uint64_t total, MemoryUse &use) {
  auto peak = [&](MemoryCategory a, MemoryCategory b) {
    return peakOf(x, buffers, [&](const Buffer &buffer) {
      return buffer.category == a || buffer.category == b;
    });
  };
  use.state = peak(MemoryCategory::State, MemoryCategory::State);
  use.gathered = peak(MemoryCategory::Gathered, MemoryCategory::UpdateStaging);
  use.gradients = peak(MemoryCategory::Gradients, MemoryCategory::Gradients);
  use.workspace = peak(MemoryCategory::Workspace, MemoryCategory::Workspace);
  const uint64_t others = use.state + use.gathered + use.gradients + use.workspace;
  use.total = total;
  use.activations = total > others ? total - others : 0;
}

/// Finds the latest end of the accesses of each buffer; for buffers inside cells also their list
/// positions.
class Lives {
public:
  explicit Lives(PlanLowering &x) : x(x) {}

  void find() {
    x.placement.buffers.assign(x.numbers, Buffer());
    x.placement.allocations.assign(x.numbers, Allocation());
    for (const Buffer &buffer : x.buffers)
      x.placement.buffers[buffer.number] = buffer;
    for (const PlanLowering::BufferAccess &access : x.accesses)
      extend(x.buffers[access.buffer].number, access.op);
    for (uint32_t c = 0; c < x.cells.size(); ++c) {
      touchState(c);
      for (const CellInside::Local &local : x.insideOf(c).locals)
        addLocal(c, local);
    }
  }

private:
  void extend(uint32_t number, uint32_t op) {
    x.placement.allocations[number].freeTime =
        std::max(x.placement.allocations[number].freeTime, x.globalOrder.endTime[op]);
  }

  const CellTask &taskOf(uint32_t c, int kind) const {
    return x.cells[c].of(static_cast<TaskKind>(kind));
  }

  void touchState(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    for (const CellTemplate::GroupUse &use : x.shapeOf[c]->groups) {
      const GroupState &groupState = *x.findGroupState(cell.device, use.group);
      for (int kind = 0; kind < 3; ++kind) {
        if (use.parameters >> kind & 1)
          extend(x.buffers[x.unshardedParamOf(groupState, x.unshardIntervalOf(
                                                              use.group, cell.unitBegin, kind > 0))]
                     .number,
                 taskOf(c, kind).end);
        if (use.gradients >> kind & 1)
          extend(x.buffers[groupState.gradients].number, taskOf(c, kind).end);
      }
    }
  }

  void addLocal(uint32_t c, const CellInside::Local &local) {
    const CellInfo &info = x.cells[c];
    const uint32_t number = (local.crossesStep ? info.numberOfB : info.numberOfF) + local.place;
    Buffer &buffer = x.placement.buffers[number];
    buffer.bytes = local.bytes;
    buffer.device = x.plan.cells[c].device;
    buffer.number = number;
    for (int kind = 0; kind < 3; ++kind) {
      if (!(local.tasks >> kind & 1))
        continue;
      const CellTask &task = taskOf(c, kind);
      buffer.first = std::min(buffer.first, x.globalOrder.positions[task.begin]);
      buffer.last = std::max(buffer.last, x.globalOrder.positions[task.end]);
      extend(number, task.end);
    }
  }

  PlanLowering &x;
};

} // namespace

void zorse::step::packArenas(PlanLowering &x, bool shareBytes) {
  Lives(x).find();
  std::vector<std::map<bundle::MemoryKind, ArenaBuffers>> residents(x.plan.devices.size());
  for (uint32_t b = 0; b < x.numbers; ++b) {
    const Buffer &buffer = x.placement.buffers[b];
    if (buffer.bytes == 0)
      continue;
    if (buffer.persistent || !shareBytes)
      residents[buffer.device][buffer.memory].fixed.push_back(b);
    else if (buffer.first != kNone)
      residents[buffer.device][buffer.memory].byFirst.push_back(b);
  }

  for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
    DeviceProgram &program = x.graph.devices[d];
    const MemoryUse measured = program.memory;
    program.memory = {};
    program.memory.peakLiveBytes = measured.peakLiveBytes;
    program.memory.peakInFlightCells = measured.peakInFlightCells;
    program.plannedBytes = 0;
    program.arenas.clear();
    for (auto &[kind, buffers] : residents[d]) {
      const bool onDevice = kind == bundle::DEVICE;
      const uint64_t total = packArena(x, buffers, onDevice ? x.plan.devices[d].memory : 0,
                                       onDevice ? measured.peakLiveBytes : measured.host);
      for (const auto *list : {&buffers.fixed, &buffers.byFirst})
        for (uint32_t b : *list)
          x.placement.allocations[b].arena = static_cast<uint32_t>(program.arenas.size());
      program.arenas.push_back({kind, total});
      if (onDevice) {
        itemise(x, buffers, total, program.memory);
        program.plannedBytes = total;
      }
    }
    for (const Arena &arena : program.arenas)
      if (arena.kind != bundle::DEVICE)
        program.memory.host += arena.bytes;
  }
}

/// Checks device memory, and the host memory that the devices of a node share.
zorse::Status zorse::step::checkMemory(const PlanLowering &x) {
  std::string error;
  auto add = [&](const std::string &message) { error += (error.empty() ? "" : "\n") + message; };
  std::map<std::string, uint64_t> host; // by node
  for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
    const MemoryUse &use = x.graph.devices[d].memory;
    if (x.plan.devices[d].memory && use.total > x.plan.devices[d].memory)
      add(tooLittleMemory(x, d, use));
    for (const Arena &arena : x.graph.devices[d].arenas)
      if (arena.kind == bundle::HOST || arena.kind == bundle::PINNED_HOST)
        host[x.plan.devices[d].node] += arena.bytes;
  }
  for (auto &[node, bytes] : host)
    if (auto limit = x.plan.hostMemory.find(node);
        limit != x.plan.hostMemory.end() && bytes > limit->second)
      add("the devices of node " + node + " need " + gib(bytes) + " of its " + gib(limit->second) +
          " of host memory. Remedies: fewer state groups and activations in host memory, or "
          "devices of other nodes for them");
  return error.empty() ? Status::success() : Status(userError(error));
}

void zorse::step::resolveOffsets(PlanLowering &x) {
  auto place = [&](Region &r) {
    if (r.bytes == 0)
      return void(r = {});
    const Allocation &at = x.placement.allocations[x.buffers[r.arena].number];
    r = {at.arena, at.offset + r.offset, r.bytes};
  };
  for (Instruction &instruction : x.graph.instructions) {
    place(instruction.region);
    place(instruction.to);
    place(instruction.parts);
    place(instruction.sends);
  }
  for (FunctionArgument &argument : x.graph.arguments)
    place(argument.region);
  for (PersistentState &state : x.graph.state)
    place(state.region);
}
