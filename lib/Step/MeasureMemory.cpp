// Measures peaks of memory in list order, a lower bound for every placement. For buffers inside
// cells, the sums in templates suffice.

#include "CellTemplates.h"
#include "PlanLowering.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

class PeakMemoryMeter {
public:
  explicit PeakMemoryMeter(PlanLowering &x)
      : x(x), taken(x.taken), given(x.given), cells(x.cellsBegun) {
    taken.assign(x.instructionQueues.size(), 0);
    given.assign(x.instructionQueues.size(), 0);
    cells.assign(x.instructionQueues.size(), 0);
  }

  void run() {
    for (Buffer &buffer : x.buffers) {
      buffer.first = kNone;
      buffer.last = 0;
    }
    for (auto [op, buffer, side] : x.accesses)
      touch(buffer, x.globalOrder.positions[op], x.globalOrder.positions[op]);
    for (const ModelChunk &chunk : x.chunks)
      addChunk(chunk);
    std::vector<uint64_t> alive(x.plan.devices.size(), 0), max, host(alive), maxOnHost;
    std::vector<uint64_t> takenOnHost,
        givenOnHost; // like `taken` and `given`; empty: all host buffers are persistent
    for (const Buffer &buffer : x.buffers) {
      const bool onDevice = buffer.memory == bundle::DEVICE;
      if (buffer.persistent)
        (onDevice ? alive : host)[buffer.device] += alignRegion(buffer.bytes);
      if (buffer.persistent || buffer.first == kNone || buffer.bytes == 0)
        continue;
      if (!onDevice && takenOnHost.empty()) {
        takenOnHost.assign(taken.size(), 0);
        givenOnHost.assign(taken.size(), 0);
      }
      (onDevice ? taken : takenOnHost)[halfOf(buffer.first, buffer.device)] +=
          alignRegion(buffer.bytes);
      (onDevice ? given : givenOnHost)[halfOf(buffer.last, buffer.device)] +=
          alignRegion(buffer.bytes);
    }
    max = alive;
    maxOnHost = host;
    std::vector<uint32_t> cellsAlive(alive.size(), 0), maxCells(cellsAlive);
    for (const Span &instructions : x.globalOrder.instructions)
      for (uint32_t h = instructions.begin; h < instructions.end; ++h) {
        uint32_t d = x.instructionQueues[h] / kQueues;
        max[d] = std::max(max[d], alive[d] += taken[h]);
        alive[d] -= given[h];
        if (!takenOnHost.empty()) {
          maxOnHost[d] = std::max(maxOnHost[d], host[d] += takenOnHost[h]);
          host[d] -= givenOnHost[h];
        }
        cellsAlive[d] += static_cast<uint32_t>(cells[h]);
        maxCells[d] = std::max(maxCells[d], cellsAlive[d]);
      }
    // Persistent bytes, which are separate for a twin.
    std::vector<uint64_t> persistent(alive.size(), 0), persistentOnHost(persistent);
    for (const Buffer &buffer : x.buffers)
      if (buffer.persistent)
        (buffer.memory == bundle::DEVICE ? persistent : persistentOnHost)[buffer.device] +=
            alignRegion(buffer.bytes);
    for (auto [like, replica] : x.replicas) {
      max[replica] = max[like] - persistent[like] + persistent[replica];
      maxOnHost[replica] = maxOnHost[like] - persistentOnHost[like] + persistentOnHost[replica];
      maxCells[replica] = maxCells[like];
    }
    const std::vector<uint64_t> fixed = fixedBytes(x);
    for (uint32_t d = 0; d < alive.size(); ++d) {
      MemoryUse &memory = x.graph.devices[d].memory;
      memory.peakLiveBytes = max[d];
      memory.host = maxOnHost[d];
      memory.activations = max[d] > fixed[d] ? max[d] - fixed[d] : 0;
      memory.peakInFlightCells = maxCells[d];
    }
  }

private:
  void touch(uint32_t buffer, uint32_t first, uint32_t last) {
    Buffer &b = x.buffers[buffer];
    b.first = std::min(b.first, first);
    b.last = std::max(b.last, last);
  }

  /// Returns the half of a listed op on a device. If there are more than two, halves are in device
  /// order.
  uint32_t halfOf(uint32_t position, uint32_t device) const {
    const Span instructions = x.globalOrder.instructions[position];
    auto begin = x.instructionQueues.begin() + instructions.begin,
         end = x.instructionQueues.begin() + instructions.end;
    if (instructions.size() <= 2)
      return instructions.begin + (instructions.size() == 2 && *begin / kQueues != device);
    return static_cast<uint32_t>(std::lower_bound(begin, end, device * kQueues) -
                                 x.instructionQueues.begin());
  }

  /// List positions of the first and the last F, B and W of cells of one shape.
  struct Places {
    const CellTemplate *shape;
    uint32_t first[3] = {kNone, kNone, kNone}, last[3] = {0, 0, 0};
  };

  /// Adds buffers inside the chunk's cells, and accesses of state by them.
  void addChunk(const ModelChunk &chunk) {
    places.clear();
    size_t of = 0;
    for (uint32_t c : chunk.cells) {
      of = placesOf(x.shapeOf[c], of);
      addCell(c, places[of]);
    }
    for (const Places &some : places)
      touchState(chunk, some);
  }

  /// \param likely  tried first, because most cells of a chunk have equal shapes
  size_t placesOf(const CellTemplate *shape, size_t likely) {
    if (likely < places.size() && places[likely].shape == shape)
      return likely;
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i].shape == shape)
        return i;
    places.push_back({shape});
    return places.size() - 1;
  }

  void addCell(uint32_t c, Places &of) {
    uint32_t begin[3] = {kNone, kNone, kNone}, end[3] = {kNone, kNone, kNone}, last = 0; // halves
    for (int k = 0; k < 3; ++k) {
      const CellTask &task = x.cells[c].of(static_cast<TaskKind>(k));
      if (!task.exists() || x.ops[task.begin].instructions.size() == 0)
        continue;
      begin[k] = x.ops[task.begin].instructions.begin;
      last = end[k] = x.ops[task.end].instructions.begin;
      of.first[k] = std::min(of.first[k], x.globalOrder.positions[task.begin]);
      of.last[k] = std::max(of.last[k], x.globalOrder.positions[task.end]);
    }
    ++cells[begin[0]];
    --cells[last];
    for (int a = 0; a < 3; ++a)
      for (int b = a; b < 3; ++b)
        if (const uint64_t bytes = of.shape->inside[a][b]) {
          taken[begin[a]] += bytes;
          given[end[b]] += bytes;
        }
  }

  void touchState(const ModelChunk &chunk, const Places &by) {
    for (const CellTemplate::GroupUse &use : by.shape->groups) {
      const GroupState &groupState = *x.findGroupState(chunk.device, use.group);
      for (int k = 0; k < 3; ++k) {
        if (by.first[k] == kNone)
          continue;
        if (use.parameters >> k & 1)
          touch(x.unshardedParamOf(groupState,
                                   x.unshardIntervalOf(use.group, chunk.unitBegin, k > 0)),
                by.first[k], by.last[k]);
        if (use.gradients >> k & 1)
          touch(groupState.gradients, by.first[k], by.last[k]);
      }
    }
  }

  PlanLowering &x;
  std::vector<uint64_t> &taken,
      &given;                  ///< per half: bytes allocated when it starts, and freed after it
  std::vector<int32_t> &cells; ///< per half: cells that begin (+1) or end (-1) with it
  std::vector<Places> places;  ///< per shape of the chunk
};

} // namespace

void zorse::step::measureMemory(PlanLowering &x) { PeakMemoryMeter(x).run(); }
