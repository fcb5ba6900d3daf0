#include "ExhaustiveBounds.h"
#include "Exhaustive.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

Tables::Tables(const Problem &problem)
    : problem(problem), devices(static_cast<int>(problem.cluster.devices.size())),
      units(problem.summary.units_size()) {
  for (int d = 0; d < devices; ++d)
    for (int r = 0; r < 2; ++r) {
      forward[d][r].push_back(0);
      backward[d][r].push_back(0);
      for (int u = 0; u < units; ++u) {
        forward[d][r].push_back(forward[d][r].back() +
                                problem.costs.unit(d, u, step::UnitTask::Forward, r + 1));
        backward[d][r].push_back(backward[d][r].back() +
                                 problem.costs.unit(d, u, step::UnitTask::Backward, r + 1));
      }
    }
  const sim::Network &network = problem.costs.network();
  for (int a = 0; a < devices; ++a)
    for (int b = 0; b < devices; ++b) {
      latency[a][b] = perByte[a][b] = 0;
      if (a == b)
        continue;
      sim::Route route = network.route(a, b);
      double min = route.perFlowBandwidth > 0 ? route.perFlowBandwidth : INFINITY;
      for (uint8_t i = 0; i < route.count; ++i)
        min = std::min(min, network.bandwidth(route.resources[i]));
      latency[a][b] = route.latency;
      perByte[a][b] = 1 / min;
    }
  parameterBytes.push_back(0);
  savedBytes.push_back(0);
  for (int u = 0; u < units; ++u) {
    double bytes = 0;
    // A lower bound also for tied groups.
    for (const auto &group : problem.summary.groups())
      if (group.units_size() > 0 && group.units(0) == static_cast<uint32_t>(u))
        bytes += 4.0 * static_cast<double>(group.elements());
    parameterBytes.push_back(parameterBytes.back() + bytes);
    savedBytes.push_back(
        savedBytes.back() +
        static_cast<double>(
            classOf(problem.summary, problem.summary.units(u)).saved_bytes().per_row()));
  }
  for (int cut = 0; cut <= units; ++cut) {
    boundary.push_back(0);
    for (const auto &value : problem.summary.values())
      if (static_cast<int>(value.producer()) < cut && value.users_size() > 0 &&
          static_cast<int>(value.users(value.users_size() - 1)) >= cut)
        boundary.back() += static_cast<double>(value.bytes_per_row());
  }
}

State zorse::optimality::stateOf(const Tables &t, const std::vector<PipelineShape> &pipelines,
                                 ShardSizing rule) {
  State state{std::vector<double>(static_cast<size_t>(t.devices), 0),
              std::vector<double>(static_cast<size_t>(t.devices), 0), 0};
  std::vector<Mask> contributors(static_cast<size_t>(t.units), 0);
  for (const PipelineShape &p : pipelines)
    for (size_t s = 0; s < p.ends.size(); ++s)
      for (int u = p.begin(s); u < p.ends[s]; ++u)
        contributors[u] |= (*p.shape)[s];
  const sim::Network &network = t.problem.costs.network();
  for (const PipelineShape &p : pipelines)
    for (size_t s = 0; s < p.ends.size(); ++s)
      for (int d = 0; d < t.devices; ++d) {
        if (!((*p.shape)[s] >> d & 1))
          continue;
        double inside = 0, outside = 0,
               owned = 0; // bytes received from the same node and from other nodes; bytes owned
        double fastInside = 0, fastOutside = 0; // seconds per byte of the fastest link
        for (int u = p.begin(s); u < p.ends[s]; ++u) {
          int count = __builtin_popcount(contributors[u]);
          if (rule != ShardSizing::Equal && count > 1)
            continue;
          double bytes = t.parameterBytes[u + 1] - t.parameterBytes[u], share = bytes / count;
          owned += share;
          for (int o = 0; o < t.devices; ++o) {
            if (o == d || !(contributors[u] >> o & 1))
              continue;
            bool near = network.node(o) == network.node(d);
            (near ? inside : outside) += share;
            double &fast = near ? fastInside : fastOutside;
            fast = fast == 0 ? t.perByte[o][d] : std::min(fast, t.perByte[o][d]);
          }
        }
        // Shares are rounded to 512 bytes: subtract one block per unit and device.
        double slack = 512.0 * (p.ends[s] - p.begin(s)) * t.devices;
        int64_t elements = static_cast<int64_t>(std::max(0.0, owned - slack) / 4);
        state.gather[d] = std::max(std::max(0.0, inside - slack) * fastInside,
                                   std::max(0.0, outside - slack) * fastOutside);
        // A single task adds the last contributions to all gradients of a stage, so norms run after
        // it.
        state.reduce[d] = std::max(state.gather[d], t.problem.costs.norm(d, elements));
        state.update = std::max(state.update, t.problem.costs.update(d, {elements}));
      }
  return state;
}

double zorse::optimality::linkBound(const Tables &t, const std::vector<PipelineShape> &pipelines,
                                    const std::vector<Samples> &samples,
                                    const std::vector<Path> &paths) {
  const bundle::Topology &topology = t.problem.cluster.topology;
  const sim::Network &network = t.problem.costs.network();
  double worst = 0;
  auto place = [&](double bandwidth, auto &&isHere) {
    if (bandwidth <= 0)
      return;
    double all = 0;
    for (size_t p = 0; p < pipelines.size(); ++p)
      for (size_t s = 0; s + 1 < pipelines[p].ends.size(); ++s) {
        int64_t here = 0, next = 0;
        for (int d = 0; d < t.devices; ++d)
          if (isHere(d)) {
            here += samples[p][s][d];
            next += samples[p][s + 1][d];
          }
        // Values cross in one direction and their gradients, for the same samples, in the other:
        // each direction transfers these bytes once.
        double seconds = static_cast<double>(std::llabs(here - next)) *
                         t.boundary[pipelines[p].ends[s]] / bandwidth;
        all += seconds;
        if (seconds > 0)
          worst = std::max(worst, paths[p].whole - paths[p].link[s] + seconds);
      }
    worst = std::max(worst, all);
  };
  for (uint32_t n = 0; n < t.problem.cluster.nodes.size(); ++n)
    place(topology.nodes(static_cast<int>(n)).nic().bandwidth(),
          [&](int d) { return network.node(d) == n; });
  if (topology.sites_size() == 2 && topology.site_pairs_size() == 0)
    place(topology.between_sites().bandwidth(), [&](int d) { return network.site(d) == 0; });
  return worst;
}

double zorse::optimality::stateBound(const Tables &t, const std::vector<PipelineShape> &pipelines,
                                     const std::vector<Path> &paths,
                                     const std::function<double(size_t, size_t, int)> &min) {
  std::vector<int> ends;
  for (const PipelineShape &p : pipelines)
    ends.insert(ends.end(), p.ends.begin(), p.ends.end());
  std::sort(ends.begin(), ends.end());
  double worst = 0;
  int begin = 0;
  for (int end : ends) {
    if (end == begin)
      continue;
    Mask contributors = 0;
    std::array<double, 16> down{}, up{}, busy{};
    for (size_t p = 0; p < pipelines.size(); ++p)
      for (size_t s = 0; s < pipelines[p].ends.size(); ++s) {
        if (pipelines[p].ends[s] <= begin || pipelines[p].begin(s) >= end)
          continue;
        for (int d = 0; d < t.devices; ++d)
          if ((*pipelines[p].shape)[s] >> d & 1) {
            contributors |= Mask(1) << d;
            down[d] = paths[p].down[s];
            up[d] = paths[p].up[s];
            busy[d] = min(p, s, d);
          }
      }
    const double k = __builtin_popcount(contributors);
    const double bytes =
        std::max(0.0, (t.parameterBytes[end] - t.parameterBytes[begin]) * (1 - 1 / k) -
                          512.0 * (end - begin) * k); // minus rounding of shares
    double first = INFINITY;
    for (int d = 0; d < t.devices && k > 1; ++d) {
      if (!(contributors >> d & 1))
        continue;
      double fast = INFINITY;
      for (int o = 0; o < t.devices; ++o)
        if (o != d && (contributors >> o & 1))
          fast = std::min(fast, t.perByte[o][d]);
      first = std::min(first,
                       std::max(down[d], bytes * fast) + busy[d] + std::max(up[d], bytes * fast));
    }
    if (k > 1)
      worst = std::max(worst, first);
    begin = end;
  }
  return worst;
}

double zorse::optimality::strategyBound(const Problem &problem, const Strategy &strategy) {
  Tables t(problem);
  std::vector<Shape> shapes(strategy.pipelines.size());
  std::vector<PipelineShape> pipelines;
  std::vector<Samples> samples;
  for (size_t p = 0; p < strategy.pipelines.size(); ++p) {
    PipelineShape shape{&shapes[p], {}, strategy.pipelines[p].samples};
    samples.emplace_back();
    for (const Stage &stage : strategy.pipelines[p].stages) {
      Mask m = 0;
      samples.back().push_back({});
      for (const step::StageDevice &member : stage.members) {
        m |= Mask(1) << member.device;
        samples.back().back()[member.device] = member.samples;
      }
      shapes[p].push_back(m);
      shape.ends.push_back(stage.unitEnd);
    }
    pipelines.push_back(shape);
  }
  State state = stateOf(t, pipelines, strategy.state);
  double bound = 0;
  std::vector<Path> paths;
  for (size_t p = 0; p < pipelines.size(); ++p) {
    double down = 0, up = 0;
    paths.emplace_back();
    for (size_t s = 0; s < pipelines[p].ends.size(); ++s) {
      const Stage &stage = strategy.pipelines[p].stages[s];
      double forward = INFINITY, backward = INFINITY, link = INFINITY;
      for (const step::StageDevice &m : stage.members) {
        int d = static_cast<int>(m.device), rows = static_cast<int>(m.microBatchSize);
        bound = std::max(bound, std::max(down, state.gather[d]) +
                                    t.busy(d, stage.unitBegin, stage.unitEnd, m.samples, rows) +
                                    std::max(up, state.reduce[d]));
        for (int r = 1; r <= 2; ++r) {
          forward = std::min(forward, t.cellForward(d, stage.unitBegin, stage.unitEnd, r));
          backward = std::min(backward, t.cellBackward(d, stage.unitBegin, stage.unitEnd, r));
        }
        for (const step::StageDevice &next : s + 1 < pipelines[p].ends.size()
                                                 ? strategy.pipelines[p].stages[s + 1].members
                                                 : stage.members)
          link = std::min(link, t.latency[d][next.device] +
                                    t.boundary[stage.unitEnd] * t.perByte[d][next.device]);
      }
      paths.back().down.push_back(down);
      paths.back().up.push_back(up);
      paths.back().link.push_back(link);
      down += forward + link;
      up += backward + link;
    }
    paths.back().whole = down + up;
  }
  bound = std::max(bound, linkBound(t, pipelines, samples, paths));
  if (strategy.state == ShardSizing::ByFreeMemory)
    bound = std::max(bound, stateBound(t, pipelines, paths, [&](size_t p, size_t s, int d) {
                       for (const step::StageDevice &m : strategy.pipelines[p].stages[s].members)
                         if (static_cast<int>(m.device) == d)
                           return t.busy(d, pipelines[p].begin(s), pipelines[p].ends[s], m.samples,
                                         static_cast<int>(m.microBatchSize));
                       return 0.0;
                     }));
  return bound + state.update;
}
