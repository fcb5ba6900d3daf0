#include "ExhaustiveFamilies.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

/// Permutations of devices that map the cluster to itself.
std::vector<std::vector<int>> symmetries(const Problem &problem) {
  const int n = static_cast<int>(problem.cluster.devices.size());
  const sim::Network &network = problem.costs.network();
  auto alike = [&](const std::vector<int> &p) {
    for (int a = 0; a < n; ++a) {
      if (problem.costs.deviceClass(p[a]) != problem.costs.deviceClass(a))
        return false;
      for (int b = 0; b < n; ++b) {
        if (a == b)
          continue;
        if ((network.node(a) == network.node(b)) != (network.node(p[a]) == network.node(p[b])))
          return false;
        sim::Route x = network.route(a, b), y = network.route(p[a], p[b]);
        if (x.count != y.count || x.latency != y.latency ||
            x.perFlowBandwidth != y.perFlowBandwidth)
          return false;
        for (uint8_t i = 0; i < x.count; ++i)
          if (network.bandwidth(x.resources[i]) != network.bandwidth(y.resources[i]))
            return false;
      }
    }
    return true;
  };
  std::vector<int> p(n);
  std::iota(p.begin(), p.end(), 0);
  std::vector<std::vector<int>> result;
  do
    if (alike(p))
      result.push_back(p);
  while (std::next_permutation(p.begin(), p.end()));
  return result;
}

/// The samples of devices that form a stage alone, for linkBound; 0 for devices that share a stage.
Samples minSamples(const PipelineShape &p) {
  Samples samples(p.ends.size(), Samples::value_type{});
  for (size_t s = 0; s < p.ends.size(); ++s)
    if (__builtin_popcount((*p.shape)[s]) == 1)
      samples[s][static_cast<size_t>(__builtin_ctz((*p.shape)[s]))] = p.samples;
  return samples;
}

Mask devicesOf(const Shape &shape) {
  Mask all = 0;
  for (Mask m : shape)
    all |= m;
  return all;
}

/// Whether every member can have at least one sample.
bool fewEnough(const Shape &shape, int64_t samples) {
  for (Mask m : shape)
    if (__builtin_popcount(m) > samples)
      return false;
  return true;
}

} // namespace

Families::Families(const Problem &problem, const ExhaustiveOptions &options)
    : problem(problem), options(options), t(problem), n(t.devices), U(t.units), B(problem.batch),
      limit(options.known * (1 + 1e-9)), group(symmetries(problem)) {
  addShapes({}, (Mask(1) << n) - 1);
  minBusy();
}

void Families::addShapes(Shape shape, Mask free) {
  if (!shape.empty())
    shapes.push_back(shape);
  if (static_cast<int>(shape.size()) == U)
    return;
  for (Mask stage = free; stage; stage = (stage - 1) & free) {
    shape.push_back(stage);
    addShapes(shape, free & ~stage);
    shape.pop_back();
  }
}

bool Families::canonical(const std::vector<const Shape *> &pipelines,
                         std::vector<const std::vector<int> *> *stabiliser) const {
  auto labels = [&](bool exchanged) {
    std::vector<int> label(static_cast<size_t>(n), 0);
    for (size_t p = 0; p < pipelines.size(); ++p)
      for (size_t s = 0; s < pipelines[p]->size(); ++s)
        for (int d = 0; d < n; ++d)
          if ((*pipelines[p])[s] >> d & 1)
            label[d] = static_cast<int>(((exchanged ? 1 - p : p) + 1) * 16 + s);
    return label;
  };
  const std::vector<int> own = labels(false), other = pipelines.size() == 2 ? labels(true) : own;
  for (const auto &p : group) {
    for (const auto *label : {&own, &other}) {
      int order = 0;
      for (int d = 0; d < n && order == 0; ++d)
        order = (*label)[p[d]] - own[d];
      if (order < 0)
        return false;
      if (order == 0 && label == &own && stabiliser)
        stabiliser->push_back(&p);
      if (label == &own && pipelines.size() < 2)
        break;
    }
  }
  return true;
}

/// Computes the minimum time of the busiest member over all shares and rows.
void Families::minBusy() {
  min.assign(busyIndex(Mask(1) << n, 0, 0, 0), INFINITY);
  for (Mask m = 1; m < Mask(1) << n; ++m)
    for (int begin = 0; begin < U; ++begin)
      for (int end = begin + 1; end <= U; ++end)
        for (int rows = 1; rows <= 2; ++rows) {
          for (int64_t samples = __builtin_popcount(m); samples <= B; ++samples) {
            double worst = minOver(m, begin, end, samples, rows);
            double &entry = min[busyIndex(m, begin, end, samples)];
            entry = std::min(entry, worst);
          }
        }
}

double Families::minOver(Mask m, int begin, int end, int64_t samples, int rows) const {
  std::vector<double> times;
  for (int d = 0; d < n; ++d)
    if (m >> d & 1)
      for (int64_t k = 1; k <= samples; ++k)
        times.push_back(t.busy(d, begin, end, k, rows));
  std::sort(times.begin(), times.end());
  auto enough = [&](double time) {
    int64_t sum = 0;
    for (int d = 0; d < n; ++d)
      if (m >> d & 1) {
        int64_t k = samples;
        while (k > 0 && t.busy(d, begin, end, k, rows) > time)
          --k;
        if (k == 0)
          return false;
        sum += k;
      }
    return sum >= samples;
  };
  size_t low = 0, high = times.size() - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (enough(times[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return times[low];
}

double Families::fastestCell(Mask m, int begin, int end, bool forwards) const {
  double fastest = INFINITY;
  for (int d = 0; d < n; ++d)
    if (m >> d & 1)
      for (int rows = 1; rows <= 2; ++rows)
        fastest = std::min(fastest, forwards ? t.cellForward(d, begin, end, rows)
                                             : t.cellBackward(d, begin, end, rows));
  return fastest;
}

double Families::fastestLink(Mask from, Mask to, int cut) const {
  double fastest = INFINITY;
  for (int a = 0; a < n; ++a)
    for (int b = 0; (from >> a & 1) && b < n; ++b)
      if (to >> b & 1)
        fastest = std::min(fastest, t.latency[a][b] + t.boundary[cut] * t.perByte[a][b]);
  return fastest;
}

Path Families::pathOf(const PipelineShape &p) const {
  Path path;
  double down = 0, up = 0;
  for (size_t s = 0; s < p.ends.size(); ++s) {
    Mask m = (*p.shape)[s];
    path.down.push_back(down);
    path.up.push_back(up);
    path.link.push_back(s + 1 < p.ends.size() ? fastestLink(m, (*p.shape)[s + 1], p.ends[s]) : 0);
    down += fastestCell(m, p.begin(s), p.ends[s], true) + path.link.back();
    up += fastestCell(m, p.begin(s), p.ends[s], false) + path.link.back();
  }
  path.whole = down + up;
  return path;
}

double Families::familyBound(const PipelineShape &p, const Path &path, const State &state) const {
  double bound = path.whole;
  for (size_t s = 0; s < p.ends.size(); ++s) {
    Mask m = (*p.shape)[s];
    double gather = INFINITY, reduce = INFINITY;
    for (int d = 0; d < n; ++d)
      if (m >> d & 1) {
        gather = std::min(gather, state.gather[d]);
        reduce = std::min(reduce, state.reduce[d]);
        bound = std::max(bound, std::max(path.down[s], state.gather[d]) +
                                    t.busy(d, p.begin(s), p.ends[s], 1, 1) +
                                    std::max(path.up[s], state.reduce[d]));
      }
    bound = std::max(bound, std::max(path.down[s], gather) +
                                min[busyIndex(m, p.begin(s), p.ends[s], p.samples)] +
                                std::max(path.up[s], reduce));
  }
  return bound + state.update;
}

void Families::cuts(size_t stages, std::vector<int> &ends,
                    const std::function<void(const std::vector<int> &)> &act) const {
  if (ends.size() + 1 == stages) {
    ends.push_back(U);
    act(ends);
    ends.pop_back();
    return;
  }
  int first = ends.empty() ? 1 : ends.back() + 1;
  for (int end = first; end <= U - static_cast<int>(stages - ends.size() - 1); ++end) {
    ends.push_back(end);
    cuts(stages, ends, act);
    ends.pop_back();
  }
}

void Families::addFamily(std::vector<Family> &families,
                         std::vector<PipelineShape> pipelines) const {
  bool shared = pipelines.size() > 1,
       single = true; // single: every stage has one device, so samples are known
  std::vector<Path> paths;
  std::vector<Samples> samples;
  for (const PipelineShape &p : pipelines) {
    paths.push_back(pathOf(p));
    samples.push_back(minSamples(p));
    for (Mask m : *p.shape) {
      shared |= (m & (m - 1)) != 0;
      single &= (m & (m - 1)) == 0;
    }
  }
  const double links = single ? linkBound(t, pipelines, samples, paths) : 0;
  for (ShardSizing rule : {ShardSizing::Equal, ShardSizing::ByFreeMemory}) {
    if (rule == ShardSizing::ByFreeMemory && !shared)
      continue; // every group has one contributor, which owns it
    State state = stateOf(t, pipelines, rule);
    double bound = links + state.update;
    for (size_t p = 0; p < pipelines.size(); ++p)
      bound = std::max(bound, familyBound(pipelines[p], paths[p], state));
    if (rule == ShardSizing::ByFreeMemory)
      bound = std::max(
          bound, state.update + stateBound(t, pipelines, paths, [&](size_t p, size_t s, int d) {
                   return t.busy(d, pipelines[p].begin(s), pipelines[p].ends[s], 1, 1);
                 }));
    if (!options.prune || bound < limit)
      families.push_back({bound, pipelines, rule});
  }
}

void Families::onePipeline(std::vector<Family> &families) const {
  std::vector<int> ends;
  for (const Shape &shape : shapes)
    if (fewEnough(shape, B) && canonical({&shape}))
      cuts(shape.size(), ends,
           [&](const std::vector<int> &e) { addFamily(families, {{&shape, e, B}}); });
}

void Families::twoPipelines(std::vector<Family> &families) const {
  // The best bound of every shape for each number of samples, and the cuts with bounds below the
  // limit.
  struct Option {
    std::vector<int> ends;
    double bound;
  };
  const State none{std::vector<double>(static_cast<size_t>(n), 0),
                   std::vector<double>(static_cast<size_t>(n), 0), 0};
  std::vector<std::vector<std::vector<Option>>> all(shapes.size());
  std::map<Mask, std::vector<size_t>> byDevices;
  for (size_t i = 0; i < shapes.size(); ++i) {
    all[i].resize(static_cast<size_t>(B));
    byDevices[devicesOf(shapes[i])].push_back(i);
    std::vector<int> ends;
    for (int64_t samples = 1; samples < B; ++samples)
      if (fewEnough(shapes[i], samples))
        cuts(shapes[i].size(), ends, [&](const std::vector<int> &e) {
          PipelineShape shape{&shapes[i], e, samples};
          double bound = familyBound(shape, pathOf(shape), none);
          if (!options.prune || bound < limit)
            all[i][samples].push_back({e, bound});
        });
  }
  for (auto &[first, list] : byDevices)
    for (auto &[second, others] : byDevices) {
      if (first & second)
        continue;
      for (size_t i : list)
        for (size_t j : others) {
          bool checked = false;
          for (int64_t samples = 1; samples < B; ++samples) {
            if (all[i][samples].empty() || all[j][B - samples].empty())
              continue;
            if (!checked && !canonical({&shapes[i], &shapes[j]}))
              break;
            checked = true;
            for (const Option &a : all[i][samples])
              for (const Option &b : all[j][B - samples])
                addFamily(families,
                          {{&shapes[i], a.ends, samples}, {&shapes[j], b.ends, B - samples}});
          }
        }
    }
}
