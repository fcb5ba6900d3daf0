#include "Tilings.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

void tile(int units, int64_t samples, uint64_t covered, std::vector<step::Cell> &cells,
          const std::function<void(const std::vector<step::Cell> &)> &act) {
  const uint64_t all = (uint64_t(1) << (units * samples)) - 1;
  if (covered == all)
    return act(cells);
  int first = __builtin_ctzll(~covered);
  int unit = first / static_cast<int>(samples);
  int64_t sample = first % samples;
  for (int64_t width = 1; sample + width <= samples; ++width) {
    if (covered >> (unit * samples + sample + width - 1) & 1)
      break;
    uint64_t row = ((uint64_t(1) << width) - 1) << sample, whole = 0;
    for (int height = 1; unit + height <= units; ++height) {
      uint64_t next = row << ((unit + height - 1) * samples);
      if (covered & next)
        break;
      whole |= next;
      cells.push_back({unit, unit + height, sample, sample + width, 0});
      tile(units, samples, covered | whole, cells, act);
      cells.pop_back();
    }
  }
}

/// F and B of cell c are tasks 2c and 2c + 1.
class Search {
public:
  Search(const Problem &problem, const TilingOptions &options)
      : problem(problem), options(options),
        devices(static_cast<int>(problem.cluster.devices.size())),
        limit(options.known * (1 - 1e-9)) {
    const auto &summary = problem.summary;
    for (int cut = 0; cut <= summary.units_size(); ++cut) {
      boundary.push_back(0);
      for (const auto &value : summary.values())
        if (static_cast<int>(value.producer()) < cut && value.users_size() > 0 &&
            static_cast<int>(value.users(value.users_size() - 1)) >= cut)
          boundary.back() += static_cast<double>(value.bytes_per_row());
    }
    for (int u = 0; u < summary.units_size(); ++u) {
      stateBytes.push_back(0);
      // A lower bound also for tied groups.
      for (const auto &group : summary.groups())
        if (group.units_size() > 0 && group.units(0) == static_cast<uint32_t>(u))
          stateBytes.back() += 4.0 * static_cast<double>(group.elements());
    }
    std::vector<int> p(static_cast<size_t>(devices));
    std::iota(p.begin(), p.end(), 0);
    do
      if (symmetric(p))
        symmetries.push_back(p);
    while (std::next_permutation(p.begin(), p.end()));
  }

  TilingOptimum run() {
    forEachTiling(problem.summary.units_size(), problem.batch,
                  [&](const std::vector<step::Cell> &tiling) {
                    cells = tiling;
                    ++best.tilings;
                    busy.assign(static_cast<size_t>(devices), 0);
                    assign(0);
                  });
    return best;
  }

private:
  bool symmetric(const std::vector<int> &p) const {
    const sim::Network &network = problem.costs.network();
    for (int a = 0; a < devices; ++a) {
      if (problem.costs.deviceClass(p[a]) != problem.costs.deviceClass(a))
        return false;
      for (int b = 0; b < devices; ++b)
        if (a != b &&
            (link(a, b, 0) != link(p[a], p[b], 0) || link(a, b, 1e6) != link(p[a], p[b], 1e6) ||
             (network.node(a) == network.node(b)) != (network.node(p[a]) == network.node(p[b]))))
          return false;
    }
    return true;
  }

  double link(int a, int b, double bytes) const {
    if (a == b)
      return 0;
    const sim::Network &network = problem.costs.network();
    sim::Route route = network.route(a, b);
    double min = route.perFlowBandwidth > 0 ? route.perFlowBandwidth : INFINITY;
    for (uint8_t i = 0; i < route.count; ++i)
      min = std::min(min, network.bandwidth(route.resources[i]));
    return route.latency + bytes / min;
  }

  double seconds(const step::Cell &cell, int device, bool forwards) const {
    double sum = 0;
    for (int u = cell.unitBegin; u < cell.unitEnd; ++u)
      sum += problem.costs.unit(
          device, u, forwards ? step::UnitTask::Forward : step::UnitTask::Backward, cell.rows());
    return sum;
  }

  void assign(size_t c) {
    if (c == cells.size()) {
      for (const auto &p : symmetries) { // only the first of all assignments that permutations of
                                         // equal devices give
        int order = 0;
        for (size_t i = 0; i < cells.size() && order == 0; ++i)
          order = p[cells[i].device] - static_cast<int>(cells[i].device);
        if (order < 0)
          return;
      }
      if (options.prune && certainlyTooLarge())
        return;
      return orders();
    }
    for (int d = 0; d < devices; ++d) {
      double add = seconds(cells[c], d, true) + seconds(cells[c], d, false);
      if (options.prune && busy[d] + add >= limit)
        continue;
      cells[c].device = static_cast<uint32_t>(d);
      busy[d] += add;
      assign(c + 1);
      busy[d] -= add;
    }
  }

  /// Counts all parameters and accumulators of a device's units and the saved activations of its
  /// largest cell.
  bool certainlyTooLarge() const {
    for (int d = 0; d < devices; ++d) {
      const ClusterDevice &device = problem.cluster.devices[d];
      double saved = 0;
      uint64_t held = 0;
      for (const step::Cell &cell : cells) {
        if (static_cast<int>(cell.device) != d)
          continue;
        double own = 0;
        for (int u = cell.unitBegin; u < cell.unitEnd; ++u) {
          own += static_cast<double>(
              cell.rows() *
              classOf(problem.summary, problem.summary.units(u)).saved_bytes().per_row());
          held |= uint64_t(1) << u;
        }
        saved = std::max(saved, own);
      }
      double state = 0;
      for (const auto &group : problem.summary.groups())
        if (group.units_size() > 0 && (held >> group.units(0) & 1))
          state += 8.0 * static_cast<double>(group.elements());
      if (device.memory && saved + state + static_cast<double>(device.reservedMemory) >
                               static_cast<double>(device.memory))
        return true;
    }
    return false;
  }

  /// Computes the fraction of every unit's state that each device owns, and the contributors to its
  /// gradients.
  void setOwners(step::ShardSizing rule) {
    const size_t units = boundary.size() - 1;
    owned.assign(units * devices, 0);
    contributes.assign(units * devices, 0);
    for (const step::Cell &cell : cells)
      for (int u = cell.unitBegin; u < cell.unitEnd; ++u) {
        owned[u * devices + cell.device] += static_cast<double>(cell.rows());
        contributes[u * devices + cell.device] = 1;
      }
    for (size_t u = 0; u < units; ++u) {
      double sum = 0;
      for (int d = 0; d < devices; ++d) {
        double &own = owned[u * devices + d];
        if (rule == step::ShardSizing::Equal)
          own = own > 0;
        sum += own;
      }
      for (int d = 0; d < devices; ++d)
        owned[u * devices + d] /= sum;
    }
  }

  /// Time of the longest update. All updates wait for a decision, which waits for all backwards.
  double updates() const {
    double longest = 0;
    for (int d = 0; d < devices; ++d) {
      double own = 0;
      for (const auto &group : problem.summary.groups())
        if (group.units_size() > 0) {
          double part = owned[group.units(0) * devices + d];
          own += std::max(0.0, static_cast<double>(group.elements()) * part - (part < 1 ? 512 : 0));
        }
      longest = std::max(longest, problem.costs.update(d, {static_cast<int64_t>(own)}));
    }
    return longest;
  }

  /// A lower bound on the time of gathers or reductions that a cell waits for. A collective
  /// completes only when all bytes have arrived, so the cell waits until every device and every NIC
  /// has transferred its minimum number of bytes for the cell's units in one direction: in, the
  /// shards of others; out, the shards that others need.
  double moves(const step::Cell &cell) const {
    const sim::Network &network = problem.costs.network();
    double worst = 0;
    auto place = [&](auto &&inside, double secondsPerByte) {
      double in = 0, out = 0;
      for (int u = cell.unitBegin; u < cell.unitEnd; ++u) {
        bool here = false, elsewhere = false;
        double own = 0;
        for (int d = 0; d < devices; ++d)
          if (contributes[u * devices + d]) {
            (inside(d) ? here : elsewhere) = true;
            own += inside(d) ? owned[u * devices + d] : 0;
          }
        if (!here || !elsewhere)
          continue;
        double bytes = std::max(0.0, stateBytes[u] - 512.0 * devices); // minus rounding of shares
        in += bytes * (1 - own);
        out += bytes * own;
      }
      worst = std::max(worst, std::max(in, out) * secondsPerByte);
    };
    for (int d = 0; d < devices; ++d) {
      double fastest = INFINITY;
      for (int o = 0; o < devices; ++o)
        if (o != d)
          fastest = std::min({fastest, (link(o, d, 1e9) - link(o, d, 0)) / 1e9,
                              (link(d, o, 1e9) - link(d, o, 0)) / 1e9});
      if (fastest < INFINITY)
        place([&](int o) { return o == d; }, fastest * (1 - 1e-9));
    }
    for (size_t n = 0; n < problem.cluster.nodes.size(); ++n)
      if (double bandwidth = problem.cluster.topology.nodes(static_cast<int>(n)).nic().bandwidth();
          bandwidth > 0)
        place([&](int o) { return network.node(o) == n; }, 1 / bandwidth);
    return worst;
  }

  // ---- Orders of one assignment.

  struct Before {
    int task;
    double link;
  };

  void orders() {
    ++best.assignments;
    for (step::ShardSizing each : {step::ShardSizing::Equal, step::ShardSizing::Proportional}) {
      rule = each;
      setOwners(rule);
      if (rule == step::ShardSizing::Equal || owned != equal) // otherwise equal to the previous
                                                              // rule
        ordersOf();
      equal = owned;
    }
  }

  void ordersOf() {
    const size_t tasks = 2 * cells.size();
    time.assign(tasks, 0);
    before.assign(tasks, {});
    for (size_t c = 0; c < cells.size(); ++c) {
      const step::Cell &cell = cells[c];
      time[2 * c] = seconds(cell, static_cast<int>(cell.device), true);
      time[2 * c + 1] = seconds(cell, static_cast<int>(cell.device), false);
      before[2 * c + 1].push_back({static_cast<int>(2 * c), 0});
      for (size_t o = 0; o < cells.size() && cell.unitBegin > 0; ++o) {
        const step::Cell &other = cells[o];
        int64_t common = std::min(cell.sampleEnd, other.sampleEnd) -
                         std::max(cell.sampleBegin, other.sampleBegin);
        if (common <= 0 || other.unitBegin >= cell.unitBegin || other.unitEnd < cell.unitBegin)
          continue;
        double bytes = boundary[cell.unitBegin] * static_cast<double>(common);
        before[2 * c].push_back(
            {static_cast<int>(2 * o),
             link(static_cast<int>(other.device), static_cast<int>(cell.device), bytes)});
        before[2 * o + 1].push_back(
            {static_cast<int>(2 * c + 1),
             link(static_cast<int>(cell.device), static_cast<int>(other.device), bytes)});
      }
    }
    // Longest path from the end of every task to the end of the step, and earliest start of every
    // forward.
    const double update = updates();
    tail.assign(tasks, update);
    release.assign(tasks, 0);
    for (size_t c = 0; c < cells.size(); ++c) {
      release[2 * c] = moves(cells[c]);
      tail[2 * c + 1] = release[2 * c] + update;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t t = 0; t < tasks; ++t)
        for (const Before &b : before[t])
          if (tail[b.task] < b.link + time[t] + tail[t] - 1e-15) {
            tail[b.task] = b.link + time[t] + tail[t];
            changed = true;
          }
    }
    start.assign(tasks, -1);
    freeAt.assign(static_cast<size_t>(devices), 0);
    left = busy;
    sequence.clear();
    // Bound before ordering: first possible start of each device, plus its work, plus its minimum
    // tail.
    for (int d = 0; d < devices && options.prune; ++d) {
      double min = INFINITY, first = INFINITY;
      for (size_t t = 0; t < tasks; ++t)
        if (static_cast<int>(cells[t / 2].device) == d) {
          min = std::min(min, tail[t]);
          if (t % 2 == 0)
            first = std::min(first, release[t]);
        }
      if (min < INFINITY && first + busy[d] + min >= limit)
        return;
    }
    next(0, -1);
  }

  void next(double last, int lastTask) {
    if (sequence.size() == time.size())
      return simulate();
    for (size_t t = 0; t < time.size(); ++t) {
      if (start[t] >= 0)
        continue;
      const int d = static_cast<int>(cells[t / 2].device);
      double at = std::max(freeAt[d], release[t]);
      bool ready = true;
      for (const Before &b : before[t]) {
        ready &= start[b.task] >= 0;
        if (ready)
          at = std::max(at, start[b.task] + time[b.task] + b.link);
      }
      // Sequences are sorted by start time, so that every set of orders is enumerated once.
      if (!ready || at < last || (at == last && static_cast<int>(t) < lastTask))
        continue;
      if (options.prune && (at + time[t] + tail[t] >= limit || at + left[d] >= limit))
        continue;
      double freeBefore = freeAt[d];
      start[t] = at;
      freeAt[d] = at + time[t];
      left[d] -= time[t];
      sequence.push_back(static_cast<uint32_t>(t));
      if (!options.prune || possible(at))
        next(at, static_cast<int>(t));
      sequence.pop_back();
      left[d] += time[t];
      freeAt[d] = freeBefore;
      start[t] = -1;
    }
  }

  /// Whether the bounds allow a better step time. Every remaining task starts when its device is
  /// free, and no earlier than `last`; every device still has its remaining work.
  bool possible(double last) const {
    for (size_t t = 0; t < time.size(); ++t)
      if (start[t] < 0) {
        double at = std::max({last, freeAt[cells[t / 2].device], release[t]});
        for (const Before &b : before[t])
          at = std::max(at, start[b.task] >= 0 ? start[b.task] + time[b.task] + b.link : 0);
        if (at + time[t] + tail[t] >= limit)
          return false;
      }
    for (int d = 0; d < devices; ++d) {
      double min = INFINITY;
      for (size_t t = 0; t < time.size(); ++t)
        if (start[t] < 0 && static_cast<int>(cells[t / 2].device) == d)
          min = std::min(min, tail[t]);
      if (min < INFINITY && std::max(last, freeAt[d]) + left[d] + min >= limit)
        return false;
    }
    return true;
  }

  void simulate() {
    ++best.orders;
    step::Plan plan;
    plan.model = problem.summary.content_hash();
    plan.batch = problem.batch;
    plan.devices = planDevices(problem.cluster, zorse::productType(problem.summary));
    planLinks(problem.cluster, plan);
    plan.cells = cells;
    plan.schedule.kind = step::ScheduleKind::Explicit;
    plan.order.assign(static_cast<size_t>(devices), {});
    for (uint32_t t : sequence)
      plan.order[cells[t / 2].device].push_back(
          {t % 2 ? step::TaskKind::Backward : step::TaskKind::Forward, t / 2});
    plan.defaultSharding = rule;
    step::TimeOptions options;
    options.costs = &problem.costs;
    ++best.simulated;
    Result<step::StepTimes> times = step::timeStep(problem.summary, plan, options);
    if (times.failed() || times->stepTime >= limit)
      return;
    Result<Evaluation> e = evaluate(problem, plan);
    if (e.failed() || e->shortfallBytes > 0 || e->step >= limit)
      return;
    limit = e->step * (1 - 1e-9);
    best.feasible = true;
    best.step = e->step;
    best.plan = plan;
  }

  const Problem &problem;
  const TilingOptions &options;
  const int devices;
  double limit;
  std::vector<double> boundary;
  std::vector<std::vector<int>> symmetries;
  TilingOptimum best;
  std::vector<step::Cell> cells;
  std::vector<double> busy, time, tail, release, start, freeAt, left;
  step::ShardSizing rule = step::ShardSizing::Equal;
  std::vector<double> owned, equal, stateBytes; ///< by unit and device; by unit
  std::vector<uint8_t> contributes;
  std::vector<std::vector<Before>> before;
  std::vector<uint32_t> sequence;
};

} // namespace

void zorse::optimality::forEachTiling(
    int units, int64_t samples, const std::function<void(const std::vector<step::Cell> &)> &act) {
  std::vector<step::Cell> cells;
  tile(units, samples, 0, cells, act);
}

TilingOptimum zorse::optimality::bestTiling(const Problem &problem, const TilingOptions &options) {
  return Search(problem, options).run();
}
