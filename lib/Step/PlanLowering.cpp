#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Summary/FlatGroups.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse::step;

static const Replicas kNoReplicas;

PlanLowering::PlanLowering(const bundle::ModelSummary &summary, const Plan &plan,
                           const StepOptions &options, LoweringTables &tables,
                           const UnshardHints *hints, const Replicas *replicas)
    : LoweringArrays(std::move(tables.spare())), summary(summary), plan(plan), options(options),
      tables(tables), costs(options.costs), liveAt(tables.liveAt), gradsAt(tables.gradsAt),
      hints(hints), replicas(replicas ? *replicas : kNoReplicas) {
  const size_t devices = plan.devices.size();
  linkLoads.assign(costs->network().resources(), 0);
  tables.reductions.use(plan, costs->network());
  listCells();
  findChunks();
  cells.resize(plan.cells.size());
  graph.devices.resize(devices);
  for (size_t d = 0; d < devices; ++d)
    graph.devices[d].name = plan.devices[d].name;
  groupStates.resize(devices);
  readersOf.resize(summary.groups_size());
  contributorsOf.resize(summary.groups_size());
  ownersOf.resize(summary.groups_size());
  scalars.assign(devices, kNone);
  loadScalars.assign(devices, kNone);
  workspace.assign(devices, kNone);
  optimizerStep.assign(devices, kNone);
  sumLoss.resize(devices);
  stamps.assign(summary.groups_size(), 0);
}

uint64_t zorse::step::lossRowsBytes(const bundle::ModelSummary &summary, const Cell &cell) {
  return static_cast<uint64_t>(cell.rows()) *
         elementBytes(accumulationType(summary.compute_type()));
}

PlanLowering::~PlanLowering() {
  clear();
  tables.spare() = std::move(static_cast<LoweringArrays &>(*this));
}

void LoweringArrays::clear() {
  auto each = [](auto &...arrays) { (arrays.clear(), ...); };
  each(buffers, placement.buffers, placement.allocations, ops, instructionQueues, edges, accesses,
       next.begins, next.items);
  each(order.priority, order.edges, globalOrder.ops, globalOrder.instructions,
       globalOrder.positions, globalOrder.startTime, globalOrder.endTime, globalOrder.busy);
  each(shapeOf, secondsOf, chunkOf, cells, boundaryValues, producers, inputs, moves, copies, parts,
       loads, offloads);
}

namespace {

/// \param list  returns the list of a cell
template <typename List, typename Less>
void fill(IndexLists &lists, size_t count, uint32_t items, const List &list, const Less &less) {
  lists.begins.assign(count + 1, 0);
  lists.items.resize(items);
  for (uint32_t i = 0; i < items; ++i)
    ++lists.begins[list(i) + 1];
  for (size_t i = 0; i < count; ++i)
    lists.begins[i + 1] += lists.begins[i];
  std::vector<uint32_t> next(lists.begins.begin(), lists.begins.end() - 1);
  for (uint32_t i = 0; i < items; ++i)
    lists.items[next[list(i)]++] = i;
  for (size_t i = 0; i < count; ++i) // plans nearly always list cells in this order
    if (auto begin = lists.items.begin() + lists.begins[i],
        end = lists.items.begin() + lists.begins[i + 1];
        !std::is_sorted(begin, end, less))
      std::sort(begin, end, less);
}

} // namespace

void PlanLowering::listCells() {
  const std::vector<Cell> &cells = plan.cells;
  const auto count = static_cast<uint32_t>(cells.size());
  auto bySample = [&](uint32_t a, uint32_t b) {
    return cells[a].sampleBegin != cells[b].sampleBegin
               ? cells[a].sampleBegin < cells[b].sampleBegin
               : cells[a].unitBegin < cells[b].unitBegin;
  };
  const size_t cuts = static_cast<size_t>(summary.units_size()) + 1;
  fill(
      cellsByBegin, cuts, count,
      [&](uint32_t c) { return static_cast<size_t>(cells[c].unitBegin); }, bySample);
  fill(
      cellsByEnd, cuts, count, [&](uint32_t c) { return static_cast<size_t>(cells[c].unitEnd); },
      bySample);
  fill(cellsOf, plan.devices.size(), count, [&](uint32_t c) { return cells[c].device; }, bySample);
  shapeOf.resize(count);
  secondsOf.resize(count);
  const bool split = plan.schedule.splitBackward;
  for (uint32_t d = 0; d < plan.devices.size(); ++d) {
    uint32_t before = kNone; // previous cell: most cells of a device have equal shapes
    for (uint32_t c : cellsOf[d]) {
      LoweringTables &own = tables.of(cells[c]);
      shapeOf[c] = &own.shapes(split).of(cells[c]);
      secondsOf[c] = before != kNone && shapeOf[c] == shapeOf[before]
                         ? secondsOf[before]
                         : &own.seconds(cells[c], *shapeOf[c], split);
      before = c;
    }
  }
}

uint32_t PlanLowering::addBuffer(uint32_t device, uint64_t bytes, MemoryCategory category,
                                 bool persistent, MemoryTier tier) {
  Buffer buffer;
  buffer.memory = tier == MemoryTier::Host ? bundle::PINNED_HOST : bundle::DEVICE;
  buffer.bytes = bytes;
  buffer.device = device;
  buffer.category = category;
  buffer.persistent = persistent;
  buffer.number = takeNumbers(1);
  buffers.push_back(buffer);
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t PlanLowering::addNumbered(uint32_t device, uint64_t bytes, uint32_t number) {
  Buffer buffer;
  buffer.bytes = bytes;
  buffer.device = device;
  buffer.number = number;
  buffers.push_back(buffer);
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t PlanLowering::addOp(double duration, uint8_t rank, int64_t sample, int32_t unit) {
  ScheduledOp op;
  op.instructions.begin = op.instructions.end = static_cast<uint32_t>(instructionQueues.size());
  op.duration = duration;
  op.priority = priorityOf(rank, sample, unit);
  ops.push_back(op);
  return static_cast<uint32_t>(ops.size() - 1);
}

uint32_t PlanLowering::addTransfer(uint32_t from, uint32_t to, uint64_t bytes, uint8_t rank,
                                   int64_t sample, int32_t unit) {
  sim::Route route = costs->network().route(from, to);
  double slowest = route.perFlowBandwidth > 0 ? 1 / route.perFlowBandwidth : 0;
  for (uint32_t r = 0; r < route.count; ++r) {
    const double seconds = costs->network().secondsPerByte(route.resources[r]);
    slowest = std::max(slowest, seconds);
    linkLoads[route.resources[r]] += static_cast<double>(bytes) * seconds;
  }
  uint32_t index = addOp(static_cast<double>(bytes) * slowest + route.latency, rank, sample, unit);
  ScheduledOp &op = ops.back();
  op.work = Work::Transfer;
  op.from = from;
  op.to = to;
  op.bytes = static_cast<double>(bytes);
  return index;
}

uint32_t PlanLowering::addTierCopy(uint32_t device, QueueIndex queue, bundle::Phase phase,
                                   Region from, Region to, Value value, uint64_t priority) {
  const uint32_t op = addOp(costs->load(device, from.bytes), 0, 0, 0);
  ops[op].priority = priority;
  addInstruction(device, queue);
  describeCopy(from, to, value, phase);
  addAccess(op, from.arena);
  addAccess(op, to.arena);
  return op;
}

/// Whether one call may update a parameter and the one before it: states have the positions of the
/// elements, without padding between parameters.
static bool joins(const zorse::bundle::ModelSummary &summary,
                  const zorse::bundle::ParameterInfo &parameter) {
  if (!parameter.trainable() ||
      parameter.update_rule() >= static_cast<uint32_t>(summary.update_rules_size()))
    return true;
  const auto &rule = summary.update_rules(static_cast<int>(parameter.update_rule()));
  const int64_t elements = zorse::blockElements(rule);
  return std::all_of(rule.states().begin(), rule.states().end(), [&](const auto &state) {
    return state.entries() == elements && state.type() == zorse::bundle::ELEMENT_TYPE_UNSPECIFIED;
  });
}

std::vector<PlanLowering::Run> PlanLowering::runsOf(uint32_t group, int64_t from,
                                                    int64_t to) const {
  std::vector<Run> runs;
  for (uint32_t p : summary.groups(static_cast<int>(group)).parameters()) {
    const auto &parameter = summary.parameters(static_cast<int>(p));
    const int64_t begin = std::max(from, parameter.offset()),
                  end = std::min(to, parameter.offset() + zorse::elementsOf(parameter));
    if (begin >= end)
      continue;
    if (!runs.empty() && runs.back().end == begin && runs.back().rule == parameter.update_rule() &&
        joins(summary, parameter))
      runs.back().end = end;
    else
      runs.push_back({begin, end, parameter.update_rule(), 0});
  }
  return splitRuns(runs);
}

std::vector<PlanLowering::Run> PlanLowering::splitRuns(const std::vector<Run> &whole) const {
  constexpr int64_t kWorkspace = 64 << 20; // bytes; a matrix may need more
  std::vector<Run> runs;
  for (const Run &run : whole) {
    const auto &rule = summary.update_rules(static_cast<int>(run.rule));
    const int64_t each = zorse::blockElements(rule), bytes = rule.workspace().per_row();
    // Arguments of a call are aligned.
    const int64_t together = zorse::alignedBlocks(rule, summary.compute_type());
    const int64_t most = bytes > 0 ? std::max<int64_t>(1, kWorkspace / bytes / together) * together
                                   : INT64_MAX;
    for (int64_t begin = run.begin; begin < run.end;) {
      const int64_t rows = std::min(most, (run.end - begin) / each);
      runs.push_back({begin, begin + rows * each, run.rule, rows});
      begin = runs.back().end;
    }
  }
  return runs;
}

bool PlanLowering::hasRuns(uint32_t group, int64_t from, int64_t to) const {
  const auto &parameters = summary.groups(static_cast<int>(group)).parameters();
  return std::any_of(parameters.begin(), parameters.end(), [&](uint32_t p) {
    const auto &parameter = summary.parameters(static_cast<int>(p));
    return std::max(from, parameter.offset()) <
           std::min(to, parameter.offset() + zorse::elementsOf(parameter));
  });
}

UpdateWork PlanLowering::updateWork(uint32_t group, int64_t begin, int64_t end) const {
  UpdateWork work{end - begin};
  if (!zorse::updatesBlocks(summary, summary.groups(static_cast<int>(group))))
    return work;
  for (const Run &run : runsOf(group, begin, end)) {
    const auto &rule = summary.update_rules(static_cast<int>(run.rule));
    work.flops += zorse::updateFlops(summary.training(), rule) *
                  static_cast<double>(run.end - run.begin);
  }
  return work;
}

uint64_t PlanLowering::updateWorkspace(uint32_t group, int64_t begin, int64_t end) const {
  uint64_t bytes = 0;
  if (!zorse::updatesBlocks(summary, summary.groups(static_cast<int>(group))))
    return bytes; // updates of elements need none
  for (const Run &run : runsOf(group, begin, end)) {
    const bundle::AffineSize &workspace =
        summary.update_rules(static_cast<int>(run.rule)).workspace();
    bytes =
        std::max(bytes, static_cast<uint64_t>(workspace.fixed() + workspace.per_row() * run.rows));
  }
  return bytes;
}

void PlanLowering::addInstruction(uint32_t device, QueueIndex queue) {
  instructionQueues.push_back(device * kQueues + queue);
  ops.back().instructions.end = static_cast<uint32_t>(instructionQueues.size());
}

double Collective::termBytes() const {
  return static_cast<double>(elementBytes(bf16Terms ? bundle::BF16 : type));
}

void PlanLowering::describeCollective(Work work, Collective collective) {
  describe(OpKind::Collective, static_cast<uint32_t>(parts.size()));
  ops.back().work = work;
  ops.back().from = static_cast<uint32_t>(graph.collectives.size());
  graph.collectives.push_back(std::move(collective));
}

std::vector<uint32_t> PlanLowering::participants(uint32_t group,
                                                 const std::vector<uint32_t> &members) const {
  std::vector<uint32_t> all(members);
  all.insert(all.end(), ownersOf[group].begin(), ownersOf[group].end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<int64_t> PlanLowering::readCuts(uint32_t group) {
  const int64_t elements = summary.groups(static_cast<int>(group)).elements();
  std::vector<int64_t> cuts;
  if (plan.groups.empty())
    return cuts;
  for (uint32_t d : readersOf[group])
    if (const GroupState &state = *findGroupState(d, group); !state.readsAll(elements))
      for (const Compact::Run &run : state.read.runs())
        cuts.insert(cuts.end(), {run.begin, run.end});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

GroupState *PlanLowering::findGroupState(uint32_t device, uint32_t group) {
  auto &list = groupStates[device];
  // Most devices hold consecutive groups.
  if (!list.empty() && group - list.front().group < list.size())
    if (GroupState &guess = list[group - list.front().group]; guess.group == group)
      return &guess;
  auto it = std::lower_bound(list.begin(), list.end(), group,
                             [](const GroupState &h, uint32_t g) { return h.group < g; });
  return it != list.end() && it->group == group ? &*it : nullptr;
}

std::vector<uint32_t> PlanLowering::groupsIn(const ModelChunk &chunk) {
  std::vector<uint32_t> groups;
  const LoweringTables &own = tablesOf(chunk);
  ++stamp;
  for (int32_t u = chunk.unitBegin; u < chunk.unitEnd; ++u)
    for (uint32_t group : own.groupsOf[static_cast<size_t>(u)])
      if (stamps[group] != stamp) {
        stamps[group] = stamp;
        groups.push_back(group);
      }
  return groups;
}

const CellInside &PlanLowering::insideOf(uint32_t cell) {
  return tables.of(plan.cells[cell]).shapes(plan.schedule.splitBackward).inside(*shapeOf[cell]);
}

const LoweringTables &PlanLowering::tablesOf(const ModelChunk &chunk) {
  return tables.of(plan.cells[chunk.cells.front()]);
}

void PlanLowering::findChunks() {
  chunkOf.assign(plan.cells.size(), kNone);
  chunkGroupsOf.assign(plan.devices.size(), 0);
  std::map<std::tuple<int32_t, int32_t, int32_t>, uint32_t> known; // the device's chunks by units
                                                                   // and group
  for (uint32_t d = 0; d < plan.devices.size(); ++d) {
    known.clear();
    size_t before = chunks.size();
    for (uint32_t c : cellsOf[d]) {
      const Cell &cell = plan.cells[c];
      bool again = chunks.size() > before && chunks.back().unitBegin == cell.unitBegin &&
                   chunks.back().unitEnd == cell.unitEnd && chunks.back().group == cell.group;
      uint32_t k = static_cast<uint32_t>(chunks.size() - again);
      if (!again) {
        auto [it, fresh] = known.emplace(std::tuple(cell.unitBegin, cell.unitEnd, cell.group), k);
        if (fresh)
          chunks.push_back({d, cell.unitBegin, cell.unitEnd, cell.group, {}, 0});
        k = it->second;
      }
      chunks[k].cells.push_back(c);
      chunks[k].rows += cell.rows();
      chunkOf[c] = k;
    }
    // Bands, in the order of units: a chunk with an overlapping range joins the band.
    std::vector<uint32_t> order;
    for (size_t k = before; k < chunks.size(); ++k)
      order.push_back(static_cast<uint32_t>(k));
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return chunks[a].unitBegin < chunks[b].unitBegin; });
    const size_t firstChunkGroup = chunkGroups.size();
    for (uint32_t k : order) {
      ModelChunk &chunk = chunks[k];
      if (chunkGroups.size() == firstChunkGroup || chunk.unitBegin >= chunkGroups.back().unitEnd)
        chunkGroups.push_back({d, chunk.unitBegin, chunk.unitEnd, {}, 0});
      ChunkGroup &chunkGroup = chunkGroups.back();
      chunk.chunkGroup = static_cast<uint32_t>(chunkGroups.size() - 1);
      chunkGroup.unitEnd = std::max(chunkGroup.unitEnd, chunk.unitEnd);
      chunkGroup.rows += chunk.rows;
    }
    for (uint32_t c : cellsOf[d])
      chunkGroups[chunks[chunkOf[c]].chunkGroup].cells.push_back(c);
    chunkGroupsOf[d] = static_cast<uint32_t>(chunkGroups.size() - firstChunkGroup);
  }
}

Call &PlanLowering::addCall(uint32_t function, int32_t unit, int64_t rows, int64_t sampleBase) {
  Call call;
  call.function = function;
  call.unit = unit;
  call.rows = rows;
  call.sampleBase = sampleBase;
  call.rngIdBase = unit < 0 ? 0 : summary.units(unit).rng_id_base();
  call.arguments.begin = call.arguments.end = static_cast<uint32_t>(graph.arguments.size());
  graph.calls.push_back(call);
  graph.instructions.back().calls.end = static_cast<uint32_t>(graph.calls.size());
  return graph.calls.back();
}

void PlanLowering::addArgument(bundle::ArgumentKind kind, uint32_t index, bundle::AccessMode mode,
                               Region where, const Value &value) {
  if (!functionHas(graph.calls.back().function, kind, index))
    return;
  FunctionArgument &argument = graph.arguments.emplace_back();
  argument.kind = kind;
  argument.index = index;
  argument.mode = mode;
  argument.region = where;
  argument.value = value;
  graph.calls.back().arguments.end = static_cast<uint32_t>(graph.arguments.size());
}

bool PlanLowering::functionHas(uint32_t function, bundle::ArgumentKind kind, uint32_t index) const {
  return tables.functionHas(function, kind, index);
}
