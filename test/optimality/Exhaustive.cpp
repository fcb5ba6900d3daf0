#include "Exhaustive.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

using Mask = uint32_t;
using Shape = std::vector<Mask>; ///< devices of every stage

/// Times and sizes of everything the bounds ask for, by prefix sums over units.
class Tables {
public:
  explicit Tables(const Problem &problem)
      : problem(problem), devices(static_cast<int>(problem.cluster.devices.size())), units(problem.summary.units_size()) {
    for (int d = 0; d < devices; ++d)
      for (int r = 0; r < 2; ++r) {
        forward[d][r].push_back(0);
        backward[d][r].push_back(0);
        for (int u = 0; u < units; ++u) {
          forward[d][r].push_back(forward[d][r].back() + problem.costs.unit(d, u, step::UnitTask::Forward, r + 1));
          backward[d][r].push_back(backward[d][r].back() + problem.costs.unit(d, u, step::UnitTask::Backward, r + 1));
        }
      }
    const sim::Network &network = problem.costs.network();
    for (int a = 0; a < devices; ++a)
      for (int b = 0; b < devices; ++b) {
        latency[a][b] = perByte[a][b] = 0;
        if (a == b)
          continue;
        sim::Route route = network.route(a, b);
        double least = route.flow > 0 ? route.flow : INFINITY;
        for (uint8_t i = 0; i < route.count; ++i)
          least = std::min(least, network.bandwidth(route.resources[i]));
        latency[a][b] = route.latency;
        perByte[a][b] = 1 / least;
      }
    parameterBytes.push_back(0);
    savedBytes.push_back(0);
    for (int u = 0; u < units; ++u) {
      double bytes = 0;
      for (const auto &group : problem.summary.groups())
        if (group.units_size() > 0 && group.units(0) == static_cast<uint32_t>(u)) // tied groups count at their first unit: bounds stay bounds
          bytes += 4.0 * static_cast<double>(group.elements());
      parameterBytes.push_back(parameterBytes.back() + bytes);
      savedBytes.push_back(savedBytes.back() + static_cast<double>(classOf(problem.summary, problem.summary.units(u)).saved_bytes().per_row()));
    }
    for (int cut = 0; cut <= units; ++cut) {
      boundary.push_back(0);
      for (const auto &value : problem.summary.values())
        if (static_cast<int>(value.producer()) < cut && value.users_size() > 0 && static_cast<int>(value.users(value.users_size() - 1)) >= cut)
          boundary.back() += static_cast<double>(value.bytes_per_row());
    }
  }

  double cellForward(int d, int begin, int end, int rows) const { return forward[d][rows - 1][end] - forward[d][rows - 1][begin]; }
  double cellBackward(int d, int begin, int end, int rows) const { return backward[d][rows - 1][end] - backward[d][rows - 1][begin]; }
  double busy(int d, int begin, int end, int64_t samples, int rows) const {
    auto cell = [&](int r) { return cellForward(d, begin, end, r) + cellBackward(d, begin, end, r); };
    return rows == 1 ? static_cast<double>(samples) * cell(1)
                     : static_cast<double>(samples / 2) * cell(2) + static_cast<double>(samples % 2) * cell(1);
  }

  const Problem &problem;
  const int devices, units;
  std::vector<double> forward[16][2], backward[16][2];
  double latency[16][16], perByte[16][16];
  std::vector<double> parameterBytes, savedBytes; ///< prefix sums over units
  std::vector<double> boundary;                   ///< by cut: bytes of a sample
};

/// Permutations of devices that change nothing but names.
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
        if (x.count != y.count || x.latency != y.latency || x.flow != y.flow)
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

/// A pipeline's place in a family: devices and units of its stages, its samples.
struct PipelineShape {
  const Shape *shape = nullptr;
  std::vector<int> ends; ///< units
  int64_t samples = 0;
  int begin(size_t s) const { return s ? ends[s - 1] : 0; }
};

/// What bounds need to know of state.
struct State {
  std::vector<double> gather; ///< by device: before its first forward
  std::vector<double> reduce; ///< between its last backward and the decision: the reduction and the norm of what it owns
  double update = 0;          ///< after the decision, for which all devices wait: the longest update
};

/// Under equal shares everything is known; under another rule only what has one contributor, who owns it.
State stateOf(const Tables &t, const std::vector<PipelineShape> &pipelines, StateRule rule) {
  State state{std::vector<double>(static_cast<size_t>(t.devices), 0), std::vector<double>(static_cast<size_t>(t.devices), 0), 0};
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
        double inside = 0, outside = 0, owned = 0; // bytes that come from the node and from elsewhere; bytes owned
        double fastInside = 0, fastOutside = 0;    // seconds per byte of the fastest link
        for (int u = p.begin(s); u < p.ends[s]; ++u) {
          int count = __builtin_popcount(contributors[u]);
          if (rule != StateRule::Equal && count > 1)
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
        // Rounding of shares to 512 bytes: a block per unit less.
        double slack = 512.0 * (p.ends[s] - p.begin(s)) * t.devices;
        int64_t elements = static_cast<int64_t>(std::max(0.0, owned - slack) / 4);
        state.gather[d] = std::max(std::max(0.0, inside - slack) * fastInside, std::max(0.0, outside - slack) * fastOutside);
        // One task is the last to add to all gradients of a stage, so norms come after it.
        state.reduce[d] = std::max(state.gather[d], t.problem.costs.norm(d, elements));
        state.update = std::max(state.update, t.problem.costs.update(d, elements));
      }
  return state;
}

/// Latencies of one pipeline for one sample, each the least possible: before the first forward of a stage, after its last backward, there and back.
struct Path {
  std::vector<double> down, up, link; ///< by stage; link: to the next stage
  double whole = 0;
};

/// Bytes that a network card, or the link between sites, must pass in one direction over its bandwidth: all of them together, and those of one
/// boundary with what is in front of the first and behind the last. `samples`: of every device in every stage.
double linkBound(const Tables &t, const std::vector<PipelineShape> &pipelines, const std::vector<std::vector<std::array<int64_t, 16>>> &samples,
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
        // One way the values, the other way their gradients, of the same samples: each direction passes these bytes once.
        double seconds = static_cast<double>(std::llabs(here - next)) * t.boundary[pipelines[p].ends[s]] / bandwidth;
        all += seconds;
        if (seconds > 0)
          worst = std::max(worst, paths[p].whole - paths[p].link[s] + seconds);
      }
    worst = std::max(worst, all);
  };
  for (uint32_t n = 0; n < t.problem.cluster.nodes.size(); ++n)
    place(topology.nodes(static_cast<int>(n)).nic().bandwidth(), [&](int d) { return network.node(d) == n; });
  if (topology.sites_size() == 2 && topology.site_pairs_size() == 0)
    place(topology.between_sites().bandwidth(), [&](int d) { return network.site(d) == 0; });
  return worst;
}

/// Gathers and reductions when it is not known who owns how much: of k contributors one owns at most 1/k, and has to get the rest. `least` gives a
/// bound on the compute of a device.
template <typename Least>
double stateBound(const Tables &t, const std::vector<PipelineShape> &pipelines, const std::vector<Path> &paths, Least &&least) {
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
            busy[d] = least(p, s, d);
          }
      }
    const double k = __builtin_popcount(contributors);
    const double bytes =
        std::max(0.0, (t.parameterBytes[end] - t.parameterBytes[begin]) * (1 - 1 / k) - 512.0 * (end - begin) * k); // less rounding of shares
    double first = INFINITY;
    for (int d = 0; d < t.devices && k > 1; ++d) {
      if (!(contributors >> d & 1))
        continue;
      double fast = INFINITY;
      for (int o = 0; o < t.devices; ++o)
        if (o != d && (contributors >> o & 1))
          fast = std::min(fast, t.perByte[o][d]);
      first = std::min(first, std::max(down[d], bytes * fast) + busy[d] + std::max(up[d], bytes * fast));
    }
    if (k > 1)
      worst = std::max(worst, first);
    begin = end;
  }
  return worst;
}

struct Family {
  double bound = 0;
  std::vector<PipelineShape> pipelines;
  StateRule state = StateRule::Equal;
};

class Search {
public:
  Search(const Problem &problem, const ExhaustiveOptions &options)
      : problem(problem), options(options), t(problem), n(t.devices), U(t.units), B(problem.batch), group(symmetries(problem)) {
    limit = options.known * (1 + 1e-9);
  }

  Optimum run() {
    addShapes({}, (Mask(1) << n) - 1);
    leastBusy();
    std::vector<Family> families;
    onePipeline(families);
    seed(families); // a good layout early makes the rest short
    if (options.pipelines > 1)
      twoPipelines(families);
    std::stable_sort(families.begin(), families.end(), [](const Family &a, const Family &b) { return a.bound < b.bound; });
    seed(families);
    for (const Family &family : families) {
      if (options.prune && family.bound >= limit)
        break;
      ++best.families;
      look(family);
    }
    return best;
  }

private:
  // ---- Shapes: ordered partitions of subsets of the devices.

  void addShapes(Shape shape, Mask free) {
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

  static Mask devicesOf(const Shape &shape) {
    Mask all = 0;
    for (Mask m : shape)
      all |= m;
    return all;
  }

  /// Whether the labelling is the first among those that equal devices and an exchange of pipelines make of it. `stabiliser` gets what leaves it as
  /// it is.
  bool canonical(const std::vector<const Shape *> &pipelines, std::vector<const std::vector<int> *> *stabiliser = nullptr) const {
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

  // ---- Bounds of families.

  size_t busyIndex(Mask m, int begin, int end, int64_t samples) const {
    return ((static_cast<size_t>(m) * (U + 1) + begin) * (U + 1) + end) * (B + 1) + static_cast<size_t>(samples);
  }

  /// Least time of the busiest member over all shares and rows.
  void leastBusy() {
    least.assign(busyIndex(Mask(1) << n, 0, 0, 0), INFINITY);
    for (Mask m = 1; m < Mask(1) << n; ++m)
      for (int begin = 0; begin < U; ++begin)
        for (int end = begin + 1; end <= U; ++end)
          for (int rows = 1; rows <= 2; ++rows) {
            for (int64_t samples = __builtin_popcount(m); samples <= B; ++samples) {
              double worst = leastOver(m, begin, end, samples, rows);
              double &entry = least[busyIndex(m, begin, end, samples)];
              entry = std::min(entry, worst);
            }
          }
  }

  double leastOver(Mask m, int begin, int end, int64_t samples, int rows) const {
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

  double fastestCell(Mask m, int begin, int end, bool forwards) const {
    double fastest = INFINITY;
    for (int d = 0; d < n; ++d)
      if (m >> d & 1)
        for (int rows = 1; rows <= 2; ++rows)
          fastest = std::min(fastest, forwards ? t.cellForward(d, begin, end, rows) : t.cellBackward(d, begin, end, rows));
    return fastest;
  }

  double fastestLink(Mask from, Mask to, int cut) const {
    double fastest = INFINITY;
    for (int a = 0; a < n; ++a)
      for (int b = 0; (from >> a & 1) && b < n; ++b)
        if (to >> b & 1)
          fastest = std::min(fastest, t.latency[a][b] + t.boundary[cut] * t.perByte[a][b]);
    return fastest;
  }

  Path pathOf(const PipelineShape &p) const {
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

  double familyBound(const PipelineShape &p, const Path &path, const State &state) const {
    double bound = path.whole;
    for (size_t s = 0; s < p.ends.size(); ++s) {
      Mask m = (*p.shape)[s];
      double gather = INFINITY, reduce = INFINITY;
      for (int d = 0; d < n; ++d)
        if (m >> d & 1) {
          gather = std::min(gather, state.gather[d]);
          reduce = std::min(reduce, state.reduce[d]);
          bound = std::max(bound,
                           std::max(path.down[s], state.gather[d]) + t.busy(d, p.begin(s), p.ends[s], 1, 1) + std::max(path.up[s], state.reduce[d]));
        }
      bound = std::max(bound, std::max(path.down[s], gather) + least[busyIndex(m, p.begin(s), p.ends[s], p.samples)] + std::max(path.up[s], reduce));
    }
    return bound + state.update;
  }

  /// Samples of stages that lie in one node or site, whatever the shares; of others one per device. For linkBound: what certainly crosses.
  static std::vector<std::array<int64_t, 16>> leastSamples(const PipelineShape &p) {
    std::vector<std::array<int64_t, 16>> samples(p.ends.size(), std::array<int64_t, 16>{});
    for (size_t s = 0; s < p.ends.size(); ++s)
      if (__builtin_popcount((*p.shape)[s]) == 1)
        samples[s][static_cast<size_t>(__builtin_ctz((*p.shape)[s]))] = p.samples;
    return samples;
  }

  template <typename Do> void cuts(size_t stages, std::vector<int> &ends, Do &&act) const {
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

  void addFamily(std::vector<Family> &families, std::vector<PipelineShape> pipelines) const {
    bool shared = pipelines.size() > 1, single = true; // single: every stage is one device, so samples are known
    std::vector<Path> paths;
    std::vector<std::vector<std::array<int64_t, 16>>> samples;
    for (const PipelineShape &p : pipelines) {
      paths.push_back(pathOf(p));
      samples.push_back(leastSamples(p));
      for (Mask m : *p.shape) {
        shared |= (m & (m - 1)) != 0;
        single &= (m & (m - 1)) == 0;
      }
    }
    const double links = single ? linkBound(t, pipelines, samples, paths) : 0;
    for (StateRule rule : {StateRule::Equal, StateRule::FreeMemory}) {
      if (rule == StateRule::FreeMemory && !shared)
        continue; // every group has one contributor, who owns it
      State state = stateOf(t, pipelines, rule);
      double bound = links + state.update;
      for (size_t p = 0; p < pipelines.size(); ++p)
        bound = std::max(bound, familyBound(pipelines[p], paths[p], state));
      if (rule == StateRule::FreeMemory)
        bound = std::max(bound, state.update + stateBound(t, pipelines, paths, [&](size_t p, size_t s, int d) {
                                  return t.busy(d, pipelines[p].begin(s), pipelines[p].ends[s], 1, 1);
                                }));
      if (!options.prune || bound < limit)
        families.push_back({bound, pipelines, rule});
    }
  }

  void onePipeline(std::vector<Family> &families) const {
    std::vector<int> ends;
    for (const Shape &shape : shapes)
      if (fewEnough(shape, B) && canonical({&shape}))
        cuts(shape.size(), ends, [&](const std::vector<int> &e) { addFamily(families, {{&shape, e, B}}); });
  }

  /// Every member has a sample.
  bool fewEnough(const Shape &shape, int64_t samples) const {
    for (Mask m : shape)
      if (__builtin_popcount(m) > samples)
        return false;
    return true;
  }

  void twoPipelines(std::vector<Family> &families) const {
    // The best bound of every shape with so many samples, and the cuts that are below the limit.
    struct Option {
      std::vector<int> ends;
      double bound;
    };
    const State none{std::vector<double>(static_cast<size_t>(n), 0), std::vector<double>(static_cast<size_t>(n), 0), 0};
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
                  addFamily(families, {{&shapes[i], a.ends, samples}, {&shapes[j], b.ends, B - samples}});
            }
          }
      }
  }

  // ---- Members of a family: shares and rows.

  struct Walk {
    const Family &family;
    State state;
    std::vector<const std::vector<int> *> stabiliser;
    std::vector<std::vector<std::array<int64_t, 16>>> samples; ///< by pipeline, stage, device
    std::vector<std::vector<int>> rows;
  };

  void look(const Family &family) {
    Walk w{family, stateOf(t, family.pipelines, family.state), {}, {}, {}};
    std::vector<const Shape *> labels;
    for (const PipelineShape &p : family.pipelines) {
      labels.push_back(p.shape);
      w.samples.emplace_back(p.ends.size(), std::array<int64_t, 16>{});
      w.rows.emplace_back(p.ends.size(), 1);
    }
    canonical(labels, &w.stabiliser);
    stage(w, 0, 0, 0, 0);
  }

  /// Chooses shares and rows of stage s of pipeline p; `down` and `up`: latencies of the stages before.
  void stage(Walk &w, size_t p, size_t s, double down, double up) {
    if (p == w.family.pipelines.size())
      return leaf(w);
    const PipelineShape &pipeline = w.family.pipelines[p];
    if (s == pipeline.ends.size())
      return stage(w, p + 1, 0, 0, 0);
    for (int rows = 1; rows <= 2; ++rows) {
      w.rows[p][s] = rows;
      share(w, p, s, down, up, 0, pipeline.samples);
    }
    w.samples[p][s].fill(0);
  }

  void share(Walk &w, size_t p, size_t s, double down, double up, int d, int64_t left) {
    const PipelineShape &pipeline = w.family.pipelines[p];
    const Mask m = (*pipeline.shape)[s];
    while (d < n && !(m >> d & 1))
      ++d;
    if (d >= n) {
      if (left == 0)
        finishStage(w, p, s, down, up);
      return;
    }
    const int after = __builtin_popcount(m >> d) - 1;
    auto &own = w.samples[p][s];
    for (int64_t k = after == 0 ? left : 1; k <= left - after; ++k) {
      if (options.prune && std::max(down, w.state.gather[d]) + t.busy(d, pipeline.begin(s), pipeline.ends[s], k, w.rows[p][s]) +
                                   std::max(up, w.state.reduce[d]) + w.state.update >=
                               limit)
        break; // more samples take longer
      own[d] = k;
      share(w, p, s, down, up, d + 1, left - k);
    }
    own[d] = 0;
  }

  /// Of the cells the stage has.
  std::pair<double, double> fastestCells(const Walk &w, size_t p, size_t s) const {
    const PipelineShape &pipeline = w.family.pipelines[p];
    const auto &own = w.samples[p][s];
    double forward = INFINITY, backward = INFINITY;
    for (int d = 0; d < n; ++d)
      for (int r = 1; own[d] > 0 && r <= w.rows[p][s]; ++r) {
        if ((r == 1 && w.rows[p][s] == 2 && own[d] % 2 == 0) || (r == 2 && own[d] < 2))
          continue;
        forward = std::min(forward, t.cellForward(d, pipeline.begin(s), pipeline.ends[s], r));
        backward = std::min(backward, t.cellBackward(d, pipeline.begin(s), pipeline.ends[s], r));
      }
    return {forward, backward};
  }

  double leafBound(const Walk &w) const {
    std::vector<Path> paths;
    for (size_t p = 0; p < w.family.pipelines.size(); ++p) {
      Path path = pathOf(w.family.pipelines[p]);
      double down = 0, up = 0;
      for (size_t s = 0; s < path.down.size(); ++s) {
        path.down[s] = down;
        path.up[s] = up;
        auto [forward, backward] = fastestCells(w, p, s);
        down += forward + path.link[s];
        up += backward + path.link[s];
      }
      path.whole = down + up;
      paths.push_back(std::move(path));
    }
    double bound = linkBound(t, w.family.pipelines, w.samples, paths);
    if (w.family.state == StateRule::FreeMemory)
      bound = std::max(bound, stateBound(t, w.family.pipelines, paths, [&](size_t p, size_t s, int d) {
                         return t.busy(d, w.family.pipelines[p].begin(s), w.family.pipelines[p].ends[s], w.samples[p][s][d], w.rows[p][s]);
                       }));
    return bound + w.state.update;
  }

  void finishStage(Walk &w, size_t p, size_t s, double down, double up) {
    const PipelineShape &pipeline = w.family.pipelines[p];
    const auto &own = w.samples[p][s];
    if (w.rows[p][s] == 2) { // with one sample each it is the same as one row
      bool differs = false;
      for (int d = 0; d < n; ++d)
        differs |= own[d] > 1;
      if (!differs)
        return;
    }
    if (s + 1 < pipeline.ends.size()) {
      auto [forward, backward] = fastestCells(w, p, s);
      double link = fastestLink((*pipeline.shape)[s], (*pipeline.shape)[s + 1], pipeline.ends[s]);
      down += forward + link;
      up += backward + link;
    }
    stage(w, p, s + 1, down, up);
  }

  /// Equal devices in one stage: the larger share first.
  bool firstOfEquals(const Walk &w) const {
    for (const auto *p : w.stabiliser) {
      int64_t order = 0;
      for (size_t i = 0; i < w.samples.size() && order == 0; ++i)
        for (size_t s = 0; s < w.samples[i].size() && order == 0; ++s)
          for (int d = 0; d < n && order == 0; ++d)
            order = w.samples[i][s][(*p)[d]] - w.samples[i][s][d];
      if (order > 0)
        return false;
    }
    return true;
  }

  bool certainlyTooLarge(const Walk &w, step::ScheduleKind kind) const {
    for (size_t p = 0; p < w.family.pipelines.size(); ++p) {
      const PipelineShape &pipeline = w.family.pipelines[p];
      for (size_t s = 0; s < pipeline.ends.size(); ++s) {
        double state = 2 * (t.parameterBytes[pipeline.ends[s]] - t.parameterBytes[pipeline.begin(s)]);
        double saved = t.savedBytes[pipeline.ends[s]] - t.savedBytes[pipeline.begin(s)];
        for (int d = 0; d < n; ++d) {
          int64_t k = w.samples[p][s][d];
          const ClusterDevice &device = problem.cluster.devices[d];
          if (k == 0 || device.memory == 0)
            continue;
          double cell = static_cast<double>(kind == step::ScheduleKind::GPipe ? k : std::min<int64_t>(k, w.rows[p][s]));
          if (state + cell * saved + static_cast<double>(device.reserve) > static_cast<double>(device.memory))
            return true;
        }
      }
    }
    return false;
  }

  Layout layoutOf(const Walk &w, step::ScheduleKind kind) const {
    Layout layout;
    layout.state = w.family.state;
    layout.schedule.kind = kind;
    for (size_t p = 0; p < w.family.pipelines.size(); ++p) {
      const PipelineShape &shape = w.family.pipelines[p];
      Pipeline pipeline;
      pipeline.samples = shape.samples;
      for (size_t s = 0; s < shape.ends.size(); ++s) {
        Stage stage;
        stage.unitBegin = shape.begin(s);
        stage.unitEnd = shape.ends[s];
        for (int d = 0; d < n; ++d)
          if (w.samples[p][s][d] > 0)
            stage.members.push_back({static_cast<uint32_t>(d), w.samples[p][s][d], w.rows[p][s]});
        pipeline.stages.push_back(std::move(stage));
      }
      layout.pipelines.push_back(std::move(pipeline));
    }
    return layout;
  }

  void leaf(Walk &w) {
    if (!firstOfEquals(w) || (options.prune && leafBound(w) >= limit))
      return;
    for (step::ScheduleKind kind : {step::ScheduleKind::OneForwardOneBackward, step::ScheduleKind::GPipe}) {
      if (options.prune && certainlyTooLarge(w, kind))
        continue;
      simulate(layoutOf(w, kind));
    }
  }

  void simulate(Layout layout) {
    ++best.simulated;
    step::Plan plan = makePlan(problem, layout);
    std::string error;
    step::TimeOptions options;
    options.costs = &problem.costs;
    std::optional<step::StepTimes> times = step::timeStep(problem.summary, plan, error, options);
    if (!times || times->stepTime >= limit)
      return;
    for (size_t d = 0; d < times->devices.size(); ++d) {
      const ClusterDevice &device = problem.cluster.devices[d];
      if (device.memory && times->devices[d].memory.least + device.reserve > device.memory)
        return;
    }
    std::optional<Evaluation> e = evaluate(problem, plan, error);
    if (!e || e->excess > 0 || e->step >= limit)
      return;
    limit = e->step * (1 - 1e-9);
    best.feasible = true;
    best.step = e->step;
    best.layout = std::move(layout);
  }

  /// Simulates the evenest shares of the families with the least bounds.
  void seed(std::vector<Family> &families) {
    if (!options.prune)
      return;
    std::stable_sort(families.begin(), families.end(), [](const Family &a, const Family &b) { return a.bound < b.bound; });
    for (size_t i = 0; i < std::min<size_t>(families.size(), 64) && families[i].bound < limit; ++i) {
      const Family &family = families[i];
      Walk w{family, {}, {}, {}, {}};
      for (const PipelineShape &p : family.pipelines) {
        w.samples.emplace_back(p.ends.size(), std::array<int64_t, 16>{});
        w.rows.emplace_back(p.ends.size(), 1);
        for (size_t s = 0; s < p.ends.size(); ++s) {
          Mask m = (*p.shape)[s];
          auto &own = w.samples.back()[s];
          int64_t left = p.samples;
          for (int d = 0; d < n; ++d)
            if (m >> d & 1) {
              own[d] = 1;
              --left;
            }
          for (; left > 0; --left) {
            int next = -1;
            for (int d = 0; d < n; ++d)
              if ((m >> d & 1) &&
                  (next < 0 || t.busy(d, p.begin(s), p.ends[s], own[d] + 1, 1) < t.busy(next, p.begin(s), p.ends[s], own[next] + 1, 1)))
                next = d;
            ++own[next];
          }
        }
      }
      for (step::ScheduleKind kind : {step::ScheduleKind::OneForwardOneBackward, step::ScheduleKind::GPipe})
        if (!certainlyTooLarge(w, kind))
          simulate(layoutOf(w, kind));
    }
  }

  const Problem &problem;
  const ExhaustiveOptions &options;
  Tables t;
  const int n, U;
  const int64_t B;
  std::vector<std::vector<int>> group;
  std::vector<Shape> shapes;
  std::vector<double> least;
  Optimum best;
  double limit = INFINITY; ///< only what is faster is of interest
};

} // namespace

Optimum zorse::optimality::exhaustive(const Problem &problem, const ExhaustiveOptions &options) { return Search(problem, options).run(); }

double zorse::optimality::layoutBound(const Problem &problem, const Layout &layout) {
  Tables t(problem);
  std::vector<Shape> shapes(layout.pipelines.size());
  std::vector<PipelineShape> pipelines;
  std::vector<std::vector<std::array<int64_t, 16>>> samples;
  for (size_t p = 0; p < layout.pipelines.size(); ++p) {
    PipelineShape shape{&shapes[p], {}, layout.pipelines[p].samples};
    samples.emplace_back();
    for (const Stage &stage : layout.pipelines[p].stages) {
      Mask m = 0;
      samples.back().push_back({});
      for (const Member &member : stage.members) {
        m |= Mask(1) << member.device;
        samples.back().back()[member.device] = member.samples;
      }
      shapes[p].push_back(m);
      shape.ends.push_back(stage.unitEnd);
    }
    pipelines.push_back(shape);
  }
  State state = stateOf(t, pipelines, layout.state);
  double bound = 0;
  std::vector<Path> paths;
  for (size_t p = 0; p < pipelines.size(); ++p) {
    double down = 0, up = 0;
    paths.emplace_back();
    for (size_t s = 0; s < pipelines[p].ends.size(); ++s) {
      const Stage &stage = layout.pipelines[p].stages[s];
      double forward = INFINITY, backward = INFINITY, link = INFINITY;
      for (const Member &m : stage.members) {
        int d = static_cast<int>(m.device), rows = static_cast<int>(m.rows);
        bound = std::max(bound, std::max(down, state.gather[d]) + t.busy(d, stage.unitBegin, stage.unitEnd, m.samples, rows) +
                                    std::max(up, state.reduce[d]));
        for (int r = 1; r <= 2; ++r) {
          forward = std::min(forward, t.cellForward(d, stage.unitBegin, stage.unitEnd, r));
          backward = std::min(backward, t.cellBackward(d, stage.unitBegin, stage.unitEnd, r));
        }
        for (const Member &next : s + 1 < pipelines[p].ends.size() ? layout.pipelines[p].stages[s + 1].members : stage.members)
          link = std::min(link, t.latency[d][next.device] + t.boundary[stage.unitEnd] * t.perByte[d][next.device]);
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
  if (layout.state == StateRule::FreeMemory)
    bound = std::max(bound, stateBound(t, pipelines, paths, [&](size_t p, size_t s, int d) {
                       for (const Member &m : layout.pipelines[p].stages[s].members)
                         if (static_cast<int>(m.device) == d)
                           return t.busy(d, pipelines[p].begin(s), pipelines[p].ends[s], m.samples, static_cast<int>(m.rows));
                       return 0.0;
                     }));
  return bound + state.update;
}
