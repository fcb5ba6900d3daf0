// F and B of every cell, the values that travel between cells, and graph inputs.

#include "CellShapes.h"
#include "Expansion.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

namespace {

using zorse::bundle::AccessMode;
namespace bundle = zorse::bundle;

// Short compute and whatever unblocks others first, then B; W before F, so that what it holds is free for the next forward.

class CellExpander {
public:
  explicit CellExpander(Expansion &x)
      : x(x), bufferOf(x.summary.values_size(), kNone), rowBaseOf(x.summary.values_size(), 0), used(x.summary.values_size(), 0) {}

  bool run(std::string &error) {
    if (!checkLoss(error))
      return false;
    planInputs();
    sizeWorkspaces();
    reserveCalls();
    for (size_t cut = 0; cut < x.cellsByBegin.size(); ++cut) {
      cursor = 0;
      for (uint32_t c : x.cellsByBegin[cut])
        forward(c);
    }
    // A cell's gradients come from cells that begin where it ends: those end later.
    for (size_t cut = x.cellsByEnd.size(); cut-- > 0;) {
      cursor = 0;
      for (uint32_t c : x.cellsByEnd[cut])
        backward(c);
    }
    limitOffloads(x);
    return true;
  }

private:
  /// Slots are most of a step's memory: grown by doubling they would take twice as much while they are copied.
  void reserveCalls() {
    if (x.lean)
      return;
    const bool split = x.plan.schedule.splitBackward;
    size_t calls = 0, slots = 0;
    auto add = [&](int32_t unit, std::optional<UnitTask> task) {
      calls += task.has_value();
      slots += task ? x.tables.slots(unitFunction(x.summary.units(unit), *task).body) : 0;
    };
    for (const Cell &cell : x.plan.cells)
      for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
        for (TaskKind kind : {TaskKind::Forward, TaskKind::Backward, TaskKind::Weights})
          add(u, unitTask(x.summary, u, kind, split));
        if (cell.activations == Activations::Recompute)
          add(u, repeatedTask(x.summary, cell, u));
      }
    size_t held = 0; // whose norms, casts and updates are few calls of few slots each
    for (const std::vector<Holding> &list : x.holdings)
      held += list.size();
    x.graph.calls.reserve(calls + 8 * held);
    x.graph.slots.reserve(slots + 32 * held);
  }

  bool checkLoss(std::string &error) {
    for (const auto &unit : x.summary.units())
      if (unit.loss_terms_size() != 0 && unit.loss_terms_size() != x.summary.loss_size()) {
        error = "unit '" + unit.name() + "' computes " + std::to_string(unit.loss_terms_size()) + " of the " + std::to_string(x.summary.loss_size()) +
                " loss terms: terms in different units are not supported yet; the loss must be computed by the last unit";
        return false;
      }
    return true;
  }

  // ---- Inputs: one load per device and range of rows; a cell whose rows lie inside another's range reads there.

  struct InputRange {
    int64_t begin, end;
    uint32_t buffer = kNone, op = kNone;
  };

  std::vector<InputRange> &rangesOf(uint32_t device, uint32_t input) {
    return inputRanges[device * static_cast<size_t>(x.summary.inputs_size()) + input];
  }

  void planInputs() {
    inputRanges.resize(x.plan.devices.size() * static_cast<size_t>(x.summary.inputs_size()));
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d)
      for (uint32_t c : x.cellsOf[d])
        for (auto [input, tasks] : x.shapeOf[c]->inputs)
          rangesOf(d, input).push_back({x.plan.cells[c].sampleBegin, x.plan.cells[c].sampleEnd});
    auto less = [](const InputRange &a, const InputRange &b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; };
    for (size_t i = 0; i < inputRanges.size(); ++i) {
      std::vector<InputRange> &list = inputRanges[i];
      if (list.empty())
        continue;
      if (!std::is_sorted(list.begin(), list.end(), less))
        std::sort(list.begin(), list.end(), less);
      const uint64_t row = x.summary.inputs(static_cast<int>(i % static_cast<size_t>(x.summary.inputs_size()))).bytes_per_row();
      size_t kept = 0;
      for (const InputRange &range : std::vector<InputRange>(list)) {
        const bool inside = kept > 0 && range.end <= list[kept - 1].end && (range.begin - list[kept - 1].begin) * row % kRegionAlignment == 0;
        bool repeated = inside;
        for (size_t k = kept; k > 0 && !repeated && list[k - 1].begin == range.begin; --k)
          repeated = list[k - 1].end == range.end;
        if (!repeated)
          list[kept++] = range;
      }
      list.resize(kept);
    }
  }

  InputRange &findInput(const Cell &cell, uint32_t input) {
    auto &list = rangesOf(cell.device, input);
    uint64_t row = x.summary.inputs(input).bytes_per_row();
    // Ranges are sorted by begin; the last that begins at or before the cell and holds it aligned.
    auto it = std::upper_bound(list.begin(), list.end(), cell.sampleBegin, [](int64_t s, const InputRange &r) { return s < r.begin; });
    while (it != list.begin()) {
      --it;
      if (it->begin <= cell.sampleBegin && cell.sampleEnd <= it->end && (cell.sampleBegin - it->begin) * row % kRegionAlignment == 0)
        return *it;
    }
    return list.front(); // unreachable: planInputs kept a range for every cell
  }

  Region inputRegion(const Cell &cell, uint32_t input) {
    InputRange &range = findInput(cell, input);
    uint64_t row = x.summary.inputs(input).bytes_per_row();
    return region(range.buffer, static_cast<uint64_t>(cell.sampleBegin - range.begin) * row, static_cast<uint64_t>(cell.rows()) * row);
  }

  /// Makes the loads a cell needs that are not there yet.
  void loadInputs(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    for (auto [input, tasks] : x.shapeOf[c]->inputs) {
      InputRange &range = findInput(cell, input);
      if (range.op == kNone) {
        uint64_t bytes = static_cast<uint64_t>(range.end - range.begin) * x.summary.inputs(input).bytes_per_row();
        range.buffer = x.addBuffer(cell.device, bytes, Purpose::Activations);
        range.op = x.addOp(x.costs->load(cell.device, bytes), kShortRank, range.begin, cell.unitBegin);
        x.ops[range.op].cell = c;
        x.ops[range.op].enters = true;
        x.touch(range.op, range.buffer);
        Entry &load = x.addHalf(cell.device, kLoad, EntryKind::LoadInput, bundle::LOAD);
        load.input = input;
        load.sampleBase = range.begin;
        load.rows = range.end - range.begin;
        load.region = region(range.buffer, 0, bytes);
        load.value = {bundle::Value::INPUT_ROWS, input, 0, range.begin, range.end, 0};
      }
      x.loads.push_back(range.op);
    }
  }

  void sizeWorkspaces() {
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      uint64_t bytes = 0;
      for (uint32_t c : x.cellsOf[d])
        bytes = std::max(bytes, x.shapeOf[c]->workspace);
      if (bytes)
        x.workspace[d] = x.addBuffer(d, bytes, Purpose::Workspace, /*persistent=*/true);
    }
    for (auto [like, twin] : x.twins())
      if (x.workspace[like] != kNone) {
        const uint64_t bytes = x.buffers[x.workspace[like]].bytes;
        x.workspace[twin] = x.addBuffer(twin, bytes, Purpose::Workspace, /*persistent=*/true);
      }
  }

  std::optional<UnitTask> taskOf(int32_t u, TaskKind kind) const { return unitTask(x.summary, u, kind, x.plan.schedule.splitBackward); }

  static uint64_t extent(const bundle::Extent &e, int64_t rows) { return static_cast<uint64_t>(e.fixed() + e.per_row() * rows); }

  // ---- Ports: how a value reaches a cell.

  uint64_t rowBytes(uint32_t value) const { return x.summary.values(value).bytes_per_row(); }

  /// Cells of `list` (by first sample, disjoint) that share samples with `cell`. Asked for in the order of samples, from `cursor` on.
  CellIndices overlapping(CellIndices list, const Cell &cell) {
    while (cursor < list.size() && x.plan.cells[list[cursor]].sampleEnd <= cell.sampleBegin)
      ++cursor;
    size_t end = cursor;
    while (end < list.size() && x.plan.cells[list[end]].sampleBegin < cell.sampleEnd)
      ++end;
    return {list.begin() + cursor, end - cursor};
  }

  /// Brings `value` to cell `c` from its neighbours' ports: a view if one local buffer holds all rows (and they start aligned), else a buffer of
  /// its own, filled by copies and transfers.
  Port connect(uint32_t c, uint32_t valueId, CellIndices neighbours, size_t index, bool gradient, const Value &declared) {
    const Cell &cell = x.plan.cells[c];
    uint64_t row = rowBytes(valueId);
    auto portOf = [&](uint32_t n) -> const Port & { return x.ports[(gradient ? x.cells[n].gradOut : x.cells[n].out).begin + index]; };
    Port port;
    port.value = valueId;
    const Port &first = portOf(neighbours.front());
    bool view = std::all_of(neighbours.begin(), neighbours.end(),
                            [&](uint32_t n) { return x.plan.cells[n].device == cell.device && portOf(n).buffer == first.buffer; });
    view = view && static_cast<uint64_t>(cell.sampleBegin - first.rowBase) * row % kRegionAlignment == 0;
    ready.clear();
    if (view) {
      port.buffer = first.buffer;
      port.rowBase = first.rowBase;
      for (uint32_t n : neighbours)
        for (uint32_t s = portOf(n).sources.begin; s < portOf(n).sources.end; ++s) {
          Source source = x.sources[s];
          source.begin = std::max(source.begin, cell.sampleBegin);
          source.end = std::min(source.end, cell.sampleEnd);
          if (source.begin < source.end)
            ready.push_back(source);
        }
    } else {
      port.buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * row, Purpose::Activations);
      port.rowBase = cell.sampleBegin;
      for (uint32_t n : neighbours)
        ready.push_back(move(c, n, portOf(n), port, gradient, declared));
    }
    port.sources.begin = static_cast<uint32_t>(x.sources.size());
    x.sources.insert(x.sources.end(), ready.begin(), ready.end());
    port.sources.end = static_cast<uint32_t>(x.sources.size());
    return port;
  }

  /// A copy or a transfer of the samples that neighbour `n` and cell `c` share.
  Source move(uint32_t c, uint32_t n, const Port &from, const Port &to, bool gradient, Value declared) {
    const Cell &cell = x.plan.cells[c], &other = x.plan.cells[n];
    uint64_t row = rowBytes(from.value);
    int64_t begin = std::max(cell.sampleBegin, other.sampleBegin), end = std::min(cell.sampleEnd, other.sampleEnd);
    uint64_t bytes = static_cast<uint64_t>(end - begin) * row;
    Region source = region(from.buffer, static_cast<uint64_t>(begin - from.rowBase) * row, bytes);
    Region target = region(to.buffer, static_cast<uint64_t>(begin - to.rowBase) * row, bytes);
    declared.begin = begin;
    declared.end = end;
    bundle::Phase phase = gradient ? bundle::BACKWARD : bundle::FORWARD;
    bool local = other.device == cell.device;
    uint32_t op = local ? x.addOp(x.costs->copy(cell.device, bytes), kShortRank, begin, cell.unitBegin)
                        : x.addTransfer(other.device, cell.device, bytes, gradient ? kBackwardRank : kForwardRank, begin, cell.unitBegin);
    if (!gradient) {
      x.ops[op].cell = c;
      x.ops[op].enters = true;
    }
    if (local) {
      Entry &copy = x.addHalf(cell.device, kCompute, EntryKind::Copy, phase);
      copy.region = source;
      copy.to = target;
      copy.value = declared;
    } else {
      Entry &send = x.addHalf(other.device, kSend, EntryKind::Send, phase);
      send.peer = cell.device;
      send.region = source;
      send.value = declared;
      Entry &receive = x.addHalf(cell.device, kReceive, EntryKind::Receive, phase);
      receive.peer = other.device;
      receive.region = target;
      receive.value = declared;
    }
    x.touch(op, from.buffer);
    x.touch(op, to.buffer);
    for (uint32_t s = from.sources.begin; s < from.sources.end; ++s)
      if (x.sources[s].begin < end && begin < x.sources[s].end)
        x.addEdge(x.sources[s].op, op);
    return {op, begin, end};
  }

  void bind(const Port &port) {
    bufferOf[port.value] = port.buffer;
    rowBaseOf[port.value] = port.rowBase;
  }

  Region rowsOf(uint32_t valueId, const Cell &cell) const {
    uint64_t row = rowBytes(valueId);
    return region(bufferOf[valueId], static_cast<uint64_t>(cell.sampleBegin - rowBaseOf[valueId]) * row, static_cast<uint64_t>(cell.rows()) * row);
  }

  void afterSources(const Port &port, uint32_t op) {
    for (uint32_t s = port.sources.begin; s < port.sources.end; ++s)
      x.addEdge(x.sources[s].op, op);
  }

  Port producedBy(uint32_t valueId, uint32_t buffer, const Cell &cell, uint32_t op) {
    Port port{valueId, buffer, cell.sampleBegin, {static_cast<uint32_t>(x.sources.size()), static_cast<uint32_t>(x.sources.size() + 1)}};
    x.sources.push_back({op, cell.sampleBegin, cell.sampleEnd});
    return port;
  }

  Span addPorts(const std::vector<Port> &list) {
    Span span{static_cast<uint32_t>(x.ports.size()), static_cast<uint32_t>(x.ports.size() + list.size())};
    x.ports.insert(x.ports.end(), list.begin(), list.end());
    return span;
  }

  // ---- Slots that F, B and W share.

  /// \param backward  of which task's direction
  void addParameters(const Cell &cell, const bundle::UnitInfo &unit, bool gradients, bool backward) {
    for (int i = 0; i < unit.parameters_size(); ++i) {
      const auto &parameter = x.summary.parameters(unit.parameters(i));
      const Holding &holding = *x.findHolding(cell.device, parameter.group());
      if (gradients && !parameter.trainable())
        continue;
      const uint32_t window = x.windowOf(parameter.group(), cell.unitBegin, backward);
      if (!gradients && window == kNone)
        continue; // no task of this direction has the slot
      int64_t elements = 1;
      for (int64_t dim : parameter.shape())
        elements *= dim;
      uint64_t size = elementBytes(gradients ? parameter.type() : x.computeType(parameter.group()));
      Value value{gradients                        ? bundle::Value::GRADIENTS
                  : x.hasMaster(parameter.group()) ? bundle::Value::PARAMETER_COPY
                                                   : bundle::Value::PARAMETERS,
                  parameter.group(),
                  0,
                  parameter.offset(),
                  parameter.offset() + elements,
                  0};
      x.addSlot(gradients ? bundle::PARAMETER_GRADIENT : bundle::PARAMETER, i, gradients ? bundle::ACCUMULATE : bundle::READ,
                elementRegion(gradients ? holding.gradients : x.imageOf(holding, window), 0, value.begin, value.end, size), value);
    }
  }

  void addInputs(const Cell &cell, const bundle::UnitInfo &unit) {
    for (int i = 0; i < unit.inputs_size(); ++i)
      x.addSlot(bundle::INPUT, i, bundle::READ, inputRegion(cell, unit.inputs(i)),
                {bundle::Value::INPUT_ROWS, unit.inputs(i), 0, cell.sampleBegin, cell.sampleEnd, 0});
  }

  void addBoundaryIn(const Cell &cell, const bundle::UnitInfo &unit) {
    for (int i = 0; i < unit.values_in_size(); ++i)
      x.addSlot(bundle::BOUNDARY_IN, i, bundle::READ, rowsOf(unit.values_in(i), cell),
                {bundle::Value::ACTIVATION, unit.values_in(i), 0, cell.sampleBegin, cell.sampleEnd, 0});
  }

  /// \param scratch  as forwardCalls has it
  void addBlocks(const Cell &cell, int32_t u, UnitTask task, uint32_t scratch = kNone) {
    const auto &unit = x.summary.units(u);
    const CellInfo &info = x.cells[&cell - x.plan.cells.data()];
    uint32_t place = static_cast<uint32_t>(u - cell.unitBegin);
    if (uint64_t saved = extent(unit.saved_bytes(), cell.rows()))
      x.addSlot(bundle::SAVED, 0, task == UnitTask::Forward || task == UnitTask::Recompute ? bundle::WRITE : bundle::READ,
                region(scratch != kNone ? scratch : info.firstSaved + place, 0, saved),
                {bundle::Value::SAVED_BLOCK, static_cast<uint32_t>(u), 0, cell.sampleBegin, cell.sampleEnd, 0});
    if (uint64_t scratch = extent(unitFunction(unit, task).workspace, cell.rows()))
      x.addSlot(bundle::WORKSPACE, 0, bundle::WRITE, region(x.workspace[cell.device], 0, scratch), {});
    x.addSlot(bundle::SCALARS, 0, bundle::READ, region(x.scalars[cell.device], 0, kScalarsBytes), {bundle::Value::STEP_SCALARS, 0, 0, 0, 0, 0});
    uint64_t deferred = task == UnitTask::InputGradients || task == UnitTask::WeightGradients ? extent(unit.deferred_bytes(), cell.rows()) : 0;
    if (deferred)
      x.addSlot(bundle::DEFERRED, 0, task == UnitTask::InputGradients ? bundle::WRITE : bundle::READ, region(info.firstDeferred + place, 0, deferred),
                {bundle::Value::DEFERRED_BLOCK, static_cast<uint32_t>(u), 0, cell.sampleBegin, cell.sampleEnd, 0});
  }

  // ---- Tasks.

  /// B or W of a cell; without work it is ordered, and not listed.
  uint32_t addBackwardTask(uint32_t c, TaskKind kind) {
    const Cell &cell = x.plan.cells[c];
    uint32_t op = x.addOp(x.taskSeconds(c, kind), kind == TaskKind::Backward ? kBackwardRank : kWeightsRank, cell.sampleBegin, cell.unitBegin);
    x.ops.back().cell = c;
    if (!x.hasWork(c, kind))
      return op;
    Entry &entry = x.addHalf(cell.device, kCompute, EntryKind::Compute, bundle::BACKWARD);
    entry.task = kind == TaskKind::Backward ? bundle::Compute::B : bundle::Compute::W;
    entry.cell = static_cast<int32_t>(c);
    return op;
  }

  void forward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];

    const CellIndices above = overlapping(x.cellsByEnd[cell.unitBegin], cell);
    std::vector<Port> &in = inPorts;
    in.clear();
    for (size_t i = 0; i < x.liveAt[cell.unitBegin].size(); ++i) {
      uint32_t v = x.liveAt[cell.unitBegin][i];
      in.push_back(connect(c, v, above, i, /*gradient=*/false, {bundle::Value::ACTIVATION, v, 0, 0, 0, 0}));
      bind(in.back());
    }
    info.in = addPorts(in);
    info.loads.begin = static_cast<uint32_t>(x.loads.size());
    loadInputs(c);
    info.loads.end = static_cast<uint32_t>(x.loads.size());

    info.forward = x.addOp(x.taskSeconds(c, TaskKind::Forward), kForwardRank, cell.sampleBegin, cell.unitBegin);
    x.ops.back().cell = c;
    x.ops.back().enters = true;
    Entry &entry = x.addHalf(cell.device, kCompute, EntryKind::Compute, bundle::FORWARD);
    entry.task = bundle::Compute::F;
    entry.cell = static_cast<int32_t>(c);

    for (uint32_t i = info.loads.begin; i < info.loads.end; ++i)
      x.addEdge(x.loads[i], info.forward);
    if (x.lean)
      return leanForward(c);
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      for (uint32_t v : x.summary.units(u).values_in())
        used[v] = c + 1;
    for (const Port &port : in)
      if (used[port.value] == c + 1)
        afterSources(port, info.forward);

    std::vector<Port> produced;
    std::vector<uint32_t> losses;
    const bool again = recomputes(x.summary, cell, x.plan.schedule.splitBackward);
    forwardCalls(c, again ? addScratch(cell) : addSaved(c), produced, losses);
    info.produced = addPorts(produced);

    std::vector<Port> out;
    for (uint32_t v : x.liveAt[cell.unitEnd]) {
      auto has = [&](const std::vector<Port> &list) { return std::find_if(list.begin(), list.end(), [&](const Port &p) { return p.value == v; }); };
      auto it = has(produced);
      out.push_back(it != produced.end() ? *it : *has(in));
    }
    info.out = addPorts(out);
    sendToHost(x, c, [&](const CellShape::Leaving &item) { return rowsOf(item.id, cell); });
    sumLosses(c, losses);
  }

  /// Saved blocks of the cell's units, one after the other.
  uint32_t addSaved(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    x.cells[c].firstSaved = static_cast<uint32_t>(x.buffers.size());
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      x.addBuffer(cell.device, extent(x.summary.units(u).saved_bytes(), cell.rows()), Purpose::Activations);
    return kNone;
  }

  /// Where F leaves what B makes again: the block of one unit over that of the one before.
  uint32_t addScratch(const Cell &cell) {
    uint64_t most = 0;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      most = std::max(most, extent(x.summary.units(u).saved_bytes(), cell.rows()));
    return x.addBuffer(cell.device, most, Purpose::Activations);
  }

  /// The calls of F, or of B where it begins with them; they belong to the entry added last.
  /// \param scratch   buffer of every unit's saved block; kNone: each has its own
  /// \param produced  takes ports of the values that the units make
  /// \param losses    takes buffers of loss rows
  void forwardCalls(uint32_t c, uint32_t scratch, std::vector<Port> &produced, std::vector<uint32_t> &losses) {
    const Cell &cell = x.plan.cells[c];
    const bool again = x.cells[c].backward != kNone;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      const auto &unit = x.summary.units(u);
      const std::optional<UnitTask> task = again ? repeatedTask(x.summary, cell, u) : UnitTask::Forward;
      if (!task)
        continue;
      for (uint32_t v : unit.values_out()) {
        if (task == UnitTask::Recompute)
          break;
        uint32_t buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * rowBytes(v), Purpose::Activations);
        produced.push_back(producedBy(v, buffer, cell, x.cells[c].forward));
        bind(produced.back());
      }
      x.addCall(unitFunction(unit, *task).body, u, cell.rows(), cell.sampleBegin);
      addParameters(cell, unit, /*gradients=*/false, again);
      addInputs(cell, unit);
      addBoundaryIn(cell, unit);
      if (task == UnitTask::Recompute) {
        addBlocks(cell, u, *task);
        continue;
      }
      for (int i = 0; i < unit.values_out_size(); ++i)
        x.addSlot(bundle::BOUNDARY_OUT, i, bundle::WRITE, rowsOf(unit.values_out(i), cell),
                  {bundle::Value::ACTIVATION, unit.values_out(i), 0, cell.sampleBegin, cell.sampleEnd, 0});
      addBlocks(cell, u, UnitTask::Forward, scratch);
      for (int k = 0; k < unit.loss_terms_size(); ++k) {
        uint64_t bytes = static_cast<uint64_t>(cell.rows()) * lossBytes();
        losses.push_back(x.addBuffer(cell.device, bytes, Purpose::Activations));
        x.addSlot(bundle::LOSS, k, bundle::WRITE, region(losses.back(), 0, bytes), lossValue(cell, u, unit.loss_terms(k)));
      }
    }
  }

  /// Images of what a cell's F has left on the host, if anything, in place of what it left here.
  void bindImages(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    const CellInfo &info = x.cells[c];
    if (info.offloads.size() == 0)
      return;
    if (x.offloads[info.offloads.begin].out != kNone)
      addSaved(c);
    bringBack(x, c);
    for (uint32_t i = info.offloads.begin; i < info.offloads.end; ++i) {
      const Offloaded &item = x.offloads[i];
      if (item.out == kNone || item.block)
        continue;
      bufferOf[item.id] = item.image;
      rowBaseOf[item.id] = cell.sampleBegin;
    }
  }

  /// Tasks that read images wait for them.
  void afterImages(const CellInfo &info) {
    for (uint32_t i = info.offloads.begin; i < info.offloads.end; ++i) {
      const Offloaded &item = x.offloads[i];
      if (item.back != kNone)
        x.addEdge(item.back, item.later & kInB ? info.backward : info.weights);
      touchBy(info, item.later, item.image);
    }
  }

  /// Of a buffer that tasks of a cell touch.
  void touchBy(const CellInfo &info, TaskSet tasks, uint32_t buffer) {
    if (tasks & kInF)
      x.touch(info.forward, buffer);
    if (tasks & kInB)
      x.touch(info.backward, buffer);
    if (tasks & kInW)
      x.touch(info.weights, buffer);
  }

  /// What forward() does besides ports and the op, where only times and peaks are asked for.
  void leanForward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellShape &shape = *x.shapeOf[c];
    for (size_t i = 0; i < inPorts.size(); ++i) {
      if (shape.usesIn[i])
        afterSources(inPorts[i], info.forward);
      if (shape.in[i] & kInF)
        x.touch(info.forward, inPorts[i].buffer);
    }
    info.produced.begin = static_cast<uint32_t>(x.ports.size());
    for (auto [v, tasks] : shape.produced) {
      uint32_t buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * rowBytes(v), Purpose::Activations);
      x.ports.push_back(producedBy(v, buffer, cell, info.forward));
      if (tasks & kInF)
        x.touch(info.forward, buffer);
    }
    info.produced.end = info.out.begin = static_cast<uint32_t>(x.ports.size());
    for (int32_t from : shape.out)
      x.ports.push_back(from >= 0 ? x.ports[info.produced.begin + static_cast<uint32_t>(from)] : inPorts[static_cast<size_t>(-1 - from)]);
    info.out.end = static_cast<uint32_t>(x.ports.size());
    if (!shape.leaving.empty())
      addSaved(c);
    sendToHost(x, c, [&](const CellShape::Leaving &item) {
      const auto port = static_cast<uint32_t>(item.port), received = info.in.size();
      if (item.port >= 0)
        return region(x.ports[port < received ? info.in.begin + port : info.produced.begin + port - received].buffer, 0, item.bytes);
      const uint32_t buffer = x.addBuffer(cell.device, item.bytes, Purpose::Activations);
      x.touch(info.forward, buffer);
      return region(buffer, 0, item.bytes);
    });
    if (!shape.lossBytes)
      return;
    uint32_t losses = x.addBuffer(cell.device, shape.lossBytes, Purpose::Activations);
    x.touch(info.forward, losses);
    uint32_t sum = x.addOp(0, kShortRank, cell.sampleBegin, cell.unitBegin);
    x.addHalf(cell.device, kCompute, EntryKind::Compute, bundle::FORWARD);
    x.touch(sum, losses);
    x.addEdge(info.forward, sum);
    x.sumLoss[cell.device].push_back(sum);
  }

  /// Likewise of backward() and weights().
  void leanBackward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    const CellShape &shape = *x.shapeOf[c];
    for (size_t i = 0; i < inPorts.size(); ++i)
      if (shape.usesGradIn[i])
        afterSources(inPorts[i], info.backward);
    if (x.plan.schedule.splitBackward) {
      info.weights = addBackwardTask(c, TaskKind::Weights);
      x.addEdge(info.backward, info.weights);
    }
    for (size_t i = 0; i < inPorts.size(); ++i)
      touchBy(info, shape.gradIn[i], inPorts[i].buffer);
    constexpr TaskSet later = kInB | kInW;
    for (size_t i = 0; i < shape.in.size(); ++i)
      touchBy(info, shape.in[i] & later, x.ports[info.in.begin + i].buffer);
    for (size_t i = 0; i < shape.produced.size(); ++i)
      touchBy(info, shape.produced[i].second & later, x.ports[info.produced.begin + i].buffer);
    for (auto [input, tasks] : shape.inputs)
      touchBy(info, tasks, findInput(cell, input).buffer);
    afterImages(info);
    uint32_t first = static_cast<uint32_t>(x.buffers.size()); // of gradients that begin here
    for (auto [v, tasks] : shape.gradOut) {
      uint32_t buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * rowBytes(v), Purpose::Activations);
      touchBy(info, tasks, buffer);
    }
    info.gradOut.begin = static_cast<uint32_t>(x.ports.size());
    for (size_t i = 0; i < shape.gradsOut.size(); ++i) {
      auto [from, touched] = shape.gradsOut[i];
      Port port = from >= 0 ? Port{x.gradsAt[cell.unitBegin][i], first + static_cast<uint32_t>(from), cell.sampleBegin, {}}
                            : inPorts[static_cast<size_t>(-1 - from)];
      if (touched) {
        Port done = producedBy(port.value, port.buffer, cell, info.backward);
        done.rowBase = port.rowBase;
        port = done;
      }
      x.ports.push_back(port);
    }
    info.gradOut.end = static_cast<uint32_t>(x.ports.size());
  }

  uint64_t lossBytes() const { return elementBytes(wideType(x.summary.compute_type())); }

  static Value lossValue(const Cell &cell, int32_t unit, uint32_t term) {
    return {bundle::Value::LOSS_ROWS, static_cast<uint32_t>(unit), term, cell.sampleBegin, cell.sampleEnd, 0};
  }

  /// Adds the numerators of a cell to the device's sums.
  void sumLosses(uint32_t c, const std::vector<uint32_t> &losses) {
    if (losses.empty())
      return;
    const Cell &cell = x.plan.cells[c];
    uint32_t op = x.addOp(0, kShortRank, cell.sampleBegin, cell.unitBegin);
    Entry &entry = x.addHalf(cell.device, kCompute, EntryKind::Compute, bundle::FORWARD);
    entry.task = bundle::Compute::SUM_LOSS;
    entry.cell = static_cast<int32_t>(c);
    size_t next = 0;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      const auto &unit = x.summary.units(u);
      if (unit.loss_terms_size() == 0)
        continue;
      x.addCall(x.summary.sum_loss_body(), -1, cell.rows(), cell.sampleBegin);
      std::vector<std::pair<uint32_t, uint32_t>> terms; // by term: the body's slots are in that order, the unit's may not be
      for (int k = 0; k < unit.loss_terms_size(); ++k)
        terms.push_back({unit.loss_terms(k), losses[next++]});
      std::sort(terms.begin(), terms.end());
      for (auto [term, buffer] : terms)
        x.addSlot(bundle::LOSS, term, bundle::READ, region(buffer, 0, static_cast<uint64_t>(cell.rows()) * lossBytes()), lossValue(cell, u, term));
      x.addSlot(bundle::SUMS_SLOT, 0, bundle::ACCUMULATE, region(x.scalars[cell.device], kScalarsBytes, kSumsBytes),
                {bundle::Value::SUMS, 0, 0, 0, 0, 0});
    }
    x.addEdge(x.cells[c].forward, op);
    x.sumLoss[cell.device].push_back(op);
  }

  /// The first user of a value at or after `unit`: names which users a gradient holds.
  uint32_t firstUser(uint32_t v, uint32_t unit) const {
    const auto &users = x.summary.values(v).users();
    auto it = std::lower_bound(users.begin(), users.end(), unit);
    return it == users.end() ? unit : *it;
  }

  void backward(uint32_t c) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    for (uint32_t i = info.in.begin; i < info.in.end && !x.lean; ++i)
      bind(x.ports[i]);
    for (uint32_t i = info.produced.begin; i < info.produced.end && !x.lean; ++i)
      bind(x.ports[i]);

    const CellIndices below = overlapping(x.cellsByBegin[cell.unitEnd], cell);
    std::vector<Port> &in = inPorts; // sums of the users further on
    in.clear();
    for (size_t i = 0; i < x.gradsAt[cell.unitEnd].size(); ++i) {
      uint32_t v = x.gradsAt[cell.unitEnd][i];
      uint32_t cut = firstUser(v, static_cast<uint32_t>(cell.unitEnd));
      in.push_back(connect(c, v, below, i, /*gradient=*/true, {bundle::Value::ACTIVATION_GRADIENT, v, cut, 0, 0, 0}));
    }
    info.gradIn = addPorts(in);

    bindImages(c);
    info.backward = addBackwardTask(c, TaskKind::Backward);
    x.addEdge(info.forward, info.backward);
    if (x.lean)
      return leanBackward(c);

    // Values touched here: by a user (accumulates) or by the producer (reads).
    std::vector<Port> local(in);
    std::vector<uint32_t> fresh;                                            // values whose first contribution comes from this cell
    uint32_t mark = static_cast<uint32_t>(x.plan.cells.size()) + 2 * c + 1; // forward used marks up to the number of cells
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      for (const auto *list : {&x.summary.units(u).values_in(), &x.summary.units(u).values_out()})
        for (uint32_t v : *list)
          used[v] = mark;
    for (const Port &port : in) {
      if (used[port.value] != mark)
        continue;
      afterSources(port, info.backward);
      used[port.value] = mark + 1; // has a buffer
    }
    auto gradientBuffer = [&](uint32_t v) {
      if (used[v] != mark + 1) {
        used[v] = mark + 1;
        uint32_t buffer = x.addBuffer(cell.device, static_cast<uint64_t>(cell.rows()) * rowBytes(v), Purpose::Activations);
        local.push_back({v, buffer, cell.sampleBegin, {}});
        fresh.push_back(v);
      }
    };
    for (int32_t u = cell.unitEnd - 1; u >= cell.unitBegin; --u)
      for (uint32_t v : x.summary.units(u).values_in())
        if (x.summary.values(v).needs_gradient())
          gradientBuffer(v);

    if (x.plan.schedule.splitBackward) {
      info.firstDeferred = static_cast<uint32_t>(x.buffers.size());
      for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
        x.addBuffer(cell.device, extent(x.summary.units(u).deferred_bytes(), cell.rows()), Purpose::Activations);
    }
    if (recomputes(x.summary, cell, x.plan.schedule.splitBackward)) {
      std::vector<Port> produced; // in place of F's
      std::vector<uint32_t> losses;
      forwardCalls(c, addSaved(c), produced, losses);
    }
    for (int32_t u = cell.unitEnd - 1; u >= cell.unitBegin; --u)
      if (std::optional<UnitTask> task = taskOf(u, TaskKind::Backward))
        backwardCall(cell, u, *task, local, fresh);

    std::vector<Port> out;
    for (uint32_t v : x.gradsAt[cell.unitBegin]) {
      const Port &port = *std::find_if(local.begin(), local.end(), [&](const Port &p) { return p.value == v; });
      bool usedHere = firstUser(v, static_cast<uint32_t>(cell.unitBegin)) < static_cast<uint32_t>(cell.unitEnd);
      if (!usedHere) {
        out.push_back(port); // passed on
        continue;
      }
      Port done = producedBy(v, port.buffer, cell, info.backward);
      done.rowBase = port.rowBase;
      out.push_back(done);
    }
    info.gradOut = addPorts(out);
    if (x.plan.schedule.splitBackward)
      weights(c, local);
    afterImages(info);
  }

  /// W: the gradients of parameters, from what F and B have left. All of it is complete after B, so no port is connected.
  void weights(uint32_t c, const std::vector<Port> &local) {
    const Cell &cell = x.plan.cells[c];
    CellInfo &info = x.cells[c];
    info.weights = addBackwardTask(c, TaskKind::Weights);
    x.addEdge(info.backward, info.weights);
    std::vector<uint32_t> fresh;
    for (int32_t u = cell.unitEnd - 1; u >= cell.unitBegin; --u)
      if (std::optional<UnitTask> task = taskOf(u, TaskKind::Weights))
        backwardCall(cell, u, *task, local, fresh);
  }

  /// A unit's backward or a part of it. `fresh`: values whose gradient nobody has written yet.
  void backwardCall(const Cell &cell, int32_t u, UnitTask task, const std::vector<Port> &local, std::vector<uint32_t> &fresh) {
    const auto &unit = x.summary.units(u);
    uint32_t body = unitFunction(unit, task).body;
    auto rows = [&](uint32_t v) {
      const Port &port = *std::find_if(local.begin(), local.end(), [&](const Port &p) { return p.value == v; });
      uint64_t row = rowBytes(v);
      return region(port.buffer, static_cast<uint64_t>(cell.sampleBegin - port.rowBase) * row, static_cast<uint64_t>(cell.rows()) * row);
    };
    x.addCall(body, u, cell.rows(), cell.sampleBegin);
    addParameters(cell, unit, /*gradients=*/false, /*backward=*/true);
    if (task != UnitTask::InputGradients)
      addParameters(cell, unit, /*gradients=*/true, /*backward=*/true);
    addInputs(cell, unit);
    addBoundaryIn(cell, unit);
    for (int i = 0; i < unit.values_in_size() && task != UnitTask::WeightGradients; ++i) {
      uint32_t v = unit.values_in(i);
      if (!x.summary.values(v).needs_gradient())
        continue;
      auto it = std::find(fresh.begin(), fresh.end(), v);
      bool first = it != fresh.end();
      if (first && x.bodyHas(body, bundle::BOUNDARY_IN_GRADIENT, i))
        fresh.erase(it);
      const bool adds = !zorse::isHalf(x.summary.values(v).type()); // gradients in half precision are complete: one unit alone reads the value
      x.addSlot(bundle::BOUNDARY_IN_GRADIENT, i, adds ? bundle::ACCUMULATE : bundle::WRITE, rows(v),
                {bundle::Value::ACTIVATION_GRADIENT, v, static_cast<uint32_t>(u), cell.sampleBegin, cell.sampleEnd, 0}, adds && first);
    }
    for (int i = 0; i < unit.values_out_size(); ++i) {
      uint32_t v = unit.values_out(i);
      if (x.summary.values(v).needs_gradient())
        x.addSlot(bundle::BOUNDARY_OUT_GRADIENT, i, bundle::READ, rows(v),
                  {bundle::Value::ACTIVATION_GRADIENT, v, firstUser(v, u + 1), cell.sampleBegin, cell.sampleEnd, 0});
    }
    addBlocks(cell, u, task);
  }

  Expansion &x;
  std::vector<std::vector<InputRange>> inputRanges; ///< per device and input
  size_t cursor = 0;                                ///< in the list of neighbours
  std::vector<Source> ready;
  std::vector<Port> inPorts, outPorts;
  std::vector<uint32_t> bufferOf; ///< per value: its buffer in the current cell
  std::vector<int64_t> rowBaseOf;
  std::vector<uint32_t> used; ///< per value: mark of the cell that touches it
};

} // namespace

bool zorse::step::expandCells(Expansion &x, std::string &error) { return CellExpander(x).run(error); }
