#include "RandomPlan.h"

#include "../../lib/Planning/Search/SplitMix64.h"

#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <algorithm>

using namespace zorse::step;

namespace {

/// Used instead of the standard library's distributions, which differ between implementations.
class Random : public zorse::planning::SplitMix64 {
public:
  using SplitMix64::SplitMix64;
  /// A random number in [low, high).
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low));
  }
};

struct Rectangle {
  int32_t u0, u1;
  int64_t s0, s1;
};

class Cutter {
public:
  Cutter(Random &random, std::vector<Cell> &cells, int stop)
      : random(random), cells(cells), stop(stop) {}

  void cut(Rectangle r, int depth) {
    int32_t units = r.u1 - r.u0;
    int64_t rows = r.s1 - r.s0;
    if (depth > 6 || (units == 1 && rows == 1) || (depth > 0 && random.chance(stop)))
      return cells.push_back({r.u0, r.u1, r.s0, r.s1, 0});
    if (units >= 3 && rows >= 3 && random.chance(35))
      return pinwheel(r, depth);
    if (rows == 1 || (units > 1 && random.chance(45))) {
      int32_t at = static_cast<int32_t>(random.between(r.u0 + 1, r.u1));
      cut({r.u0, at, r.s0, r.s1}, depth + 1);
      return cut({at, r.u1, r.s0, r.s1}, depth + 1);
    }
    int64_t at = random.between(r.s0 + 1, r.s1);
    cut({r.u0, r.u1, r.s0, at}, depth + 1);
    cut({r.u0, r.u1, at, r.s1}, depth + 1);
  }

private:
  /// Four arms around a center, in either direction of rotation.
  void pinwheel(Rectangle r, int depth) {
    int32_t ua = static_cast<int32_t>(random.between(r.u0 + 1, r.u1 - 1)),
            ub = static_cast<int32_t>(random.between(ua + 1, r.u1));
    int64_t sa = random.between(r.s0 + 1, r.s1 - 1), sb = random.between(sa + 1, r.s1);
    if (random.chance(50)) {
      cut({r.u0, ua, r.s0, sb}, depth + 1);
      cut({r.u0, ub, sb, r.s1}, depth + 1);
      cut({ub, r.u1, sa, r.s1}, depth + 1);
      cut({ua, r.u1, r.s0, sa}, depth + 1);
    } else {
      cut({r.u0, ub, r.s0, sa}, depth + 1);
      cut({r.u0, ua, sa, r.s1}, depth + 1);
      cut({ua, r.u1, sb, r.s1}, depth + 1);
      cut({ub, r.u1, r.s0, sb}, depth + 1);
    }
    cut({ua, ub, sa, sb}, depth + 1);
  }

  Random &random;
  std::vector<Cell> &cells;
  int stop; ///< percentage of rectangles that are not divided further
};

/// Draws an order without deadlocks: a random topological order of the tasks.
void drawOrder(Random &random, Plan &plan) {
  size_t n = plan.cells.size(), tasks = (plan.schedule.splitBackward ? 3 : 2) * n;
  std::vector<std::vector<uint32_t>> after(tasks); // F of cell c is task c, its B is n + c, its W
                                                   // 2n + c
  std::vector<uint32_t> missing(tasks, 0);
  auto edge = [&](size_t before, size_t then) {
    after[before].push_back(static_cast<uint32_t>(then));
    ++missing[then];
  };
  for (size_t a = 0; a < n; ++a) {
    edge(a, n + a);
    if (plan.schedule.splitBackward)
      edge(n + a, 2 * n + a);
    for (size_t b = 0; b < n; ++b) {
      const Cell &p = plan.cells[a], &q = plan.cells[b];
      if (p.unitEnd != q.unitBegin || p.sampleEnd <= q.sampleBegin || q.sampleEnd <= p.sampleBegin)
        continue;
      edge(a, b);
      edge(n + b, n + a);
    }
  }
  std::vector<uint32_t> ready;
  for (uint32_t task = 0; task < tasks; ++task)
    if (missing[task] == 0)
      ready.push_back(task);
  plan.schedule.kind = ScheduleKind::Explicit;
  plan.order.assign(plan.devices.size(), {});
  while (!ready.empty()) {
    std::swap(ready[random.between(0, static_cast<int64_t>(ready.size()))], ready.back());
    uint32_t task = ready.back();
    ready.pop_back();
    uint32_t cell = task % static_cast<uint32_t>(n);
    plan.order[plan.cells[cell].device].push_back({static_cast<TaskKind>(task / n), cell});
    for (uint32_t next : after[task])
      if (--missing[next] == 0)
        ready.push_back(next);
  }
}

/// Draws residency rules for a third of the plans, some of them with gathers by phase. A separate
/// random number generator keeps the rest of the plan of a seed unchanged.
void drawResidency(uint64_t seed, Plan &plan, const zorse::bundle::ModelSummary &summary) {
  Random random(seed ^ 0x7265736964ull);
  for (int64_t rules = random.chance(33) ? random.between(1, 4) : 0; rules > 0; --rules) {
    OffloadRule rule;
    for (uint32_t d = 0; d < plan.devices.size() && rules > 1; ++d)
      if (random.chance(50))
        rule.devices.push_back(d);
    for (int g = 0; g < summary.groups_size() && rules != 2; ++g)
      if (random.chance(50))
        rule.groups.push_back(static_cast<uint32_t>(g));
    for (std::optional<MemoryTier> *tier :
         {&rule.parameters, &rule.optimizerStates, &rule.gradients})
      if (random.chance(60))
        *tier = random.chance(75) ? MemoryTier::Host : MemoryTier::Device;
    if (rule.devices.empty() && random.chance(60))
      rule.reshardAfterForward = random.chance(80);
    if (rule.groups.empty() && random.chance(40))
      rule.bufferCount = static_cast<uint32_t>(random.between(1, 4));
    if (rule.parameters || rule.optimizerStates || rule.gradients ||
        rule.reshardAfterForward.has_value() || rule.bufferCount)
      plan.offload.push_back(std::move(rule));
  }
  if (Random update(seed ^ 0x757064617465ull);
      !plan.offload.empty() && update.chance(40)) { // host updates on some devices, for some groups
    OffloadRule rule;
    for (uint32_t d = 0; d < plan.devices.size(); ++d)
      if (update.chance(60))
        rule.devices.push_back(d);
    for (int g = 0; g < summary.groups_size(); ++g)
      if (update.chance(60))
        rule.groups.push_back(static_cast<uint32_t>(g));
    rule.parameters = rule.optimizerStates = rule.optimizer = MemoryTier::Host;
    plan.offload.push_back(std::move(rule));
  }
  if (!plan.offload.empty() && plan.schedule.kind != ScheduleKind::Explicit && random.chance(40)) {
    const bool split = plan.schedule.splitBackward;
    plan.schedule = Schedule();
    plan.schedule.kind = ScheduleKind::BreadthFirst;
    plan.schedule.splitBackward = split;
  }
}

} // namespace

void zorse::step::randomOrder(Plan &plan, uint64_t seed) {
  Random random(seed ^ 0x6F72646572ull);
  drawOrder(random, plan);
}

Plan zorse::step::randomPlan(const bundle::ModelSummary &summary, int64_t batch, uint32_t devices,
                             uint64_t seed) {
  Random random(seed ^ 0x5A6F727365ull);
  Plan plan;
  plan.model = summary.content_hash();
  plan.batch = batch;
  plan.samplesPerRow = zorse::samplesPerRow(summary);
  Random places(seed ^ 0x706C61636573ull); // more nodes and sites, for trees of several levels
  const bool sites = places.chance(40);
  for (uint32_t d = 0; d < devices; ++d) {
    PlanDevice device;
    device.name = "d" + std::to_string(d);
    device.flopsPerSecond = static_cast<double>(random.between(1, 9)) * 1e9;
    device.node = random.chance(70) ? "n0" : "n1";
    if (places.chance(30))
      device.node += "b";
    if (sites)
      device.site = places.chance(50) ? "s0" : "s1";
    plan.devices.push_back(device);
  }
  plan.intraNode = {1e9, 1e-6};
  plan.interNode = {1e8, 1e-4};

  Cutter(random, plan.cells, static_cast<int>(random.between(5, 40)))
      .cut({0, summary.units_size(), 0, batch}, 0);
  // Some devices stay idle. Consecutive cells are assigned to the same device, so that neighbors
  // share buffers.
  uint32_t working = static_cast<uint32_t>(random.between(1, devices + 1));
  uint32_t device = 0;
  for (Cell &cell : plan.cells) {
    if (random.chance(70))
      device = static_cast<uint32_t>(random.between(0, working));
    cell.device = (device + static_cast<uint32_t>(seed)) % devices;
  }
  for (size_t i = plan.cells.size(); i > 1; --i) // the order of the list has no meaning
    std::swap(plan.cells[i - 1], plan.cells[random.between(0, static_cast<int64_t>(i))]);

  plan.defaultSharding = kDefaultShardings[random.between(0, 3)];
  plan.schedule.kind = random.chance(70) ? ScheduleKind::OneForwardOneBackward
                                         : ScheduleKind::GPipe;
  for (int g = 0; g < summary.groups_size(); ++g) {
    if (!summary.groups(g).trainable() || random.chance(50))
      continue;
    GroupOwners instruction;
    instruction.group = g;
    std::vector<uint32_t> order(devices);
    for (uint32_t d = 0; d < devices; ++d)
      order[d] = d;
    for (uint32_t i = devices; i > 1; --i)
      std::swap(order[i - 1], order[random.between(0, i)]);
    int64_t owners = random.between(1, std::min<int64_t>(devices, 4) + 1);
    int64_t left = 100;
    for (int64_t i = 0; i < owners; ++i) {
      int64_t share = i + 1 == owners ? left : random.chance(20) ? 0 : random.between(0, left + 1);
      left -= share;
      Owner owner;
      owner.device = order[i];
      owner.fraction = static_cast<double>(share) / 100;
      instruction.owners.push_back(owner);
    }
    plan.owners.push_back(std::move(instruction));
  }
  plan.schedule.splitBackward = random.chance(33);
  if (random.chance(40)) {
    plan.schedule.kind = ScheduleKind::SteadyState;
    plan.schedule.inFlightFactor = static_cast<double>(random.between(2, 13)) / 4;
    plan.schedule.maxWeightGradDelay = static_cast<double>(random.between(0, 3));
    plan.schedule.microbatchGroupSize = static_cast<uint32_t>(random.between(0, 4));
  } else if (plan.schedule.kind == ScheduleKind::OneForwardOneBackward && random.chance(30)) {
    for (uint32_t d = 0; d < devices; ++d)
      plan.schedule.warmupForwards.push_back(static_cast<uint32_t>(random.between(0, 5)));
  }
  if (random.chance(20))
    drawOrder(random, plan);
  drawResidency(seed, plan, summary);
  const auto &training = summary.training();
  if (training.clip_norm() == 0 && training.loss_scale() == 0 &&
      Random(seed ^ 0x636F6D6D6974ull).chance(60))
    plan.optimizerStep = OptimizerStep::InBackward;
  plan.communication = Random(seed ^ 0x626C6F636Bull).chance(15) ? Communication::Rendezvous
                                                                 : Communication::Overlapped;
  randomActivations(plan, seed);
  return plan;
}

void zorse::step::randomActivations(Plan &plan, uint64_t seed) {
  for (Cell &cell : plan.cells)
    cell.activations = Activations::Keep;
  if (Random recompute(seed ^ 0x616761696Eull); recompute.chance(25))
    for (Cell &cell : plan.cells)
      cell.activations = recompute.chance(75) ? Activations::Recompute : Activations::Keep;
  if (Random offload(seed ^ 0x6F66666C64ull); offload.chance(30))
    for (Cell &cell : plan.cells)
      if (cell.activations == Activations::Keep && offload.chance(75))
        cell.activations = Activations::Offload;
}
