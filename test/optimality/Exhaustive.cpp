#include "Exhaustive.h"
#include "ExhaustiveFamilies.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

/// Enumerates the families, and the shares and rows of each family.
class Search : Families {
public:
  using Families::Families;

  Optimum run() {
    std::vector<Family> families;
    onePipeline(families);
    seed(families); // a good layout at the start shortens the rest of the search
    if (options.pipelines > 1)
      twoPipelines(families);
    std::stable_sort(families.begin(), families.end(),
                     [](const Family &a, const Family &b) { return a.bound < b.bound; });
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
  /// A member of a family: its shares and rows.
  struct Walk {
    const Family &family;
    State state;
    std::vector<const std::vector<int> *> stabiliser;
    std::vector<Samples> samples; ///< by pipeline, stage, device
    std::vector<std::vector<int>> rows;
  };

  void look(const Family &family) {
    Walk w{family, stateOf(t, family.pipelines, family.state), {}, {}, {}};
    std::vector<const Shape *> labels;
    for (const PipelineShape &p : family.pipelines) {
      labels.push_back(p.shape);
      w.samples.emplace_back(p.ends.size(), Samples::value_type{});
      w.rows.emplace_back(p.ends.size(), 1);
    }
    canonical(labels, &w.stabiliser);
    stage(w, 0, 0, 0, 0);
  }

  /// Enumerates shares and rows of stage `s` of pipeline `p`. `down` and `up` are the latencies of
  /// the earlier stages.
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
      if (options.prune && std::max(down, w.state.gather[d]) +
                                   t.busy(d, pipeline.begin(s), pipeline.ends[s], k, w.rows[p][s]) +
                                   std::max(up, w.state.reduce[d]) + w.state.update >=
                               limit)
        break; // more samples take longer
      own[d] = k;
      share(w, p, s, down, up, d + 1, left - k);
    }
    own[d] = 0;
  }

  /// Times of the fastest cells of the stage.
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
    if (w.family.state == ShardSizing::ByFreeMemory)
      bound =
          std::max(bound, stateBound(t, w.family.pipelines, paths, [&](size_t p, size_t s, int d) {
                     return t.busy(d, w.family.pipelines[p].begin(s), w.family.pipelines[p].ends[s],
                                   w.samples[p][s][d], w.rows[p][s]);
                   }));
    return bound + w.state.update;
  }

  void finishStage(Walk &w, size_t p, size_t s, double down, double up) {
    const PipelineShape &pipeline = w.family.pipelines[p];
    const auto &own = w.samples[p][s];
    if (w.rows[p][s] == 2) { // if each member has one sample, this equals one row
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

  /// Whether equal devices of a stage are in the order of decreasing shares.
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
        double state = 2 *
                       (t.parameterBytes[pipeline.ends[s]] - t.parameterBytes[pipeline.begin(s)]);
        double saved = t.savedBytes[pipeline.ends[s]] - t.savedBytes[pipeline.begin(s)];
        for (int d = 0; d < n; ++d) {
          int64_t k = w.samples[p][s][d];
          const ClusterDevice &device = problem.cluster.devices[d];
          if (k == 0 || device.memory == 0)
            continue;
          double cell = static_cast<double>(
              kind == step::ScheduleKind::GPipe ? k : std::min<int64_t>(k, w.rows[p][s]));
          if (state + cell * saved + static_cast<double>(device.reservedMemory) >
              static_cast<double>(device.memory))
            return true;
        }
      }
    }
    return false;
  }

  Strategy strategyOf(const Walk &w, step::ScheduleKind kind) const {
    Strategy strategy;
    strategy.state = w.family.state;
    strategy.schedule.kind = kind;
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
      strategy.pipelines.push_back(std::move(pipeline));
    }
    return strategy;
  }

  void leaf(Walk &w) {
    if (!firstOfEquals(w) || (options.prune && leafBound(w) >= limit))
      return;
    for (step::ScheduleKind kind :
         {step::ScheduleKind::OneForwardOneBackward, step::ScheduleKind::GPipe}) {
      if (options.prune && certainlyTooLarge(w, kind))
        continue;
      simulate(strategyOf(w, kind));
    }
  }

  void simulate(Strategy strategy) {
    ++best.simulated;
    step::Plan plan = makePlan(problem, strategy);
    step::TimeOptions options;
    options.costs = &problem.costs;
    Result<step::StepTimes> times = step::timeStep(problem.summary, plan, options);
    if (times.failed() || times->stepTime >= limit)
      return;
    for (size_t d = 0; d < times->devices.size(); ++d) {
      const ClusterDevice &device = problem.cluster.devices[d];
      if (device.memory &&
          times->devices[d].memory.peakLiveBytes + device.reservedMemory > device.memory)
        return;
    }
    Result<Evaluation> e = evaluate(problem, plan);
    if (e.failed() || e->shortfallBytes > 0 || e->step >= limit)
      return;
    limit = e->step * (1 - 1e-9);
    best.feasible = true;
    best.step = e->step;
    best.strategy = std::move(strategy);
  }

  /// Simulates the most even shares of the families with the lowest bounds.
  void seed(std::vector<Family> &families) {
    if (!options.prune)
      return;
    std::stable_sort(families.begin(), families.end(),
                     [](const Family &a, const Family &b) { return a.bound < b.bound; });
    for (size_t i = 0; i < std::min<size_t>(families.size(), 64) && families[i].bound < limit;
         ++i) {
      const Family &family = families[i];
      Walk w{family, {}, {}, {}, {}};
      for (const PipelineShape &p : family.pipelines) {
        w.samples.emplace_back(p.ends.size(), Samples::value_type{});
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
                  (next < 0 || t.busy(d, p.begin(s), p.ends[s], own[d] + 1, 1) <
                                   t.busy(next, p.begin(s), p.ends[s], own[next] + 1, 1)))
                next = d;
            ++own[next];
          }
        }
      }
      for (step::ScheduleKind kind :
           {step::ScheduleKind::OneForwardOneBackward, step::ScheduleKind::GPipe})
        if (!certainlyTooLarge(w, kind))
          simulate(strategyOf(w, kind));
    }
  }

  Optimum best;
};

} // namespace

Optimum zorse::optimality::exhaustive(const Problem &problem, const ExhaustiveOptions &options) {
  return Search(problem, options).run();
}
