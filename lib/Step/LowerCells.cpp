// Expands F and B of every cell, and the transfers of values between cells.

#include "CellInputs.h"
#include "CellTemplates.h"
#include "LowerCollectives.h"
#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

namespace {

using zorse::bundle::AccessMode;
namespace bundle = zorse::bundle;

class CellLowering {
public:
  explicit CellLowering(PlanLowering &x) : x(x), inputs(x) {}

  zorse::Status run() {
    if (zorse::Status status = checkLoss(); status.failed())
      return status;
    inputs.plan();
    sizeWorkspaces();
    for (size_t cut = 0; cut < x.cellsByBegin.size(); ++cut) {
      cursor = 0;
      forEachSet(x.cellsByBegin[cut], [&](const std::vector<uint32_t> &set) { forward(set); });
    }
    // A cell's gradients are computed by cells that begin where it ends. Those have a later end, so
    // they are visited first.
    for (size_t cut = x.cellsByEnd.size(); cut-- > 0;) {
      cursor = 0;
      forEachSet(x.cellsByEnd[cut], [&](const std::vector<uint32_t> &set) { backward(set); });
    }
    limitOffloads(x);
    return zorse::Status::success();
  }

private:
  zorse::Status checkLoss() const {
    for (const auto &unit : x.summary.units())
      if (unit.loss_terms_size() != 0 && unit.loss_terms_size() != x.summary.loss_size())
        return zorse::userError("unit '" + unit.name() + "' computes " +
                                std::to_string(unit.loss_terms_size()) + " of the " +
                                std::to_string(x.summary.loss_size()) +
                                " loss terms: terms in different units are not supported yet; the "
                                "loss must be computed by the last unit");
    return zorse::Status::success();
  }

  void sizeWorkspaces() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      uint64_t bytes = 0;
      for (uint32_t c : x.cellsOf[d])
        bytes = std::max(bytes, x.shapeOf[c]->workspace);
      if (bytes)
        x.workspace[d] = x.addBuffer(d, bytes, MemoryCategory::Workspace, /*persistent=*/true);
    }
    for (auto [like, replica] : x.replicas)
      if (x.workspace[like] != kNone) {
        const uint64_t bytes = x.buffers[x.workspace[like]].bytes;
        x.workspace[replica] =
            x.addBuffer(replica, bytes, MemoryCategory::Workspace, /*persistent=*/true);
      }
  }

  // ---- Ports: transfers of a value to a cell.

  uint64_t rowBytes(uint32_t value) const { return x.summary.values(value).bytes_per_row(); }

  /// Returns the cells of `list` (by first sample, disjoint) that share samples with `cell`. Must
  /// be called in the order of samples, because it starts at `cursor`.
  CellIndices overlapping(CellIndices list, const Cell &cell) {
    while (cursor < list.size() && x.plan.cells[list[cursor]].sampleEnd <= cell.sampleBegin)
      ++cursor;
    size_t end = cursor;
    while (end < list.size() && x.plan.cells[list[end]].sampleBegin < cell.sampleEnd)
      ++end;
    auto same = [&](uint32_t a, uint32_t b) {
      return x.plan.cells[a].sampleBegin == x.plan.cells[b].sampleBegin;
    };
    const CellIndices all{list.begin() + cursor, end - cursor};
    if (std::adjacent_find(all.begin(), all.end(), same) == all.end())
      return all;
    chosen.clear(); // cells of a set have the same samples: choose the one on this device, or the
                    // first
    for (uint32_t other : all) {
      if (chosen.empty() || !same(chosen.back(), other))
        chosen.push_back(other);
      else if (x.plan.cells[other].device == cell.device)
        chosen.back() = other;
    }
    return {chosen.data(), chosen.size()};
  }

  /// Connects cell `c` to its neighbors' ports of a value. If one local buffer contains all rows,
  /// aligned, the port is a view of it; otherwise it is a new buffer, filled by copies and
  /// transfers.
  /// \param cut  for a gradient: first of the users with contributions in it; kNone: it is the
  /// value
  BoundaryValue connect(uint32_t c, uint32_t valueId, CellIndices neighbours, size_t index,
                        uint32_t cut) {
    const Cell &cell = x.plan.cells[c];
    const bool gradient = cut != kNone;
    uint64_t row = rowBytes(valueId);
    auto portOf = [&](uint32_t n) -> const BoundaryValue & {
      return x.boundaryValues[(gradient ? x.cells[n].gradOut : x.cells[n].out).begin + index];
    };
    BoundaryValue boundary;
    boundary.value = valueId;
    const BoundaryValue &first = portOf(neighbours.front());
    bool view = std::all_of(neighbours.begin(), neighbours.end(), [&](uint32_t n) {
      return x.plan.cells[n].device == cell.device && portOf(n).buffer == first.buffer;
    });
    view = view &&
           static_cast<uint64_t>(cell.sampleBegin - first.rowBase) * row % kRegionAlignment == 0;
    ready.clear();
    if (view) {
      boundary.buffer = first.buffer;
      boundary.rowBase = first.rowBase;
      for (uint32_t n : neighbours)
        for (uint32_t s = portOf(n).producers.begin; s < portOf(n).producers.end; ++s) {
          Producer producer = x.producers[s];
          producer.begin = std::max(producer.begin, cell.sampleBegin);
          producer.end = std::min(producer.end, cell.sampleEnd);
          if (producer.begin < producer.end)
            ready.push_back(producer);
        }
    } else {
      boundary.buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * row,
                                    MemoryCategory::Activations);
      boundary.rowBase = cell.sampleBegin;
      if (const uint32_t first = relayOf(c, neighbours); first != kNone) {
        const Span ports = gradient ? x.cells[first].gradIn : x.cells[first].in;
        const BoundaryValue from = x.boundaryValues[ports.begin + index];
        ready.push_back(move(c, first, from, boundary, cut));
        relays.push_back({ready.back().op, first});
      } else {
        for (uint32_t n : neighbours)
          ready.push_back(move(c, n, portOf(n), boundary, cut));
      }
    }
    boundary.producers.begin = static_cast<uint32_t>(x.producers.size());
    x.producers.insert(x.producers.end(), ready.begin(), ready.end());
    boundary.producers.end = static_cast<uint32_t>(x.producers.size());
    return boundary;
  }

  /// Returns the cell of the group's first device if this device receives values from it, so that
  /// each byte enters a node once; kNone: it receives them from its neighbors.
  uint32_t relayOf(uint32_t c, CellIndices neighbours) const {
    const Cell &cell = x.plan.cells[c];
    if (cell.member == 0)
      return kNone;
    const Cell &first = x.plan.cells[set.front()];
    auto node = [&](const Cell &of) { return x.plan.devices[of.device].node; };
    const bool near = std::all_of(neighbours.begin(), neighbours.end(),
                                  [&](uint32_t n) { return node(x.plan.cells[n]) == node(cell); });
    return near || node(first) != node(cell) ? kNone : set.front();
  }

  /// Adds a copy or a transfer of the samples that neighbor `n` and cell `c` share.
  Producer move(uint32_t c, uint32_t n, const BoundaryValue &from, const BoundaryValue &to,
                uint32_t cut) {
    const Cell &cell = x.plan.cells[c], &other = x.plan.cells[n];
    const bool gradient = cut != kNone;
    const int64_t begin = std::max(cell.sampleBegin, other.sampleBegin),
                  end = std::min(cell.sampleEnd, other.sampleEnd);
    const uint64_t bytes = static_cast<uint64_t>(end - begin) * rowBytes(from.value);
    const bool local = other.device == cell.device;
    const uint32_t op =
        local
            ? x.addOp(x.costs->copy(cell.device, bytes), kShortPriority, begin, cell.unitBegin)
            : x.addTransfer(other.device, cell.device, bytes,
                            gradient ? kBackwardPriority : kForwardPriority, begin, cell.unitBegin);
    if (!gradient) {
      x.ops[op].cell = c;
      x.ops[op].needsAdmission = true;
    }
    x.addInstruction(other.device, local ? kCompute : kSend);
    if (!local)
      x.addInstruction(cell.device, kReceive);
    x.describe(OpKind::Move, static_cast<uint32_t>(x.moves.size()));
    x.moves.push_back(
        {from.buffer, to.buffer, from.rowBase, to.rowBase, begin, end, from.value, cut});
    x.addAccess(op, from.buffer);
    x.addAccess(op, to.buffer);
    for (uint32_t s = from.producers.begin; s < from.producers.end; ++s)
      if (x.producers[s].begin < end && begin < x.producers[s].end)
        x.addEdge(x.producers[s].op, op);
    return {op, begin, end};
  }

  void afterSources(const BoundaryValue &boundary, uint32_t op) {
    for (uint32_t s = boundary.producers.begin; s < boundary.producers.end; ++s)
      x.addEdge(x.producers[s].op, op);
  }

  BoundaryValue producedBy(uint32_t valueId, uint32_t buffer, const Cell &cell, uint32_t op) {
    BoundaryValue boundary{
        valueId,
        buffer,
        cell.sampleBegin,
        {static_cast<uint32_t>(x.producers.size()), static_cast<uint32_t>(x.producers.size() + 1)}};
    x.producers.push_back({op, cell.sampleBegin, cell.sampleEnd});
    return boundary;
  }

  Span addPorts(const std::vector<BoundaryValue> &list) {
    Span span{static_cast<uint32_t>(x.boundaryValues.size()),
              static_cast<uint32_t>(x.boundaryValues.size() + list.size())};
    x.boundaryValues.insert(x.boundaryValues.end(), list.begin(), list.end());
    return span;
  }

  // ---- Tasks.

  /// Calls `visit` with the cells of each rectangle: one, or one per device if they exchange
  /// values.
  template <typename Visit> void forEachSet(CellIndices list, Visit visit) {
    for (size_t i = 0; i < list.size(); i += set.size()) {
      if (i + 1 < list.size() &&
          x.plan.cells[list[i]].sampleBegin == x.plan.cells[list[i + 1]].sampleBegin)
        set = membersOf(x, list[i]);
      else
        set.assign(1, list[i]);
      visit(set);
    }
  }

  /// Adds the tasks of the cells of a set.
  void addTasks(const std::vector<uint32_t> &cells, TaskKind kind, CellTask CellInfo::*task) {
    if (cells.size() > 1)
      return addExchangingTasks(cells, kind, task);
    const uint32_t op = addTask(cells[0], kind, 1);
    x.cells[cells[0]].*task = {op, op, x.ops[op].duration};
  }

  /// Adds the task of the devices of a group: a sequence of ops per device, with an exchange
  /// between successive ones.
  void addExchangingTasks(const std::vector<uint32_t> &cells, TaskKind kind,
                          CellTask CellInfo::*task) {
    const std::vector<TaskExchange> exchanges = exchangesOf(x, cells[0], kind);
    const size_t ops = exchanges.size() + 1;
    for (uint32_t c : cells)
      x.cells[c].*task = {addTask(c, kind, ops), static_cast<uint32_t>(x.ops.size() - 1),
                          x.taskSeconds(c, kind)};
    for (const TaskExchange &exchange : exchanges) {
      const auto [first, last] = addExchange(x, cells, kind, exchange);
      for (uint32_t c : cells)
        x.addEdge((x.cells[c].*task).end, first);
      for (uint32_t c : cells) {
        (x.cells[c].*task).end = addTask(c, kind, ops);
        x.addEdge(last, (x.cells[c].*task).end);
      }
    }
  }

  /// Adds one of the `ops` ops of a task. A task without work is ordered but not listed.
  uint32_t addTask(uint32_t c, TaskKind kind, size_t ops) {
    const Cell &cell = x.plan.cells[c];
    const uint8_t rank = kind == TaskKind::Forward    ? kForwardPriority
                         : kind == TaskKind::Backward ? kBackwardPriority
                                                      : kWeightsPriority;
    const uint32_t op = x.addOp(x.taskSeconds(c, kind) / static_cast<double>(ops), rank,
                                cell.sampleBegin, cell.unitBegin);
    x.ops[op].cell = c;
    x.ops[op].needsAdmission = kind == TaskKind::Forward;
    if (x.hasWork(c, kind)) {
      x.addInstruction(cell.device, kCompute);
      x.describe(kind == TaskKind::Forward    ? OpKind::Forward
                 : kind == TaskKind::Backward ? OpKind::Backward
                                              : OpKind::Weights,
                 c);
    }
    return op;
  }

  void forward(const std::vector<uint32_t> &cells) {
    relays.clear();
    for (uint32_t c : cells)
      bringIn(c);
    addTasks(cells, TaskKind::Forward, &CellInfo::forward);
    for (uint32_t c : cells)
      finishForward(c);
  }

  /// Adds the inputs of F.
  void bringIn(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellIndices above = overlapping(x.cellsByEnd[cell.unitBegin], cell);
    inBoundaryValues.clear();
    for (size_t i = 0; i < x.liveAt[cell.unitBegin].size(); ++i) {
      uint32_t v = x.liveAt[cell.unitBegin][i];
      inBoundaryValues.push_back(connect(c, v, above, i, kNone));
    }
    info.in = addPorts(inBoundaryValues);
    info.loads.begin = static_cast<uint32_t>(x.loads.size());
    inputs.load(c);
    info.loads.end = static_cast<uint32_t>(x.loads.size());
    info.numberOfF = x.takeNumbers(x.shapeOf[c]->numbersOfF);
  }

  void finishForward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellTemplate &shape = *x.shapeOf[c];
    for (uint32_t i = info.loads.begin; i < info.loads.end; ++i)
      x.addEdge(x.inputs[x.loads[i]].op, info.forward.begin);
    for (size_t i = 0; i < shape.in.size(); ++i) {
      const BoundaryValue &boundary = x.boundaryValues[info.in.begin + i];
      if (shape.usesIn[i])
        afterSources(boundary, info.forward.begin);
      touchBy(info, shape.in[i] & kInF, boundary.buffer);
    }
    addOut(info, cell, shape);
    offloadToHost(x, c, [&](const CellTemplate::OffloadedBuffer &item) {
      return originalOf(cell, info, item);
    });
    sumLosses(c);
  }

  /// Adds the values that F produces, and the ports at the last cut.
  void addOut(CellInfo &info, const Cell &cell, const CellTemplate &shape) {
    info.produced.begin = static_cast<uint32_t>(x.boundaryValues.size());
    for (const CellTemplate::Made &value : shape.produced) {
      const uint32_t buffer = addValue(cell, value.id, info.numberOfF + value.place);
      x.boundaryValues.push_back(producedBy(value.id, buffer, cell, info.forward.end));
      touchBy(info, value.tasks & kInF, buffer);
    }
    info.produced.end = info.out.begin = static_cast<uint32_t>(x.boundaryValues.size());
    for (int32_t from : shape.out)
      x.boundaryValues.push_back(
          from >= 0 ? x.boundaryValues[info.produced.begin + static_cast<uint32_t>(from)]
                    : x.boundaryValues[info.in.begin + static_cast<uint32_t>(-1 - from)]);
    info.out.end = static_cast<uint32_t>(x.boundaryValues.size());
  }

  uint32_t addValue(const Cell &cell, uint32_t value, uint32_t number) {
    return x.addNumbered(cell.device, static_cast<uint64_t>(cell.rows()) * rowBytes(value), number);
  }

  /// Returns F's buffer of an offloaded item.
  Region originalOf(const Cell &cell, const CellInfo &info,
                    const CellTemplate::OffloadedBuffer &item) {
    if (item.port < 0) {
      const uint32_t buffer = x.addNumbered(cell.device, item.bytes, info.numberOfF + item.place);
      x.addAccess(info.forward, buffer);
      return region(buffer, 0, item.bytes);
    }
    const auto place = static_cast<uint32_t>(item.port), received = info.in.size();
    const BoundaryValue &boundary =
        x.boundaryValues[place < received ? info.in.begin + place
                                          : info.produced.begin + place - received];
    return region(boundary.buffer,
                  static_cast<uint64_t>(cell.sampleBegin - boundary.rowBase) * rowBytes(item.id),
                  item.bytes);
  }

  /// Adds the numerators of a cell to the device's sums.
  void sumLosses(uint32_t c) {
    const CellTemplate &shape = *x.shapeOf[c];
    if (shape.losses.empty())
      return;
    const Cell &cell = x.plan.cells[c];
    const CellInfo &info = x.cells[c];
    if (cell.member > 0) { // the devices of a group compute equal losses; the first adds them
      for (const CellTemplate::Made &rows : shape.losses)
        x.addAccess(info.forward, x.addNumbered(cell.device, lossRowsBytes(x.summary, cell),
                                                info.numberOfF + rows.place));
      return;
    }
    const uint32_t op = x.addOp(0, kShortPriority, cell.sampleBegin, cell.unitBegin);
    x.addInstruction(cell.device, kCompute);
    x.describe(OpKind::SumLoss, c);
    for (const CellTemplate::Made &rows : shape.losses) {
      const uint32_t buffer =
          x.addNumbered(cell.device, lossRowsBytes(x.summary, cell), info.numberOfF + rows.place);
      x.addAccess(info.forward, buffer);
      x.addAccess(op, buffer);
    }
    x.addEdge(info.forward.end, op);
    x.sumLoss[cell.device].push_back(op);
  }

  void backward(const std::vector<uint32_t> &cells) {
    relays.clear();
    for (uint32_t c : cells)
      bringBackIn(c);
    addTasks(cells, TaskKind::Backward, &CellInfo::backward);
    for (auto [op, first] : relays) // its B adds to the gradients that it received
      x.addEdge(op, x.cells[first].backward.begin);
    for (uint32_t c : cells)
      finishBackward(c);
  }

  /// Adds the inputs of B, except those from F.
  void bringBackIn(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellIndices below = overlapping(x.cellsByBegin[cell.unitEnd], cell);
    inBoundaryValues.clear(); // sums of the contributions of later users
    for (size_t i = 0; i < x.gradsAt[cell.unitEnd].size(); ++i) {
      uint32_t v = x.gradsAt[cell.unitEnd][i];
      inBoundaryValues.push_back(
          connect(c, v, below, i, firstUser(v, static_cast<uint32_t>(cell.unitEnd))));
    }
    info.gradIn = addPorts(inBoundaryValues);

    prefetchFromHost(x, c);
    info.numberOfB = x.takeNumbers(x.shapeOf[c]->numbersOfB);
  }

  void finishBackward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellTemplate &shape = *x.shapeOf[c];
    auto gradIn = [&](size_t i) -> const BoundaryValue & {
      return x.boundaryValues[info.gradIn.begin + i];
    };
    x.addEdge(info.forward.end, info.backward.begin);
    for (size_t i = 0; i < shape.gradIn.size(); ++i)
      if (shape.usesGradIn[i])
        afterSources(gradIn(i), info.backward.begin);
    // W computes the gradients of parameters from data that F and B have left. All of it is
    // complete after B, so no port is connected.
    if (x.plan.schedule.splitBackward) {
      const uint32_t op = addTask(c, TaskKind::Weights, 1);
      info.weights = {op, op, x.ops[op].duration};
      x.addEdge(info.backward.end, info.weights.begin);
    }
    for (size_t i = 0; i < shape.gradIn.size(); ++i)
      touchBy(info, shape.gradIn[i], gradIn(i).buffer);
    touchKept(info, shape);
    afterUnshardedParams(info);
    addGradOut(info, cell, shape);
  }

  /// Marks the data from F that B and W access.
  void touchKept(const CellInfo &info, const CellTemplate &shape) {
    constexpr TaskSet later = kInB | kInW;
    for (size_t i = 0; i < shape.in.size(); ++i)
      touchBy(info, shape.in[i] & later, x.boundaryValues[info.in.begin + i].buffer);
    for (size_t i = 0; i < shape.produced.size(); ++i)
      touchBy(info, shape.produced[i].tasks & later,
              x.boundaryValues[info.produced.begin + i].buffer);
    for (size_t i = 0; i < shape.inputs.size(); ++i)
      touchBy(info, shape.inputs[i].second, x.inputs[x.loads[info.loads.begin + i]].buffer);
  }

  /// Makes tasks wait for the offloaded data that they read.
  void afterUnshardedParams(const CellInfo &info) {
    for (uint32_t i = info.offloads.begin; i < info.offloads.end; ++i) {
      const OffloadedValue &item = x.offloads[i];
      if (item.back != kNone)
        x.addEdge(item.back, (item.later & kInB ? info.backward : info.weights).begin);
      touchBy(info, item.later, item.prefetchBuffer);
    }
  }

  /// Adds the ports of gradients at the first cut.
  void addGradOut(CellInfo &info, const Cell &cell, const CellTemplate &shape) {
    const auto first = static_cast<uint32_t>(x.buffers.size()); // first of the gradients that begin
                                                                // here
    for (const CellTemplate::Made &gradient : shape.gradOut)
      touchBy(info, gradient.tasks, addValue(cell, gradient.id, info.numberOfB + gradient.place));
    info.gradOut.begin = static_cast<uint32_t>(x.boundaryValues.size());
    for (size_t i = 0; i < shape.gradsOut.size(); ++i) {
      auto [from, touched] = shape.gradsOut[i];
      BoundaryValue boundary =
          from >= 0 ? BoundaryValue{x.gradsAt[cell.unitBegin][i],
                                    first + static_cast<uint32_t>(from),
                                    cell.sampleBegin,
                                    {}}
                    : x.boundaryValues[info.gradIn.begin + static_cast<uint32_t>(-1 - from)];
      if (touched) {
        BoundaryValue done = producedBy(boundary.value, boundary.buffer, cell, info.backward.end);
        done.rowBase = boundary.rowBase;
        boundary = done;
      }
      x.boundaryValues.push_back(boundary);
    }
    info.gradOut.end = static_cast<uint32_t>(x.boundaryValues.size());
  }

  /// Marks a buffer as accessed by tasks of a cell.
  void touchBy(const CellInfo &info, TaskSet tasks, uint32_t buffer) {
    if (tasks & kInF)
      x.addAccess(info.forward, buffer);
    if (tasks & kInB)
      x.addAccess(info.backward, buffer);
    if (tasks & kInW)
      x.addAccess(info.weights, buffer);
  }

  /// Returns the first user of a value at or after `unit`, which identifies the contributions in a
  /// gradient.
  uint32_t firstUser(uint32_t v, uint32_t unit) const {
    const auto &users = x.summary.values(v).users();
    auto it = std::lower_bound(users.begin(), users.end(), unit);
    return it == users.end() ? unit : *it;
  }

  PlanLowering &x;
  CellInputs inputs;
  size_t cursor = 0;                                 ///< index in the list of neighbors
  std::vector<uint32_t> chosen;                      ///< neighbors, one per set
  std::vector<uint32_t> set;                         ///< cells of one rectangle
  std::vector<std::pair<uint32_t, uint32_t>> relays; ///< transfers from a cell of the set
  std::vector<Producer> ready;
  std::vector<BoundaryValue> inBoundaryValues;
};

} // namespace

zorse::Status zorse::step::lowerCells(PlanLowering &x) { return CellLowering(x).run(); }
