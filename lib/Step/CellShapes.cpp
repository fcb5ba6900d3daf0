#include "CellShapes.h"

#include "Expansion.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

int firstOf(TaskSet tasks) { return tasks & kInF ? 0 : tasks & kInB ? 1 : 2; }
int lastOf(TaskSet tasks) { return tasks & kInW ? 2 : tasks & kInB ? 1 : 0; }

uint64_t aligned(const bundle::Extent &e, int64_t rows) { return alignRegion(static_cast<uint64_t>(e.fixed() + e.per_row() * rows)); }

} // namespace

const CellShape &CellShapes::of(const Cell &cell) {
  const bool keeps = cell.activations == Activations::Recompute && !recomputes(tables.summary, cell, split);
  const Key key{cell.unitBegin, cell.unitEnd, cell.rows(), keeps ? Activations::Keep : cell.activations};
  if (key == lastKey)
    return *last;
  const CellShape *&shape = known[key];
  if (!shape) {
    shapes.push_back(make(key));
    shapes.back().index = static_cast<uint32_t>(shapes.size() - 1);
    shape = &shapes.back();
  }
  lastKey = key;
  return *(last = shape);
}

CellShape CellShapes::make(const Key &key) const {
  const int32_t unitBegin = key.unitBegin, unitEnd = key.unitEnd;
  const int64_t rows = key.rows;
  const bool again = key.activations == Activations::Recompute, offload = key.activations == Activations::Offload;
  const Cell cell{unitBegin, unitEnd, 0, rows};
  const ExpansionTables &x = tables;
  CellShape shape;
  std::map<uint32_t, TaskSet> values, gradients, inputs;                                       // touched by a call
  std::vector<uint8_t> takes(static_cast<size_t>(x.summary.values_size()), 0), touches(takes); // some unit takes it; takes or makes it
  std::map<uint32_t, CellShape::GroupUse> groups;
  auto extentOf = [&](const bundle::Extent &e) { return static_cast<uint64_t>(e.fixed() + e.per_row() * rows); };
  auto hasGradient = [&](uint32_t v) { return x.summary.values(v).needs_gradient(); };
  auto addInside = [&](uint64_t bytes, TaskSet tasks) {
    if (tasks && bytes)
      shape.inside[firstOf(tasks)][lastOf(tasks)] += bytes;
  };
  // What F of a cell that recomputes makes there, and B makes again, has a buffer for each.
  auto addMade = [&](uint64_t bytes, TaskSet tasks) {
    if (again)
      addInside(bytes, tasks & kInF);
    addInside(bytes, again ? tasks & ~kInF : tasks);
  };
  /// Whether something that F leaves for later tasks leaves the device. Its buffer is then for those up to F.
  auto leaves = [&](bool block, uint32_t id, uint64_t bytes, TaskSet &tasks, int32_t port = -1) {
    const TaskSet later = tasks & (kInB | kInW);
    if (!offload || !later || !bytes)
      return false;
    tasks &= kInF;
    shape.leaving.push_back({block, id, bytes, later, port});
    return true;
  };
  uint64_t scratch = 0; // F's saved blocks, where B does not read them
  for (int32_t u = unitBegin; u < unitEnd; ++u) {
    const auto &unit = x.summary.units(u);
    TaskSet saved = 0, deferred = 0;
    for (uint32_t v : unit.values_in())
      takes[v] = touches[v] = 1;
    for (uint32_t v : unit.values_out())
      touches[v] = 1;
    const uint64_t lossBytes =
        static_cast<uint64_t>(unit.loss_terms_size()) * alignRegion(static_cast<uint64_t>(rows) * elementBytes(wideType(x.summary.compute_type())));
    shape.lossBytes += lossBytes;
    auto add = [&](std::optional<UnitTask> task, int kind) {
      if (!task)
        return;
      uint32_t body = unitFunction(unit, *task).body;
      TaskSet bit = static_cast<TaskSet>(1 << kind);
      const bool forward = *task == UnitTask::Forward || *task == UnitTask::Recompute;
      auto touch = [&](TaskSet &tasks, bundle::SlotKind slot, int index) {
        if (x.bodyHas(body, slot, static_cast<uint32_t>(index)))
          tasks |= bit;
      };
      for (int i = 0; i < unit.values_in_size(); ++i)
        touch(values[unit.values_in(i)], bundle::BOUNDARY_IN, i);
      for (int i = 0; i < unit.inputs_size(); ++i)
        touch(inputs[unit.inputs(i)], bundle::INPUT, i);
      touch(saved, bundle::SAVED, 0);
      shape.workspace = std::max(shape.workspace, extentOf(unitFunction(unit, *task).workspace));
      for (int i = 0; i < unit.parameters_size(); ++i) {
        const auto &parameter = x.summary.parameters(static_cast<int>(unit.parameters(i)));
        CellShape::GroupUse &use = groups.emplace(parameter.group(), CellShape::GroupUse{parameter.group(), 0, 0}).first->second;
        touch(use.parameters, bundle::PARAMETER, i);
        if (!forward && *task != UnitTask::InputGradients && parameter.trainable())
          touch(use.gradients, bundle::PARAMETER_GRADIENT, i);
      }
      if (forward) {
        for (int i = 0; i < unit.values_out_size() && *task == UnitTask::Forward; ++i)
          touch(values[unit.values_out(i)], bundle::BOUNDARY_OUT, i);
        return;
      }
      for (int i = 0; i < unit.values_in_size() && *task != UnitTask::WeightGradients; ++i)
        if (hasGradient(unit.values_in(i)))
          touch(gradients[unit.values_in(i)], bundle::BOUNDARY_IN_GRADIENT, i);
      for (int i = 0; i < unit.values_out_size(); ++i)
        if (hasGradient(unit.values_out(i)))
          touch(gradients[unit.values_out(i)], bundle::BOUNDARY_OUT_GRADIENT, i);
      if (*task == UnitTask::InputGradients || *task == UnitTask::WeightGradients)
        touch(deferred, bundle::DEFERRED, 0);
    };
    for (int kind = 0; kind < 3; ++kind)
      add(unitTask(x.summary, u, static_cast<TaskKind>(kind), split), kind);
    if (again) {
      const std::optional<UnitTask> repeated = repeatedTask(x.summary, cell, u);
      add(repeated, 1);
      if (repeated == UnitTask::Forward)
        addInside(lossBytes, kInB);
    }
    const uint64_t savedBytes = aligned(unit.saved_bytes(), rows);
    if (again && saved & kInF)
      scratch = std::max(scratch, savedBytes);
    if (saved & kInF && leaves(true, static_cast<uint32_t>(u), extentOf(unit.saved_bytes()), saved))
      saved = 0; // in buffers of the expansion, as its copies touch them
    addInside(savedBytes, again ? saved & ~kInF : saved);
    if (split)
      addInside(aligned(unit.deferred_bytes(), rows), deferred);
  }

  if (again)
    addInside(scratch, kInF);

  auto bytesOf = [&](uint32_t v) { return alignRegion(static_cast<uint64_t>(rows) * static_cast<uint64_t>(x.summary.values(v).bytes_per_row())); };
  auto tasksOf = [](const std::map<uint32_t, TaskSet> &map, uint32_t key) {
    auto it = map.find(key);
    return it == map.end() ? TaskSet(0) : it->second;
  };
  auto isIn = [](const std::vector<uint32_t> &list, uint32_t v) { return std::find(list.begin(), list.end(), v) != list.end(); };

  auto rowsOf = [&](uint32_t v) { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(x.summary.values(v).bytes_per_row()); };
  for (uint32_t v : x.liveAt[unitBegin]) {
    TaskSet tasks = tasksOf(values, v);
    const bool gone = leaves(false, v, rowsOf(v), tasks, static_cast<int32_t>(shape.in.size()));
    shape.in.push_back(tasks);
    shape.usesIn.push_back(takes[v]);
    (gone ? shape.passing : shape.hold) += bytesOf(v);
  }
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    for (uint32_t v : x.summary.units(u).values_out()) {
      TaskSet tasks = tasksOf(values, v);
      const bool goesOn = isIn(x.liveAt[unitEnd], v);
      if (leaves(false, v, rowsOf(v), tasks, goesOn ? static_cast<int32_t>(shape.in.size() + shape.produced.size()) : -1) && !goesOn)
        continue;
      if (!goesOn) {
        addMade(bytesOf(v), tasks);
        continue;
      }
      if (again) {
        addInside(bytesOf(v), tasks & ~kInF);
        tasks &= kInF;
      }
      shape.produced.push_back({v, tasks});
      (tasks & (kInB | kInW) ? shape.hold : shape.passing) += bytesOf(v);
    }
  for (uint32_t v : x.gradsAt[unitEnd]) {
    shape.gradIn.push_back(tasksOf(gradients, v));
    shape.usesGradIn.push_back(touches[v]);
    shape.passing += 2 * bytesOf(v); // the next cell's may come in meanwhile
  }
  // Gradients of what units here use, unless a cell further on has begun them.
  std::vector<uint32_t> begun;
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    for (uint32_t v : x.summary.units(u).values_in())
      if (hasGradient(v) && !isIn(x.gradsAt[unitEnd], v) && !isIn(begun, v)) {
        begun.push_back(v);
        if (isIn(x.gradsAt[unitBegin], v)) {
          shape.gradOut.push_back({v, tasksOf(gradients, v)});
          shape.passing += bytesOf(v);
        } else {
          addInside(bytesOf(v), tasksOf(gradients, v));
        }
      }
  auto placeIn = [](const std::vector<uint32_t> &list, uint32_t v) {
    return static_cast<int32_t>(std::find(list.begin(), list.end(), v) - list.begin());
  };
  auto placeOf = [](const std::vector<std::pair<uint32_t, TaskSet>> &list, uint32_t v) {
    auto it = std::find_if(list.begin(), list.end(), [&](const auto &item) { return item.first == v; });
    return it == list.end() ? -1 : static_cast<int32_t>(it - list.begin());
  };
  for (uint32_t v : x.liveAt[unitEnd]) {
    int32_t made = placeOf(shape.produced, v);
    shape.out.push_back(made >= 0 ? made : -1 - placeIn(x.liveAt[unitBegin], v));
  }
  for (uint32_t v : x.gradsAt[unitBegin]) {
    int32_t begunHere = placeOf(shape.gradOut, v);
    shape.gradsOut.push_back({begunHere >= 0 ? begunHere : -1 - placeIn(x.gradsAt[unitEnd], v), takes[v] != 0});
  }
  for (auto &[group, use] : groups)
    shape.groups.push_back(use);
  for (auto [input, tasks] : inputs) {
    shape.inputs.push_back({input, tasks});
    shape.hold += alignRegion(static_cast<uint64_t>(rows) * static_cast<uint64_t>(x.summary.inputs(static_cast<int>(input)).bytes_per_row()));
  }
  shape.hold += shape.inside[0][1] + shape.inside[0][2] + shape.inside[1][2];
  shape.deferred = shape.inside[1][2];
  shape.passing += shape.inside[0][0] + shape.inside[1][1] + shape.inside[2][2];
  for (const CellShape::Leaving &item : shape.leaving) // of one cell that makes it, one whose leaves, one that reads it, one whose comes
    shape.passing += 4 * alignRegion(item.bytes);
  return shape;
}

std::vector<uint64_t> zorse::step::fixedBytes(const Expansion &x) {
  std::vector<uint64_t> bytes(x.plan.devices.size(), 0);
  for (const Buffer &buffer : x.buffers)
    if (buffer.memory == bundle::DEVICE && buffer.purpose != Purpose::Activations && buffer.purpose != Purpose::Images)
      bytes[buffer.device] += alignRegion(buffer.bytes);
  return bytes;
}
