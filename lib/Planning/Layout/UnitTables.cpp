#include "UnitTables.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;
using step::UnitTask;

namespace {

constexpr int64_t kDirectRows = 512;
/// Whether a body has a slot; without bodies every slot is taken to exist, as the expansion does.
struct Slots {
  const bundle::BodyLibrary *bodies;
  bool has(uint32_t body, bundle::SlotKind kind, uint32_t index) const {
    if (!bodies)
      return true;
    if (body >= static_cast<uint32_t>(bodies->bodies_size()))
      return body == UINT32_MAX; // a part that this bundle does not hold: as if all slots were there
    for (const auto &slot : bodies->bodies(static_cast<int>(body)).slots())
      if (slot.kind() == kind && slot.index() == index)
        return true;
    return false;
  }
};

} // namespace

UnitTables::UnitTables(const Problem &problem) : recompute(problem.techniques.recompute) {
  const bundle::ModelSummary &summary = problem.summary;
  Slots slots{problem.bodies};
  momentCount = summary.moments();
  size_t count = static_cast<size_t>(summary.units_size());
  forwardAt.resize(count + 1);
  backwardAt.resize(count + 1);
  liveAt.resize(count + 1);
  forwardSum.assign(count + 1, 0);
  backwardSum.assign(count + 1, 0);
  for (int v = 0; v < summary.values_size(); ++v) {
    const auto &value = summary.values(v);
    uint32_t last = value.producer();
    for (uint32_t user : value.users())
      last = std::max(last, user);
    uint64_t bytes = static_cast<uint64_t>(value.bytes_per_row());
    values.push_back({bytes, static_cast<int32_t>(value.producer()), static_cast<int32_t>(last), value.needs_gradient()});
    for (uint32_t cut = value.producer() + 1; cut <= last; ++cut) {
      liveAt[cut].push_back(static_cast<uint32_t>(v));
      forwardAt[cut].push_back(bytes);
      forwardSum[cut] += static_cast<double>(bytes);
      if (value.needs_gradient()) {
        backwardAt[cut].push_back(bytes);
        backwardSum[cut] += static_cast<double>(bytes);
      }
    }
  }
  for (const auto &input : summary.inputs())
    inputBytes.push_back(static_cast<uint64_t>(input.bytes_per_row()));
  for (const auto &group : summary.groups()) {
    GroupTable table;
    table.elements = group.elements();
    table.elementSize = elementBytes(group.type());
    table.trainable = group.trainable();
    table.computeSize = elementBytes(computeType(group));
    table.casts = table.computeSize != table.elementSize && summary.cast_body() != 0;
    table.units.assign(group.units().begin(), group.units().end());
    groupTable.push_back(std::move(table));
  }
  for (const auto &info : summary.units()) {
    Unit unit{};
    unit.splits = info.splits();
    bool passesGradient = std::any_of(info.values_in().begin(), info.values_in().end(), [&](uint32_t v) { return values[v].needsGradient; });
    bool trains = std::any_of(info.parameters().begin(), info.parameters().end(),
                              [&](uint32_t p) { return summary.parameters(static_cast<int>(p)).trainable(); });
    bool onlyWeights = !passesGradient && trains;
    unit.splitInB = unit.splits || !onlyWeights;
    unit.splitInW = unit.splits || onlyWeights;
    anySplits |= unit.splits;
    uint32_t whole = info.backward_body(), b = unit.splits ? info.input_gradient_body() : whole,
             w = unit.splits ? info.weight_gradient_body() : whole;
    for (int i = 0; i < info.values_in_size(); ++i) {
      uint32_t index = static_cast<uint32_t>(i), v = info.values_in(i);
      unit.in.push_back({v, values[v].needsGradient, slots.has(whole, bundle::BOUNDARY_IN, index),
                         unit.splitInB && slots.has(b, bundle::BOUNDARY_IN, index), unit.splitInW && slots.has(w, bundle::BOUNDARY_IN, index)});
    }
    for (int i = 0; i < info.values_out_size(); ++i) {
      uint32_t index = static_cast<uint32_t>(i), v = info.values_out(i);
      unit.out.push_back({v, values[v].needsGradient, unit.splitInB && slots.has(b, bundle::BOUNDARY_OUT_GRADIENT, index),
                          unit.splitInW && slots.has(w, bundle::BOUNDARY_OUT_GRADIENT, index)});
    }
    unit.inputs.assign(info.inputs().begin(), info.inputs().end());
    unit.groups = zorse::groupsOfUnit(summary, info);
    unit.savedFixed = info.saved_bytes().fixed();
    unit.savedPerRow = info.saved_bytes().per_row();
    unit.deferredFixed = info.deferred_bytes().fixed();
    unit.deferredPerRow = info.deferred_bytes().per_row();
    const bundle::Extent *spaces[4] = {&info.forward_workspace(), &info.backward_workspace(), &info.input_gradient_workspace(),
                                       &info.weight_gradient_workspace()};
    for (int t = 0; t < 4; ++t) {
      unit.workspace[t][0] = spaces[t]->fixed();
      unit.workspace[t][1] = spaces[t]->per_row();
    }
    unit.savedReadByB = !unit.splitInW || !slots.has(w, bundle::SAVED, 0);
    unit.lossTerms = static_cast<uint32_t>(info.loss_terms_size());
    unitInfo.push_back(std::move(unit));
  }
}

bool UnitTables::inBackward(int32_t unit, bool split) const { return !split || unitInfo[static_cast<size_t>(unit)].splitInB; }
bool UnitTables::inWeights(int32_t unit) const { return unitInfo[static_cast<size_t>(unit)].splitInW; }

bool UnitTables::hasLoss(int32_t unitBegin, int32_t unitEnd) const {
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    if (unitInfo[static_cast<size_t>(u)].lossTerms)
      return true;
  return false;
}

/// Bytes per row of graph inputs; one that several units use counts with each.
double UnitTables::inputBytesOf(int32_t unitBegin, int32_t unitEnd) const {
  double bytes = 0;
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    for (uint32_t input : unitInfo[static_cast<size_t>(u)].inputs)
      bytes += static_cast<double>(inputBytes[input]);
  return bytes;
}

void UnitTables::groupsOf(int32_t unitBegin, int32_t unitEnd, std::vector<uint32_t> &result) const {
  result.clear();
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    result.insert(result.end(), unitInfo[static_cast<size_t>(u)].groups.begin(), unitInfo[static_cast<size_t>(u)].groups.end());
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
}

uint64_t UnitTables::workspace(int32_t unitBegin, int32_t unitEnd, int64_t rows, bool split) const {
  int64_t most = 0;
  for (int32_t u = unitBegin; u < unitEnd; ++u) {
    const Unit &unit = unitInfo[static_cast<size_t>(u)];
    auto add = [&](UnitTask task) { most = std::max(most, unit.workspace[size_t(task)][0] + unit.workspace[size_t(task)][1] * rows); };
    add(UnitTask::Forward);
    if (split && unit.splits) {
      add(UnitTask::InputGradients);
      add(UnitTask::WeightGradients);
    } else {
      add(UnitTask::Backward);
    }
  }
  return alignRegion(static_cast<uint64_t>(most));
}

CellBytes UnitTables::cellBytes(int32_t unitBegin, int32_t unitEnd, int64_t rows, bool split) const {
  CellBytes bytes;
  uint64_t r = static_cast<uint64_t>(rows);
  auto size = [&](uint32_t v) { return alignRegion(values[v].bytes * r); };
  enum End { AfterForward, AfterSend, AfterBackward, AfterWeights };
  auto freed = [&](End end, uint64_t n) {
    (end == AfterForward    ? bytes.freedByForward
     : end == AfterSend     ? bytes.freedBySend
     : end == AfterBackward ? bytes.freedByBackward
                            : bytes.freedByWeights) += n;
  };
  // How long the forward value of a boundary is needed here.
  auto lastUse = [&](uint32_t v, int32_t from, bool leaves) {
    End end = leaves ? AfterSend : AfterForward;
    for (int32_t u = from; u < unitEnd && u <= values[v].last; ++u)
      for (const Use &use : unitInfo[static_cast<size_t>(u)].in)
        if (use.value == v) {
          if (split && use.readByW)
            return AfterWeights;
          if (split ? use.readByB : use.readByBackward)
            end = AfterBackward;
        }
    return end;
  };
  for (uint32_t v : liveAt[static_cast<size_t>(unitBegin)]) {
    bytes.takenByReceive += size(v);
    bytes.hold += size(v);
    freed(lastUse(v, unitBegin, values[v].last >= unitEnd), size(v));
  }
  for (int32_t u = unitBegin; u < unitEnd; ++u) {
    const Unit &unit = unitInfo[static_cast<size_t>(u)];
    if (uint64_t saved = alignRegion(static_cast<uint64_t>(unit.savedFixed + unit.savedPerRow * rows))) {
      bytes.takenByForward += saved;
      bytes.hold += saved;
      freed(split && !unit.savedReadByB ? AfterWeights : AfterBackward, saved);
    }
    for (const Made &made : unit.out) {
      End end = lastUse(made.value, u + 1, values[made.value].last >= unitEnd);
      bytes.takenByForward += size(made.value);
      (end == AfterForward || end == AfterSend ? bytes.passing : bytes.hold) += size(made.value);
      freed(end, size(made.value));
    }
    bytes.takenByForward += unit.lossTerms * alignRegion(r * 8);
    bytes.freedByForward += unit.lossTerms * alignRegion(r * 8);
    for (uint32_t input : unit.inputs) { // loaded up to two cells ahead
      bytes.takenByForward += 3 * alignRegion(inputBytes[input] * r);
      bytes.hold += alignRegion(inputBytes[input] * r);
      freed(split ? AfterWeights : AfterBackward, 3 * alignRegion(inputBytes[input] * r));
    }
    if (split && unit.splits) {
      uint64_t deferred = alignRegion(static_cast<uint64_t>(unit.deferredFixed + unit.deferredPerRow * rows));
      bytes.takenByBackward += deferred;
      bytes.hold += deferred;
      bytes.deferred += deferred;
      bytes.freedByWeights += deferred;
    }
  }
  // Gradients: what the stage behind sends, and sums that begin here.
  auto gradientEnd = [&](uint32_t v) {
    if (!split)
      return AfterBackward;
    int32_t p = values[v].producer;
    if (p >= unitBegin)
      for (const Made &made : unitInfo[static_cast<size_t>(p)].out)
        if (made.value == v && made.gradientReadByW)
          return AfterWeights;
    return AfterBackward;
  };
  auto received = [&](uint32_t v) { return values[v].producer < unitEnd && values[v].last >= unitEnd && values[v].needsGradient; };
  for (uint32_t v : liveAt[static_cast<size_t>(unitEnd)])
    if (values[v].needsGradient) {
      bytes.takenByGradientReceive += size(v);
      bytes.passing += 2 * size(v);
      if (values[v].producer < unitBegin)
        bytes.freedByGradientSend += size(v);
      else
        freed(gradientEnd(v), size(v));
    }
  auto begins = [&](uint32_t v) { // the gradient's sum begins here and has not been counted
    bytes.takenByBackward += size(v);
    bool leaves = values[v].producer < unitBegin;
    End end = gradientEnd(v);
    (!leaves && end == AfterWeights ? bytes.hold : bytes.passing) += size(v);
    if (!leaves && end == AfterWeights)
      bytes.deferred += size(v);
    if (leaves)
      bytes.freedByGradientSend += size(v);
    else
      freed(end, size(v));
  };
  for (uint32_t v : liveAt[static_cast<size_t>(unitBegin)])
    if (values[v].needsGradient && !received(v))
      begins(v);
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    for (const Made &made : unitInfo[static_cast<size_t>(u)].out)
      if (made.needsGradient && values[made.value].last > u && !received(made.value))
        begins(made.value);
  if (recompute) { // what comes in is kept, the rest is there while B runs
    uint64_t kept = bytes.takenByReceive, inputs = 0;
    for (int32_t u = unitBegin; u < unitEnd; ++u)
      for (uint32_t input : unitInfo[static_cast<size_t>(u)].inputs)
        inputs += alignRegion(inputBytes[input] * r);
    kept += inputs + bytes.deferred;
    bytes.passing += bytes.hold - std::min(bytes.hold, kept);
    bytes.hold = std::min(bytes.hold, kept);
    bytes.takenByForward = 3 * inputs;
  }
  return bytes;
}

UnitTimes::UnitTimes(const Problem &problem, const UnitTables &tables) : problem(problem), tables(tables) {
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d) {
    uint32_t c = problem.costs.deviceClass(d);
    if (c >= deviceOfClass.size())
      deviceOfClass.resize(c + 1, 0);
    deviceOfClass[c] = d;
  }
  known.resize(deviceOfClass.size());
  large.resize(deviceOfClass.size());
}

const UnitTimes::Prefix &UnitTimes::of(uint32_t deviceClass, int64_t rows) {
  std::unique_ptr<Prefix> *place = nullptr;
  if (rows < kDirectRows) {
    auto &list = known[deviceClass];
    if (list.size() <= static_cast<size_t>(rows))
      list.resize(static_cast<size_t>(rows) + 1);
    place = &list[static_cast<size_t>(rows)];
  } else {
    auto &list = large[deviceClass];
    auto it = std::find_if(list.begin(), list.end(), [&](const auto &entry) { return entry.first == rows; });
    if (it == list.end()) {
      list.push_back({rows, nullptr});
      it = std::prev(list.end());
    }
    place = &it->second;
  }
  if (*place)
    return **place;
  auto prefix = std::make_unique<Prefix>();
  uint32_t device = deviceOfClass[deviceClass];
  auto sums = [&](std::vector<double> &list, auto seconds) {
    list.push_back(0);
    for (int32_t u = 0; u < tables.units(); ++u)
      list.push_back(list.back() + seconds(u));
  };
  auto unit = [&](int32_t u, UnitTask task) { return problem.costs.unit(device, u, task, rows); };
  bool split = tables.canSplit();
  sums(prefix->forward, [&](int32_t u) { return unit(u, UnitTask::Forward); });
  const bool recompute = problem.techniques.recompute;
  auto again = [&](int32_t u) { return recompute ? unit(u, UnitTask::Recompute) : 0.0; };
  sums(prefix->backward, [&](int32_t u) { return unit(u, UnitTask::Backward) + again(u); });
  auto part = [&](int32_t u, bool weights) {
    if (split && tables.splits(u))
      return unit(u, weights ? UnitTask::WeightGradients : UnitTask::InputGradients);
    return (weights ? tables.inWeights(u) : tables.inBackward(u, true)) ? unit(u, UnitTask::Backward) : 0.0;
  };
  sums(prefix->inputGradients, [&](int32_t u) { return part(u, false) + again(u); });
  sums(prefix->weightGradients, [&](int32_t u) { return part(u, true); });
  *place = std::move(prefix);
  return **place;
}
