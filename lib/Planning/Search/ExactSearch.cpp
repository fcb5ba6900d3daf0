// Branch and bound for small problems.
//
// The space: one or two pipelines of any devices in any order of stages, every contiguous cut, every whole share of samples, the model's row counts, the
// schedules of scheduleChoices. A pipeline is built from front to back; it is given up when a stage cannot be done before the best plan so far:
//
//     T >= way(s) + busy(d)      way(s): least time of one sample through the stages in front of s and back (forwards only where W can fill the rest)
//                                busy(d): what device d of s computes
//
// What survives is simulated by ascending bound until the bound reaches the best. Devices that are alike in class and node count as one kind: among them
// the first ones are taken first and shares do not increase. Of two pipelines the few best of each side are paired.

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Plans that are at most so much better than the best known are not looked for.
constexpr double kSlack = 0.001;
constexpr size_t kMostEntries = 300000, kMostNodes = 8000000, kPaired = 6;

struct StageChoice {
  uint32_t mask;
  int32_t u, v;
  size_t rows;
  double way;                ///< least seconds of a sample in front of it, and back
};

struct Config {              ///< a pipeline without shares
  std::vector<StageChoice> stages;
  int64_t samples;
  double bound;
};

struct Entry {
  uint32_t config;
  double bound;
  std::vector<int64_t> shares; ///< of all members, stage by stage, members by ascending bit
};

class Exact {
public:
  Exact(SearchContext &context, double best) : context(context), model(context.model), best(best) {
    for (size_t i = 0; i < context.devices.size(); ++i) {
      uint32_t d = context.devices[i];
      auto key = std::pair(model.classOf(d), model.nodeOf(d));
      auto it = std::find(kinds.begin(), kinds.end(), key);
      kindOf.push_back(static_cast<uint32_t>(it - kinds.begin()));
      if (it == kinds.end())
        kinds.push_back(key);
    }
    split = context.tables.canSplit() && context.options.splitBackward.value_or(true);
  }

  bool complete = true;

  /// Whether of each kind the first devices of `within` are taken.
  bool canonical(uint32_t mask, uint32_t within) const {
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1)
        for (size_t j = 0; j < i; ++j)
          if (kindOf[j] == kindOf[i] && (within >> j & 1) && !(mask >> j & 1))
            return false;
    return true;
  }

  double busy(size_t i, int32_t u, int32_t v, size_t r, int64_t samples) const {
    uint32_t c = model.classOf(context.devices[i]);
    int64_t rows = model.rows()[r];
    double seconds = static_cast<double>(samples / rows) * model.cell(c, r, u, v);
    if (int64_t rest = samples % rows)
      seconds += static_cast<double>(rest) * model.leastPerSample(c, u, v);
    return seconds;
  }

  /// Least end of a stage whose members all have at least one sample.
  double leastBusy(uint32_t mask, int32_t u, int32_t v, size_t r, int64_t samples) const {
    uint32_t counts[32];
    double seconds[32];
    size_t n = 0;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1) {
        counts[n] = 1;
        seconds[n++] = model.cell(model.classOf(context.devices[i]), r, u, v);
      }
    int64_t rows = model.rows()[r];
    // The last cell may be smaller: whole cells only, each sample at its least otherwise.
    double whole = samples / rows > 0 ? makespan(samples / rows, counts, seconds, n) : 0;
    double rate = 0;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1)
        rate += 1 / model.leastPerSample(model.classOf(context.devices[i]), u, v);
    double even = static_cast<double>(samples) / rate;
    return samples % rows == 0 && n == 1 ? whole : std::max(even, n == 1 ? whole : 0.0);
  }

  /// Least seconds of a sample through a stage (and back).
  double passage(uint32_t mask, int32_t u, int32_t v) const {
    double least = INFINITY;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1) {
        uint32_t c = model.classOf(context.devices[i]);
        double forward = model.forward(c, 0, u, v);
        least = std::min(least, split ? forward : model.leastPassage(c, u, v));
      }
    return least;
  }

  double link(uint32_t from, uint32_t to, int32_t cut) const {
    double least = INFINITY;
    for (size_t i = 0; i < kindOf.size(); ++i)
      for (size_t j = 0; j < kindOf.size(); ++j)
        if ((from >> i & 1) && (to >> j & 1)) {
          double forward = model.transferSeconds(context.devices[i], context.devices[j], model.tables.forwardBytesAt(cut));
          double back = split ? 0 : model.transferSeconds(context.devices[j], context.devices[i], model.tables.backwardBytesAt(cut));
          least = std::min(least, forward + back);
        }
    return least;
  }

  bool fitsAtAll(uint32_t mask, int32_t u, int32_t v, size_t r) const {
    for (size_t i = 0; i < kindOf.size(); ++i)
      if ((mask >> i & 1) && model.heldBytes(u, v) + model.activationBytes(u, v) * 0.5 > model.memoryOf(model.classOf(context.devices[i])))
        return false;
    (void)r;
    return true;
  }

  /// All pipelines of exactly these devices.
  void pipelines(uint32_t mask, int64_t samples, std::vector<Config> &found) {
    Config config;
    config.samples = samples;
    config.bound = 0;
    extend(mask, 0, 0, config, found);
  }

  void extend(uint32_t left, int32_t u, double way, Config &config, std::vector<Config> &found) {
    if (++nodes > kMostNodes) {
      complete = false;
      return;
    }
    for (uint32_t sub = left; sub; sub = (sub - 1) & left) {
      if (!canonical(sub, left))
        continue;
      bool last = sub == left;
      if (static_cast<int64_t>(__builtin_popcount(sub)) > config.samples)
        continue;
      double here = way;
      if (!config.stages.empty())
        here += link(config.stages.back().mask, sub, u);
      for (int32_t v = last ? model.units() : u + 1; v <= model.units(); ++v) {
        if (!last && model.units() - v < 1)
          break;
        if (!fitsAtAll(sub, u, v, 0))
          break;
        double ahead = here + passage(sub, u, v);
        bool any = false;
        for (size_t r = 0; r < model.rows().size(); ++r) {
          if (r > 0 && model.rows()[r] > config.samples)
            break;
          double end = here + leastBusy(sub, u, v, r, config.samples);
          if (end >= best * (1 - kSlack))
            continue;
          any = true;
          config.stages.push_back({sub, u, v, r, here});
          double before = config.bound;
          config.bound = std::max(config.bound, end);
          if (last)
            found.push_back(config);
          else
            extend(left & ~sub, v, ahead, config, found);
          config.bound = before;
          config.stages.pop_back();
        }
        if (!any && here + leastBusyOverRows(sub, u, v, config.samples) >= best)
          break; // more units take longer
      }
    }
  }

  double leastBusyOverRows(uint32_t mask, int32_t u, int32_t v, int64_t samples) const {
    double rate = 0;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1)
        rate += 1 / model.leastPerSample(model.classOf(context.devices[i]), u, v);
    return static_cast<double>(samples) / rate;
  }

  /// Shares of a stage by ascending end, those that could be part of a better plan.
  void stageShares(const StageChoice &stage, int64_t samples, std::vector<std::pair<double, std::vector<int64_t>>> &result) const {
    std::vector<size_t> members;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (stage.mask >> i & 1)
        members.push_back(i);
    std::vector<int64_t> shares(members.size());
    auto choose = [&](auto &&self, size_t at, int64_t left, double longest) -> void {
      if (stage.way + longest >= best * (1 - kSlack))
        return;
      if (at == members.size()) {
        if (left == 0)
          result.push_back({stage.way + longest, shares});
        return;
      }
      int64_t most = left - static_cast<int64_t>(members.size() - at - 1);
      if (at > 0 && kindOf[members[at]] == kindOf[members[at - 1]])
        most = std::min(most, shares[at - 1]);
      for (int64_t n = at + 1 == members.size() ? left : 1; n <= most; ++n) {
        shares[at] = n;
        self(self, at + 1, left - n, std::max(longest, busy(members[at], stage.u, stage.v, stage.rows, n)));
      }
    };
    choose(choose, 0, samples, 0.0);
    std::stable_sort(result.begin(), result.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  }

  void entriesOf(const std::vector<Config> &configs, uint32_t index, size_t mostPerStage, std::vector<Entry> &entries) {
    const Config &config = configs[index];
    std::vector<std::vector<std::pair<double, std::vector<int64_t>>>> lists(config.stages.size());
    for (size_t s = 0; s < lists.size(); ++s) {
      stageShares(config.stages[s], config.samples, lists[s]);
      if (lists[s].size() > mostPerStage)
        lists[s].resize(mostPerStage);
    }
    Entry entry;
    entry.config = index;
    auto choose = [&](auto &&self, size_t s, double bound) -> void {
      if (entries.size() >= kMostEntries) {
        complete = false;
        return;
      }
      if (s == lists.size()) {
        entries.push_back(entry);
        entries.back().bound = bound;
        return;
      }
      for (auto &[end, shares] : lists[s]) {
        size_t size = entry.shares.size();
        entry.shares.insert(entry.shares.end(), shares.begin(), shares.end());
        self(self, s + 1, std::max(bound, end));
        entry.shares.resize(size);
      }
    };
    choose(choose, 0, 0);
  }

  Pipeline pipelineOf(const Config &config, const Entry &entry) const {
    Pipeline pipeline;
    pipeline.samples = config.samples;
    size_t next = 0;
    for (const StageChoice &choice : config.stages) {
      Stage stage;
      stage.unitBegin = choice.u;
      stage.unitEnd = choice.v;
      for (size_t i = 0; i < kindOf.size(); ++i)
        if (choice.mask >> i & 1)
          stage.members.push_back({context.devices[i], entry.shares[next++], model.rows()[choice.rows]});
      pipeline.stages.push_back(std::move(stage));
    }
    return pipeline;
  }

  void note(double step) { best = std::min(best, step); }
  double bestStep() const { return best; }
  uint32_t all() const { return (1u << kindOf.size()) - 1; }

private:
  SearchContext &context;
  const StageModel &model;
  double best;
  bool split;
  size_t nodes = 0;
  std::vector<uint32_t> kindOf;
  std::vector<std::pair<uint32_t, uint32_t>> kinds;
};

/// Those that are best for most: the others are tried on what wins.
std::vector<step::Schedule> shortList(const std::vector<step::Schedule> &all) {
  std::vector<step::Schedule> few;
  auto take = [&](step::ScheduleKind kind, bool split, double inFlight) {
    for (const step::Schedule &schedule : all)
      if (schedule.kind == kind && schedule.splitBackward == split && schedule.inFlight == inFlight && schedule.weightDelay == 0)
        few.push_back(schedule);
  };
  take(step::ScheduleKind::Timed, true, 1);
  take(step::ScheduleKind::Timed, true, 2);
  take(step::ScheduleKind::Timed, false, 1.5);
  take(step::ScheduleKind::OneForwardOneBackward, false, 1);
  take(step::ScheduleKind::GPipe, false, 1);
  return few.empty() ? all : few;
}

/// Simulates a layout under several schedules; keeps the best.
Candidate bestSchedule(SearchContext &context, QuickSimulation &simulation, const std::vector<step::Schedule> &schedules, Layout layout) {
  Candidate best;
  best.score = INFINITY;
  if (layout.pipelines.empty())
    return best;
  for (StateRule rule : {StateRule::Proportional, StateRule::FreeMemory}) {
    bool short_ = false;
    for (const step::Schedule &schedule : schedules) {
      layout.schedule = schedule;
      layout.state = rule;
      const QuickSimulation::Result &result = simulation.run(layout);
      if (!result.ran)
        continue;
      short_ |= result.excess > 0;
      double score = context.scoreOf(layout, result.step, context.missingMemory(result.memory));
      if (score < best.score) {
        best.layout = layout;
        best.score = score;
        best.step = result.step;
        best.excess = result.excess;
      }
    }
    if (!short_)
      break;
  }
  return best;
}

} // namespace

bool zorse::planning::isSmall(const SearchContext &context) {
  return context.devices.size() <= kFewDevices && context.model.units() <= 10 && context.problem.batch <= kFewSamples;
}

bool zorse::planning::searchExactly(SearchContext &context, std::vector<Candidate> &pool) {
  if (context.options.objective != Objective::Throughput || context.options.mostPrice > 0)
    return false;
  double best = INFINITY;
  for (const Candidate &candidate : pool)
    if (candidate.excess == 0)
      best = std::min(best, candidate.step);
  if (!(best < INFINITY))
    for (const Candidate &candidate : pool)
      best = std::min(best, candidate.score);
  Exact exact(context, best);
  const std::vector<step::Schedule> every = scheduleChoices(context, true);
  std::vector<step::Schedule> schedules = shortList(every);
  const uint32_t all = exact.all();

  // One pipeline.
  std::vector<Config> configs;
  std::map<std::pair<uint32_t, int64_t>, std::vector<Config>> known;
  for (uint32_t mask = 1; mask <= all; ++mask)
    if (exact.canonical(mask, all) && context.options.pipelines <= 1)
      exact.pipelines(mask, context.problem.batch, configs);
  std::stable_sort(configs.begin(), configs.end(), [](const Config &a, const Config &b) { return a.bound < b.bound; });
  std::vector<Entry> entries;
  for (uint32_t i = 0; i < configs.size(); ++i)
    exact.entriesOf(configs, i, SIZE_MAX, entries);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.bound < b.bound; });

  // Simulates layouts by ascending bound in fixed batches.
  auto simulate = [&](size_t count, size_t most, const std::function<double(size_t)> &bound, const std::function<Layout(size_t)> &layout) {
    constexpr size_t kBatch = 64;
    for (size_t at = 0; at < count; at += kBatch) {
      if (bound(at) >= exact.bestStep() * (1 - kSlack))
        return true;
      if (at >= most)
        return false;
      size_t end = std::min(count, at + kBatch);
      std::vector<Candidate> batch(end - at);
      context.parallel(end - at, [&](size_t worker, size_t i) { batch[i] = bestSchedule(context, context.simulation(worker), schedules, layout(at + i)); });
      for (Candidate &candidate : batch) {
        candidate.id = context.nextId();
        if (candidate.excess == 0)
          exact.note(candidate.step);
        if (candidate.score < INFINITY)
          pool.push_back(std::move(candidate));
      }
      std::sort(pool.begin(), pool.end(), better);
      if (pool.size() > 64)
        pool.resize(64);
    }
    return true;
  };
  size_t most = context.options.candidates ? context.options.candidates : 4000;
  bool proven = simulate(
      entries.size(), most, [&](size_t i) { return entries[i].bound; },
      [&](size_t i) {
        Layout layout;
        layout.pipelines.push_back(exact.pipelineOf(configs[entries[i].config], entries[i]));
        return layout;
      });

  // Two pipelines: the few best of each set of devices and samples.
  if (context.options.pipelines == 0 || context.options.pipelines == 2) {
    auto bestOf = [&](uint32_t mask, int64_t samples) -> const std::vector<Config> & {
      auto [it, isNew] = known.try_emplace({mask, samples});
      if (isNew) {
        exact.pipelines(mask, samples, it->second);
        std::stable_sort(it->second.begin(), it->second.end(), [](const Config &a, const Config &b) { return a.bound < b.bound; });
        if (it->second.size() > kPaired)
          it->second.resize(kPaired);
      }
      return it->second;
    };
    struct Pair {
      double bound;
      const Config *a, *b;
    };
    std::vector<Pair> pairs;
    for (uint32_t mask = 1; mask <= all; ++mask) {
      if (!exact.canonical(mask, all))
        continue;
      for (uint32_t other = all & ~mask; other; other = (other - 1) & all & ~mask) {
        if (!exact.canonical(other, all & ~mask))
          continue;
        for (int64_t samples = 1; samples < context.problem.batch; ++samples) {
          if (exact.leastBusyOverRows(mask, 0, context.model.units(), samples) >= exact.bestStep() ||
              exact.leastBusyOverRows(other, 0, context.model.units(), context.problem.batch - samples) >= exact.bestStep())
            continue;
          for (const Config &a : bestOf(mask, samples))
            for (const Config &b : bestOf(other, context.problem.batch - samples))
              pairs.push_back({std::max(a.bound, b.bound), &a, &b});
        }
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair &x, const Pair &y) { return x.bound < y.bound; });
    simulate(
        pairs.size(), most / 4, [&](size_t i) { return pairs[i].bound; },
        [&](size_t i) {
          Layout layout;
          for (const Config *config : {pairs[i].a, pairs[i].b}) {
            std::vector<Config> one{*config};
            std::vector<Entry> shares;
            exact.entriesOf(one, 0, 1, shares);
            if (shares.empty())
              return Layout();
            layout.pipelines.push_back(exact.pipelineOf(*config, shares.front()));
          }
          return layout;
        });
  }
  std::vector<Candidate> winners(pool.begin(), pool.begin() + static_cast<long>(std::min<size_t>(pool.size(), 32)));
  context.parallel(winners.size(), [&](size_t worker, size_t i) { winners[i] = bestSchedule(context, context.simulation(worker), every, winners[i].layout); });
  for (Candidate &candidate : winners)
    if (candidate.score < INFINITY) {
      candidate.id = context.nextId();
      pool.push_back(std::move(candidate));
    }
  std::sort(pool.begin(), pool.end(), better);
  return proven && exact.complete;
}
