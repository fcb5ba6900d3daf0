// Adds the calls of cells' tasks: the calls of their templates, with each argument bound to a
// buffer of the cell.

#include "CellTemplates.h"
#include "PlanLowering.h"
#include "Tables.h"

#include "ParameterRuns.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>
#include <map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

class CellCaller {
public:
  explicit CellCaller(PlanLowering &x)
      : x(x), values(static_cast<size_t>(x.summary.values_size())), gradients(values),
        contributors(values.size(), kNoUnit), firstTask(x.buffers.size(), kNoTask) {}

  void run() {
    reserve();
    for (uint32_t op : x.globalOrder.ops)
      for (uint32_t h = x.ops[op].instructions.begin; h < x.ops[op].instructions.end; ++h)
        if (Instruction &instruction = x.graph.instructions[h];
            instruction.kind == InstructionKind::Compute && instruction.cell >= 0)
          addCalls(instruction);
  }

private:
  /// Location of an operand: number of its buffer, and the sample at the buffer's first row.
  struct BufferRange {
    uint32_t number = kNone;
    int64_t rowBase = 0;
  };

  /// Reserves space, because arguments are the largest part of a step's memory and growth by
  /// doubling would need twice the memory while arguments are copied.
  void reserve() {
    size_t calls = 0, arguments = 0;
    for (uint32_t c = 0; c < x.shapeOf.size(); ++c)
      for (const auto &list : x.insideOf(c).calls) {
        calls += list.size();
        for (const CellInside::Call &of : list)
          arguments += of.call->arguments.size();
      }
    constexpr size_t kArgumentsOfSums = 4; // a loss and its sum; rarely more
    calls += x.shapeOf.size();
    x.graph.calls.reserve(x.graph.calls.size() + calls);
    x.graph.arguments.reserve(x.graph.arguments.size() + arguments +
                              kArgumentsOfSums * x.cellsByEnd[x.cellsByEnd.size() - 1].size());
  }

  void addCalls(Instruction &instruction) {
    cell = &x.plan.cells[static_cast<size_t>(instruction.cell)];
    info = &x.cells[static_cast<size_t>(instruction.cell)];
    shape = x.shapeOf[static_cast<size_t>(instruction.cell)];
    inside = &x.insideOf(static_cast<uint32_t>(instruction.cell));
    summary = &x.tables.of(*cell).summary;
    instruction.calls.begin = static_cast<uint32_t>(x.graph.calls.size());
    switch (instruction.task) {
    case bundle::Compute::F:
      bindValues(/*later=*/false);
      addUnits(0);
      break;
    case bundle::Compute::B:
      bindValues(/*later=*/true);
      bindGradients();
      addUnits(1);
      break;
    case bundle::Compute::W:
      bindValues(/*later=*/true);
      bindGradients();
      for (const CellTemplate::Made &gradient : inside->gradients)
        contributors[gradient.id] = kNoUnit; // B has contributed
      addUnits(2);
      break;
    default:
      addSums();
    }
    instruction.calls.end = static_cast<uint32_t>(x.graph.calls.size());
  }

  // ---- Locations of the operands of a cell's tasks.

  void bindPorts(Span ports, std::vector<BufferRange> &to) const {
    for (uint32_t i = ports.begin; i < ports.end; ++i)
      to[x.boundaryValues[i].value] = {x.buffers[x.boundaryValues[i].buffer].number,
                                       x.boundaryValues[i].rowBase};
  }
  void bindMade(const std::vector<CellTemplate::Made> &list, uint32_t number,
                std::vector<BufferRange> &to) const {
    for (const CellTemplate::Made &made : list)
      to[made.id] = {number + made.place, cell->sampleBegin};
  }

  void bindValues(bool later) {
    bindPorts(info->in, values);
    bindMade(inside->values, info->numberOfF, values);
    if (!later)
      return;
    bindMade(inside->remade, info->numberOfB, values);
    for (uint32_t i = info->offloads.begin; i < info->offloads.end; ++i)
      if (const OffloadedValue &item = x.offloads[i]; item.out != kNone && !item.block)
        values[item.id] = {x.buffers[item.prefetchBuffer].number, cell->sampleBegin};
  }

  void bindGradients() {
    bindMade(inside->gradients, info->numberOfB, gradients);
    bindPorts(info->gradIn, gradients);
    for (size_t i = 0; i < inside->gradients.size(); ++i)
      contributors[inside->gradients[i].id] = inside->contributors[i];
    for (uint32_t i = info->gradIn.begin; i < info->gradIn.end; ++i) // a value is there before
      contributors[x.boundaryValues[i].value] = kNoUnit;
  }

  uint32_t savedOf(int32_t u, bool later) const {
    const auto place = static_cast<uint32_t>(u - cell->unitBegin);
    if (shape->again)
      return later ? info->numberOfB + inside->savedAgain + place : info->numberOfF;
    return (later && info->numberOfPrefetchBuffers != kNone ? info->numberOfPrefetchBuffers
                                                            : info->numberOfF) +
           place;
  }

  /// Returns the loss rows of the term at index `term` of the unit's own list.
  uint32_t lossOf(int32_t u, uint32_t term, bool later) const {
    const std::vector<CellTemplate::Made> &list = later ? inside->lossesAgain : shape->losses;
    auto first = std::find_if(list.begin(), list.end(), [&](const CellTemplate::Made &rows) {
      return rows.id == static_cast<uint32_t>(u);
    });
    return (later ? info->numberOfB : info->numberOfF) + first[term].place;
  }

  Region place(uint32_t number, uint64_t offset, uint64_t bytes) const {
    if (bytes == 0 || x.placement.allocations.empty())
      return {};
    return {x.placement.allocations[number].arena, x.placement.allocations[number].offset + offset,
            bytes};
  }
  Region placeBuffer(uint32_t buffer, uint64_t offset, uint64_t bytes) const {
    return place(x.buffers[buffer].number, offset, bytes);
  }
  Region placeRows(const BufferRange &at, uint64_t row) const {
    return place(at.number, static_cast<uint64_t>(cell->sampleBegin - at.rowBase) * row,
                 static_cast<uint64_t>(cell->rows()) * row);
  }

  // ---- Calls.

  Call &addCall(uint32_t function, int32_t unit) {
    Call call;
    call.function = function;
    call.unit = unit;
    call.rows = cell->rows();
    call.sampleBase = cell->sampleBegin;
    call.rngIdBase = unit < 0 ? 0 : summary->units(unit).rng_id_base();
    call.arguments.begin = call.arguments.end = static_cast<uint32_t>(x.graph.arguments.size());
    x.graph.calls.push_back(call);
    return x.graph.calls.back();
  }

  /// Adds the calls up to the task's next exchange. \param kind  0 for F, 1 for B, 2 for W
  void addUnits(int kind) {
    const std::vector<CellInside::Call> &calls = inside->calls[kind];
    const auto before = begun.find({info, kind});
    size_t made = before == begun.end() ? 0 : before->second;
    const size_t first = made;
    for (; made < calls.size() && (made == first || calls[made].call->segment == 0); ++made)
      addUnit(calls[made], kind > 0);
    if (made < calls.size())
      begun[{info, kind}] = made;
    else if (before != begun.end())
      begun.erase(before);
  }

  /// A segment without launches has no call.
  void addUnit(const CellInside::Call &of, bool later) {
    if (of.call->arguments.empty())
      return;
    addCall(of.call->function, of.unit).segment = of.call->segment;
    for (const Binding &binding : of.call->arguments)
      bind(of, binding, later);
    x.graph.calls.back().arguments.end = static_cast<uint32_t>(x.graph.arguments.size());
  }

  Samples samples() const { return {cell->sampleBegin, cell->sampleEnd}; }
  uint64_t rowBytes(uint32_t value) const {
    return static_cast<uint64_t>(x.summary.values(static_cast<int>(value)).bytes_per_row());
  }
  uint64_t extent(const bundle::AffineSize &e) const {
    return static_cast<uint64_t>(e.fixed() + e.per_row() * cell->rows());
  }

  /// Adds an argument. It is written in place: large steps have millions.
  void bind(const CellInside::Call &of, const Binding &binding, bool later) {
    FunctionArgument &argument = x.graph.arguments.emplace_back();
    argument.kind = binding.argument;
    argument.index = binding.index;
    argument.mode = binding.mode;
    if (!locate(of, binding, later, argument))
      x.graph.arguments.pop_back();
  }

  /// Sets region and value of an argument. Returns false for a block of 0 bytes.
  bool locate(const CellInside::Call &of, const Binding &binding, bool later,
              FunctionArgument &argument) {
    const bundle::UnitInfo &unit = summary->units(of.unit);
    const auto u = static_cast<uint32_t>(of.unit);
    auto block = [&](uint32_t number, uint64_t bytes) {
      argument.region = place(number, 0, bytes);
      return bytes > 0;
    };
    switch (binding.of) {
    case Operand::Parameter:
    case Operand::ParameterGradient:
      bindParameter(of, binding, later, argument);
      return true;
    case Operand::Input:
      argument.region = inputRows(binding.id);
      argument.value = Value::inputRows(binding.id, samples());
      return true;
    case Operand::Value:
      argument.region = placeRows(values[binding.id], rowBytes(binding.id));
      argument.value = Value::activation(binding.id, samples());
      return true;
    case Operand::Gradient:
      argument.region = placeRows(gradients[binding.id], rowBytes(binding.id));
      argument.value = Value::activationGradient(binding.id, binding.cut, samples());
      if (binding.argument == bundle::BOUNDARY_IN_GRADIENT) // all its segments overwrite
        argument.overwrite = contributors[binding.id] == of.unit &&
                             binding.mode == bundle::ACCUMULATE;
      return true;
    case Operand::Saved:
      argument.value = Value::savedBlock(u, samples());
      return block(savedOf(of.unit, later), extent(zorse::classOf(*summary, unit).saved_bytes()));
    case Operand::Deferred:
      argument.value = Value::deferredBlock(u, samples());
      return block(info->numberOfB + inside->deferred + u - static_cast<uint32_t>(cell->unitBegin),
                   extent(zorse::classOf(*summary, unit).saved_for_weight_grad_bytes()));
    case Operand::Exchange:
      bindExchange(of, binding, later, argument);
      return true;
    case Operand::Workspace: {
      const auto &function = unitFunction(*summary, of.unit, of.task);
      const uint64_t bytes = extent(function.workspace());
      if (bytes)
        argument.region = function.exchanges_size()
                              ? placeExchanged(of, CellInside::kWorkspace, bytes, later)
                              : placeBuffer(x.workspace[cell->device], 0, bytes);
      return bytes > 0;
    }
    case Operand::Scalars:
      argument.region = placeBuffer(x.scalars[cell->device], 0, kScalarsBytes);
      argument.value = Value::scalars();
      return true;
    case Operand::Loss:
      argument.value = Value::lossRows(u, binding.id, samples());
      return block(lossOf(of.unit, binding.index, later), lossRowsBytes(x.summary, *cell));
    }
    return false;
  }

  /// Returns the region of an exchange, or of the workspace of a function with exchanges.
  Region placeExchanged(const CellInside::Call &of, uint32_t number, uint64_t bytes,
                        bool later) const {
    return place((later ? info->numberOfB : info->numberOfF) + inside->exchangePlace[later],
                 inside->findExchanged(later, of.unit, of.task, number)->offset, bytes);
  }

  void bindExchange(const CellInside::Call &of, const Binding &binding, bool later,
                    FunctionArgument &argument) const {
    uint64_t bytes = 0;
    for (const auto &exchange : unitFunction(*summary, of.unit, of.task).exchanges())
      for (const bundle::AffineSize &part : exchange.parts())
        bytes += exchange.number() == binding.id ? extent(part) : 0;
    argument.region = placeExchanged(of, binding.id, bytes, later);
    argument.value =
        Value::exchange(static_cast<uint32_t>(of.unit), binding.id, binding.cut != 0, samples());
  }

  /// The first task of a unit in list order that adds to a group's accumulator on a device
  /// overwrites it. Every unit that uses a group uses all its parameters.
  void bindParameter(const CellInside::Call &of, const Binding &binding, bool later,
                     FunctionArgument &argument) {
    const auto &parameter = x.summary.parameters(static_cast<int>(binding.id));
    const uint32_t group = parameter.group();
    const bool gradients = binding.of == Operand::ParameterGradient;
    const GroupState &groupState = *x.findGroupState(cell->device, group);
    const uint64_t size = elementBytes(gradients ? parameter.type() : x.computeType(group));
    const uint32_t buffer =
        gradients
            ? groupState.gradients
            : x.unshardedParamOf(groupState, x.unshardIntervalOf(group, cell->unitBegin, later));
    const Compact runs = bundle::parameterRuns(x.summary, summary->units(of.unit), binding.index);
    const auto [begin, end] = bundle::hullOf(runs);
    const Elements range{begin, end};
    const int64_t place = groupState.read.place(begin, begin); // runs are consecutive in memory
    argument.region = placeBuffer(buffer, static_cast<uint64_t>(std::max<int64_t>(place, 0)) * size,
                                  static_cast<uint64_t>(runs.elements()) * size);
    argument.value = gradients ? Value::gradients(group, range)
                               : Value::parametersToRead(x.hasMaster(group), group, range);
    if (!gradients || x.globalOrder.endTime.empty())
      return;
    const uint64_t task = (static_cast<uint64_t>(cell - x.plan.cells.data()) * 4 +
                           static_cast<uint64_t>(of.task == UnitTask::WeightGradients)) *
                              static_cast<uint64_t>(x.summary.units_size()) +
                          static_cast<uint64_t>(of.unit);
    // Devices of a group may execute another task between two segments of one.
    uint64_t &first =
        x.plan.groups.empty()
            ? firstTask[buffer]
            : firstOfParameter.try_emplace({buffer, binding.id}, kNoTask).first->second;
    if (first == kNoTask)
      first = task;
    argument.overwrite = first == task;
  }

  Region inputRows(uint32_t input) const {
    const auto &inputs = shape->inputs;
    auto at = std::find_if(inputs.begin(), inputs.end(),
                           [&](const auto &item) { return item.first == input; });
    const InputRows &range =
        x.inputs[x.loads[info->loads.begin + static_cast<uint32_t>(at - inputs.begin())]];
    const auto row =
        static_cast<uint64_t>(x.summary.inputs(static_cast<int>(input)).bytes_per_row());
    return placeRows({x.buffers[range.buffer].number, range.begin}, row);
  }

  /// Adds the numerators of a cell's losses to the device's sums.
  void addSums() {
    const uint32_t function = x.summary.sum_loss_function();
    for (int32_t u = cell->unitBegin; u < cell->unitEnd; ++u) {
      const auto &unit = summary->units(u);
      if (unit.loss_terms_size() == 0)
        continue;
      addCall(function, -1);
      std::vector<std::pair<uint32_t, uint32_t>> terms; // by term: the order of the function's
                                                        // arguments; the unit's order may differ
      terms.reserve(static_cast<size_t>(unit.loss_terms_size()));
      for (int k = 0; k < unit.loss_terms_size(); ++k)
        terms.push_back({unit.loss_terms(k), lossOf(u, static_cast<uint32_t>(k), /*later=*/false)});
      std::sort(terms.begin(), terms.end());
      for (auto [term, number] : terms)
        x.addArgument(bundle::LOSS, term, bundle::READ,
                      place(number, 0, lossRowsBytes(x.summary, *cell)),
                      Value::lossRows(static_cast<uint32_t>(u), term, samples()));
      x.addArgument(bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE,
                    placeBuffer(x.scalars[cell->device], kScalarsBytes, kSumsBytes), Value::sums());
    }
  }

  PlanLowering &x;
  // The cell of the current task.
  const Cell *cell = nullptr;
  const CellInfo *info = nullptr;
  const CellTemplate *shape = nullptr;
  const CellInside *inside = nullptr;
  const bundle::ModelSummary *summary = nullptr; ///< with the units of the cell's device
  std::vector<BufferRange> values, gradients;    ///< by value
  static constexpr int32_t kNoUnit = -1;
  std::vector<int32_t> contributors; ///< by value: the unit that first contributes to its gradient
  static constexpr uint64_t kNoTask = UINT64_MAX;
  std::vector<uint64_t> firstTask; ///< by buffer: cell, task and unit that first add to it
  /// The same by buffer and parameter, in plans with groups of devices.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> firstOfParameter;
  std::map<std::pair<const CellInfo *, int>, size_t> begun; ///< by cell and kind of task: number of
                                                            ///< calls before its next exchange
};

} // namespace

void zorse::step::addCellCalls(PlanLowering &x) { CellCaller(x).run(); }
