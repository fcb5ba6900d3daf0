#include "CellTemplates.h"

#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>
#include <map>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

int firstOf(TaskSet tasks) { return tasks & kInF ? 0 : tasks & kInB ? 1 : 2; }
int lastOf(TaskSet tasks) { return tasks & kInW ? 2 : tasks & kInB ? 1 : 0; }

constexpr TaskSet kLater = kInB | kInW;

bool isIn(const std::vector<uint32_t> &list, uint32_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

/// Makes one template. Data inside cells is listed only on request.
class CellTemplateBuilder {
public:
  CellTemplateBuilder(const LoweringTables &x, const UnitCalls &units, bool split,
                      CellTemplate &made, CellInside *inside)
      : x(x), summary(x.summary), units(units), split(split), made(made), inside(inside),
        cell(made.like), again(made.again), offloads(cell.activations == Activations::Offload),
        size(static_cast<uint32_t>(cell.unitEnd - cell.unitBegin)),
        values(static_cast<size_t>(summary.values_size()), 0), gradients(values), takes(values),
        touches(values), saved(size, 0), deferred(size, 0) {}

  void run() {
    number();
    walkCalls();
    addBlocks();
    addPorts();
    addValues();
    addGradients();
    findSources();
    addUp();
  }

private:
  int64_t rows() const { return cell.rows(); }
  uint64_t extentOf(const bundle::AffineSize &e) const {
    return static_cast<uint64_t>(e.fixed() + e.per_row() * rows());
  }
  uint64_t bytesOf(uint32_t v) const {
    return static_cast<uint64_t>(rows()) *
           static_cast<uint64_t>(summary.values(static_cast<int>(v)).bytes_per_row());
  }
  uint64_t held(uint32_t v) const { return alignRegion(bytesOf(v)); }
  bool hasGradient(uint32_t v) const {
    return summary.values(static_cast<int>(v)).needs_gradient();
  }
  const bundle::UnitInfo &unit(int32_t u) const { return summary.units(u); }
  uint32_t placeOf(int32_t u) const { return static_cast<uint32_t>(u - cell.unitBegin); }

  // ---- Buffer numbers, in the order in which programs count them.

  void number() {
    made.numbersOfF = again ? 1 : size; // one per saved block; if B recomputes, one for all, which
                                        // overwrite each other
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      numberMade(u, made.numbersOfF, madeValues, made.losses, kInF);
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      addExchanged(u, UnitTask::Forward, /*late=*/false);
    numberExchanged(/*late=*/false, made.numbersOfF);
    for (int32_t u = cell.unitEnd - 1; u >= cell.unitBegin; --u)
      for (uint32_t v : unit(u).values_in())
        if (hasGradient(v) && !isIn(x.gradsAt[cell.unitEnd], v) && !isIn(begun, v))
          begun.push_back(v);
    made.numbersOfB = static_cast<uint32_t>(begun.size());
    deferredPlace = made.numbersOfB;
    made.numbersOfB += split ? size : 0;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      addExchanged(u, unitTask(summary, u, TaskKind::Backward, split), /*late=*/true);
      if (again)
        addExchanged(u, repeatedTask(summary, cell, u), /*late=*/true);
    }
    numberExchanged(/*late=*/true, made.numbersOfB);
    savedAgain = made.numbersOfB;
    if (!again)
      return;
    made.numbersOfB += size;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (repeatedTask(summary, cell, u) == UnitTask::Forward)
        numberMade(u, made.numbersOfB, remade, lossesAgain, kInB);
  }

  void numberMade(int32_t u, uint32_t &next, std::vector<CellTemplate::Made> &ofValues,
                  std::vector<CellTemplate::Made> &ofLosses, TaskSet by) {
    for (uint32_t v : unit(u).values_out())
      ofValues.push_back({v, next++, 0});
    for (int k = 0; k < unit(u).loss_terms_size(); ++k)
      ofLosses.push_back({static_cast<uint32_t>(u), next++, by});
  }

  /// Adds what the devices of a group exchange in a task of a unit, and its workspace. A device
  /// executes one function at a time, so all functions begin at offset 0 of one buffer.
  void addExchanged(int32_t u, std::optional<UnitTask> task, bool late) {
    if (!task || unitFunction(summary, u, *task).exchanges_size() == 0)
      return;
    const bundle::UnitFunction &function = unitFunction(summary, u, *task);
    uint64_t offset = 0;
    auto add = [&](uint32_t number, uint64_t bytes) {
      exchanged[late].push_back({u, *task, number, offset});
      offset += alignRegion(bytes);
    };
    for (const auto &exchange : function.exchanges()) {
      uint64_t bytes = 0;
      for (const bundle::AffineSize &part : exchange.parts())
        bytes += extentOf(part);
      add(exchange.number(), bytes);
    }
    add(CellInside::kWorkspace, extentOf(function.workspace()));
    exchangedBytes[late] = std::max(exchangedBytes[late], offset);
  }

  void numberExchanged(bool late, uint32_t &next) {
    if (exchangedBytes[late])
      exchangePlace[late] = next++;
  }

  // ---- Calls, and the buffers that their arguments access.

  void walkCalls() {
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      for (uint32_t v : unit(u).values_in())
        takes[v] = touches[v] = 1;
      for (uint32_t v : unit(u).values_out())
        touches[v] = 1;
      for (uint32_t input : unit(u).inputs())
        inputs[input] |= 0;
      add(u, UnitTask::Forward, 0);
    }
    for (int32_t u = cell.unitBegin; u < cell.unitEnd && again; ++u)
      add(u, repeatedTask(summary, cell, u), 1);
    for (TaskKind kind : {TaskKind::Backward, TaskKind::Weights})
      for (int32_t u = cell.unitEnd - 1; u >= cell.unitBegin; --u)
        add(u, unitTask(summary, u, kind, split), static_cast<int>(kind));
  }

  void add(int32_t u, std::optional<UnitTask> task, int kind) {
    if (!task)
      return;
    if (const bundle::UnitFunction &function = unitFunction(summary, u, *task);
        function.exchanges_size() == 0)
      made.workspace = std::max(made.workspace, extentOf(function.workspace()));
    for (const UnitCall &call : units.of(u, *task)) {
      if (inside)
        inside->calls[kind].push_back({u, *task, &call});
      touch(u, call, static_cast<TaskSet>(1 << kind));
    }
  }

  void touch(int32_t u, const UnitCall &call, TaskSet bit) {
    for (const Binding &binding : call.arguments)
      switch (binding.of) {
      case Operand::Parameter:
        groupOf(binding.id).parameters |= bit;
        break;
      case Operand::ParameterGradient:
        groupOf(binding.id).gradients |= bit;
        break;
      case Operand::Input:
        inputs[binding.id] |= bit;
        break;
      case Operand::Value:
        values[binding.id] |= bit;
        break;
      case Operand::Gradient:
        gradients[binding.id] |= bit;
        break;
      case Operand::Saved:
        saved[placeOf(u)] |= bit;
        break;
      case Operand::Deferred:
        deferred[placeOf(u)] |= bit;
        break;
      case Operand::Workspace:
      case Operand::Scalars:
      case Operand::Loss:
      case Operand::Exchange:
        break;
      }
  }

  CellTemplate::GroupUse &groupOf(uint32_t parameter) {
    const uint32_t group = summary.parameters(static_cast<int>(parameter)).group();
    return groups.emplace(group, CellTemplate::GroupUse{group, 0, 0}).first->second;
  }

  // ---- Buffers.

  void addLocal(uint64_t bytes, uint32_t place, TaskSet tasks, bool late) {
    if (!tasks || !bytes)
      return;
    made.inside[firstOf(tasks)][lastOf(tasks)] += alignRegion(bytes);
    if (inside)
      inside->locals.push_back({bytes, place, tasks, late});
  }

  /// Returns whether data that F makes for later tasks is offloaded. If so, its buffer is needed
  /// only up to F.
  bool leaves(bool block, uint32_t id, uint32_t place, uint64_t bytes, TaskSet &tasks,
              int32_t port = -1) {
    const TaskSet later = tasks & kLater;
    if (!offloads || !later || !bytes)
      return false;
    tasks &= kInF;
    made.offloaded.push_back({block, id, place, bytes, later, port});
    return true;
  }

  /// Adds saved blocks, deferred blocks, and loss rows that are not read.
  void addBlocks() {
    uint64_t scratch = 0; // F's saved blocks overwrite each other if B does not read them
    TaskSet scratchTasks = 0;
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u) {
      const uint32_t place = placeOf(u);
      const uint64_t bytes = extentOf(zorse::classOf(summary, unit(u)).saved_bytes());
      scratch = std::max(scratch, bytes);
      scratchTasks |= saved[place] & kInF;
      if (again)
        addLocal(bytes, savedAgain + place, saved[place] & kLater, /*late=*/true);
      else if (!(saved[place] & kInF) ||
               !leaves(/*block=*/true, static_cast<uint32_t>(u), place, bytes, saved[place]))
        addLocal(bytes, place, saved[place], /*late=*/false);
      if (split)
        addLocal(extentOf(zorse::classOf(summary, unit(u)).saved_for_weight_grad_bytes()),
                 deferredPlace + place, deferred[place], /*late=*/true);
    }
    if (again)
      addLocal(scratch, 0, scratchTasks, /*late=*/false);
    for (bool late : {false, true})
      addLocal(exchangedBytes[late], exchangePlace[late], late ? kInB : kInF, late);
    for (const CellTemplate::Made &rows : lossesAgain)
      addLocal(lossRowsBytes(summary, cell), rows.place, kInB, /*late=*/true);
  }

  void addPorts() {
    for (uint32_t v : x.liveAt[cell.unitBegin]) {
      TaskSet tasks = values[v];
      const bool gone =
          leaves(/*block=*/false, v, 0, bytesOf(v), tasks, static_cast<int32_t>(made.in.size()));
      made.in.push_back(tasks);
      made.usesIn.push_back(takes[v]);
      (gone ? made.transientBytes : made.residentBytes) += held(v);
    }
    for (uint32_t v : x.gradsAt[cell.unitEnd]) {
      made.gradIn.push_back(gradients[v]);
      made.usesGradIn.push_back(touches[v]);
      made.transientBytes += 2 * held(v); // the next cell's may be received at the same time
    }
    for (auto [input, tasks] : inputs) {
      made.inputs.push_back({input, tasks});
      made.residentBytes += alignRegion(
          static_cast<uint64_t>(rows()) *
          static_cast<uint64_t>(summary.inputs(static_cast<int>(input)).bytes_per_row()));
    }
  }

  void addValues() {
    for (const CellTemplate::Made &value : madeValues) {
      const uint32_t v = value.id;
      TaskSet tasks = values[v];
      const bool goesOn = isIn(x.liveAt[cell.unitEnd], v);
      if (leaves(/*block=*/false, v, value.place, bytesOf(v), tasks,
                 goesOn ? static_cast<int32_t>(made.in.size() + made.produced.size()) : -1) &&
          !goesOn)
        continue;
      if (again) { // values that F makes and B recomputes have a buffer for each
        auto later = std::find_if(remade.begin(), remade.end(),
                                  [&](const CellTemplate::Made &other) { return other.id == v; });
        if (later != remade.end())
          addLocal(bytesOf(v), later->place, tasks & kLater, /*late=*/true);
        tasks &= kInF;
      }
      if (!goesOn) {
        addLocal(bytesOf(v), value.place, tasks, /*late=*/false);
        continue;
      }
      made.produced.push_back({v, value.place, tasks});
      (tasks & kLater ? made.residentBytes : made.transientBytes) += held(v);
    }
  }

  /// Adds gradients of values that units here use, unless a later cell begins them.
  void addGradients() {
    for (uint32_t place = 0; place < begun.size(); ++place) {
      const uint32_t v = begun[place];
      if (isIn(x.gradsAt[cell.unitBegin], v)) {
        made.gradOut.push_back({v, place, gradients[v]});
        made.transientBytes += held(v);
      } else {
        addLocal(bytesOf(v), place, gradients[v], /*late=*/true);
      }
    }
  }

  /// Finds the sources of the values and gradients at the outgoing cuts.
  void findSources() {
    auto placeIn = [](const std::vector<uint32_t> &list, uint32_t v) {
      return static_cast<int32_t>(std::find(list.begin(), list.end(), v) - list.begin());
    };
    auto indexOf = [](const std::vector<CellTemplate::Made> &list, uint32_t v) {
      auto it = std::find_if(list.begin(), list.end(),
                             [&](const CellTemplate::Made &one) { return one.id == v; });
      return it == list.end() ? -1 : static_cast<int32_t>(it - list.begin());
    };
    for (uint32_t v : x.liveAt[cell.unitEnd]) {
      const int32_t here = indexOf(made.produced, v);
      made.out.push_back(here >= 0 ? here : -1 - placeIn(x.liveAt[cell.unitBegin], v));
    }
    for (uint32_t v : x.gradsAt[cell.unitBegin]) {
      const int32_t here = indexOf(made.gradOut, v);
      made.gradsOut.push_back(
          {here >= 0 ? here : -1 - placeIn(x.gradsAt[cell.unitEnd], v), takes[v] != 0});
    }
  }

  void addUp() {
    for (auto &[group, use] : groups)
      made.groups.push_back(use);
    made.residentBytes += made.inside[0][1] + made.inside[0][2] + made.inside[1][2];
    made.deferred = made.inside[1][2];
    made.transientBytes += made.inside[0][0] + made.inside[1][1] + made.inside[2][2];
    // Of 4 cells: being made, copied out, copied in, and read.
    for (const CellTemplate::OffloadedBuffer &item : made.offloaded)
      made.transientBytes += 4 * alignRegion(item.bytes);
    if (!inside)
      return;
    inside->values = std::move(madeValues);
    inside->remade = std::move(remade);
    inside->lossesAgain = std::move(lossesAgain);
    addBegunGradients();
    for (bool late : {false, true}) {
      std::sort(exchanged[late].begin(), exchanged[late].end(),
                [](const auto &a, const auto &b) { return a.key() < b.key(); });
      inside->exchanged[late] = std::move(exchanged[late]);
      inside->exchangePlace[late] = exchangePlace[late];
    }
    inside->savedAgain = savedAgain;
    inside->deferred = deferredPlace;
  }

  void addBegunGradients() {
    std::map<uint32_t, int32_t> contributors;
    for (const CellInside::Call &of : inside->calls[1])
      for (const Binding &binding : of.call->arguments)
        if (binding.argument == bundle::BOUNDARY_IN_GRADIENT)
          contributors.try_emplace(binding.id, of.unit);
    for (uint32_t place = 0; place < begun.size(); ++place) {
      inside->gradients.push_back({begun[place], place, gradients[begun[place]]});
      const auto first = contributors.find(begun[place]);
      inside->contributors.push_back(first == contributors.end() ? -1 : first->second);
    }
  }

  const LoweringTables &x;
  const bundle::ModelSummary &summary;
  const UnitCalls &units;
  const bool split;
  CellTemplate &made;
  CellInside *const inside;
  const Cell &cell;
  const bool again, offloads;
  const uint32_t size; ///< number of units
  // By value: tasks with arguments for it; for its gradient; whether a unit reads it; whether a
  // unit reads or produces it.
  std::vector<TaskSet> values, gradients, takes, touches;
  std::vector<TaskSet> saved, deferred; ///< by unit
  std::map<uint32_t, TaskSet> inputs;
  std::map<uint32_t, CellTemplate::GroupUse> groups;
  std::vector<uint32_t> begun; ///< values whose gradients begin here, by place
  std::vector<CellTemplate::Made> madeValues, remade, lossesAgain;
  std::vector<CellInside::Exchanged> exchanged[2]; ///< of F and B
  uint64_t exchangedBytes[2] = {0, 0};             ///< of the buffers that they share
  uint32_t exchangePlace[2] = {0, 0};
  uint32_t savedAgain = 0, deferredPlace = 0;
};

} // namespace

const CellTemplate &CellTemplates::of(const Cell &cell) {
  const bool keeps = cell.activations == Activations::Recompute &&
                     !recomputes(tables.summary, cell, split);
  const Key key{cell.unitBegin, cell.unitEnd, cell.rows(),
                keeps ? Activations::Keep : cell.activations};
  if (key == lastKey)
    return *last;
  const CellTemplate *&found = known[key];
  if (!found) {
    templates.emplace_back();
    CellTemplate &made = templates.back();
    made.index = static_cast<uint32_t>(templates.size() - 1);
    made.like = {key.unitBegin, key.unitEnd, 0, key.rows, 0, key.activations};
    made.again = key.activations == Activations::Recompute;
    CellTemplateBuilder(tables, tables.unitCalls(), split, made, nullptr).run();
    found = &made;
  }
  lastKey = key;
  return *(last = found);
}

const CellInside &CellTemplates::inside(const CellTemplate &shape) {
  insides.resize(templates.size());
  std::unique_ptr<CellInside> &found = insides[shape.index];
  if (!found) {
    found = std::make_unique<CellInside>();
    CellTemplate same;
    same.like = shape.like;
    same.again = shape.again;
    CellTemplateBuilder(tables, tables.unitCalls(), split, same, found.get()).run();
  }
  return *found;
}

std::vector<uint64_t> zorse::step::fixedBytes(const PlanLowering &x) {
  std::vector<uint64_t> bytes(x.plan.devices.size(), 0);
  for (const Buffer &buffer : x.buffers)
    if (buffer.memory == bundle::DEVICE && buffer.category != MemoryCategory::Activations &&
        buffer.category != MemoryCategory::UpdateStaging)
      bytes[buffer.device] += alignRegion(buffer.bytes);
  return bytes;
}
