// Branch and bound for small problems.
//
// The space: one or two pipelines of any devices in any order of stages, every contiguous cut, every whole share of samples, row counts by powers of
// two, the schedules of scheduleChoices. A pipeline is built from front to back; it is given up when a stage cannot be done before the best plan so
// far:
//
//     T >= max(down(s), move(s)) + busy(d) + max(up(s), move(s))
//
//     down(s), up(s): least time of one sample through the stages in front of s, and back (nothing where W can fill the rest)
//     busy(d):        what device d of s computes
//     move(s):        what the busiest card or device has to pass at least for the stage's parameters to be gathered, or its gradients to be added
//
// What survives is simulated by ascending bound until the bound reaches the best. Devices that are alike in class and node count as one kind: among
// them the first ones are taken first and shares do not increase. Of two pipelines the few best of each side are paired: a proof needs that the bound
// leaves none.

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Plans that are at most so much better than the best known are not looked for.
constexpr double kSlack = 0.001;
constexpr size_t kMostEntries = 60000, kMostNodes = 500000, kPaired = 8, kShares = 8, kMostPairs = 20000;

struct StageChoice {
  uint32_t mask;
  int32_t u, v;
  size_t rows;
  double before, behind; ///< least seconds before its first task and after its last
  double least;          ///< of its busiest member
};

struct Config { ///< a pipeline without shares
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
    for (uint32_t a : context.devices)
      for (uint32_t b : context.devices)
        perByte.push_back(a == b ? INFINITY : (model.transferSeconds(a, b, 1e9) - model.transferSeconds(a, b, 0)) / 1e9);
    for (uint32_t d : context.devices)
      card = std::min(card, model.cardBandwidth(model.nodeOf(d)) > 0 ? 1 / model.cardBandwidth(model.nodeOf(d)) : 0);
    const size_t ranges = static_cast<size_t>(model.units() + 1) * (model.units() + 1);
    moved.assign((size_t(1) << kindOf.size()) * ranges, -1);
    leastBusyOf.assign((size_t(1) << kindOf.size()) * ranges * model.rows().size() * (context.problem.batch + 1), -1);
  }

  /// Least seconds in which the state of units [u, v) gets to all that need it, whoever owns it: of m places with equal ways in, the average one
  /// lacks 1 - 1/m. `masks`: devices by unit, from u on.
  double move(int32_t u, int32_t v, const uint32_t *masks) const {
    uint32_t all = 0;
    for (int32_t i = u; i < v; ++i)
      all |= masks[i - u];
    if (!(all & (all - 1)))
      return 0;
    auto nodesOf = [&](uint32_t mask) {
      uint32_t seen[32];
      size_t count = 0;
      for (size_t i = 0; i < kindOf.size(); ++i)
        if (uint32_t node = model.nodeOf(context.devices[i]); (mask >> i & 1) && std::find(seen, seen + count, node) == seen + count)
          seen[count++] = node;
      return static_cast<double>(count);
    };
    double byDevice = 0, byNode = 0;
    std::vector<uint32_t> groups;
    context.tables.groupsOf(u, v, groups);
    for (uint32_t g : groups) {
      const GroupTable &group = context.tables.groups()[g];
      if (!group.trainable)
        continue;
      uint32_t mask = 0;
      for (int32_t i = u; i < v; ++i)
        if (const auto &list = context.tables.groupsOfUnit(i); std::find(list.begin(), list.end(), g) != list.end())
          mask |= masks[i - u];
      double devices = __builtin_popcount(mask);
      // Shares are whole blocks of elements.
      double bytes =
          std::max(0.0, (static_cast<double>(group.elements) - 512 * devices) * static_cast<double>(std::min(group.computeSize, group.elementSize)));
      byDevice += bytes * (devices - 1);
      byNode += bytes * (nodesOf(mask) - 1);
    }
    double fastest = INFINITY;
    for (size_t i = 0; i < kindOf.size(); ++i)
      for (size_t j = 0; j < kindOf.size(); ++j)
        if ((all >> i & 1) && (all >> j & 1))
          fastest = std::min(fastest, perByte[i * kindOf.size() + j]);
    return std::max(byDevice / __builtin_popcount(all) * fastest, byNode / nodesOf(all) * card) * (1 - 1e-9);
  }

  size_t range(uint32_t mask, int32_t u, int32_t v) const { return (mask * static_cast<size_t>(model.units() + 1) + u) * (model.units() + 1) + v; }

  double moveOf(uint32_t mask, int32_t u, int32_t v) {
    double &known = moved[range(mask, u, v)];
    if (known < 0) {
      std::vector<uint32_t> masks(static_cast<size_t>(v - u), mask);
      known = move(u, v, masks.data());
    }
    return known;
  }

  /// Of two pipelines: their stages add to the same gradients.
  double pairBound(const Config &a, const Config &b) const {
    double bound = std::max(a.bound, b.bound);
    std::vector<uint32_t> masks(static_cast<size_t>(model.units()), 0);
    for (const Config *config : {&a, &b})
      for (const StageChoice &stage : config->stages)
        for (int32_t u = stage.u; u < stage.v; ++u)
          masks[u] |= stage.mask;
    for (const Config *config : {&a, &b})
      for (const StageChoice &stage : config->stages) {
        double seconds = move(stage.u, stage.v, &masks[stage.u]);
        bound = std::max(bound, std::max(stage.before, seconds) + stage.least + std::max(stage.behind, seconds));
      }
    return bound;
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

  /// Least time of the busiest member when each has at least one sample: one by one to whoever ends first.
  double leastBusy(uint32_t mask, int32_t u, int32_t v, size_t r, int64_t samples) {
    double &known = leastBusyOf[(range(mask, u, v) * model.rows().size() + r) * (context.problem.batch + 1) + samples];
    if (known >= 0)
      return known;
    size_t members[32], n = 0;
    int64_t given[32];
    double next[32], longest = 0;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1) {
        members[n] = i;
        given[n] = 1;
        longest = std::max(longest, busy(i, u, v, r, 1));
        next[n++] = busy(i, u, v, r, 2);
      }
    for (int64_t left = samples - static_cast<int64_t>(n); left > 0; --left) {
      size_t best = static_cast<size_t>(std::min_element(next, next + n) - next);
      longest = std::max(longest, next[best]);
      next[best] = busy(members[best], u, v, r, ++given[best] + 1);
    }
    return known = longest;
  }

  /// Least seconds of a sample through a stage: forwards, and back.
  std::pair<double, double> passage(uint32_t mask, int32_t u, int32_t v) const {
    double forward = INFINITY, backward = INFINITY;
    for (size_t i = 0; i < kindOf.size(); ++i)
      if (mask >> i & 1) {
        uint32_t c = model.classOf(context.devices[i]);
        forward = std::min(forward, model.forward(c, 0, u, v));
        backward = std::min(backward, split ? 0 : model.backward(c, 0, u, v));
      }
    return {forward, backward};
  }

  std::pair<double, double> link(uint32_t from, uint32_t to, int32_t cut) const {
    double forward = INFINITY, backward = INFINITY;
    for (size_t i = 0; i < kindOf.size(); ++i)
      for (size_t j = 0; j < kindOf.size(); ++j)
        if ((from >> i & 1) && (to >> j & 1)) {
          forward = std::min(forward, model.transferSeconds(context.devices[i], context.devices[j], model.tables.forwardBytesAt(cut)));
          backward = std::min(backward, split ? 0 : model.transferSeconds(context.devices[j], context.devices[i], model.tables.backwardBytesAt(cut)));
        }
    return {forward, backward};
  }

  bool fitsAtAll(uint32_t mask, int32_t u, int32_t v) const {
    for (size_t i = 0; i < kindOf.size(); ++i)
      if ((mask >> i & 1) && model.heldBytes(u, v) + model.activationBytes(u, v) * 0.5 > model.memoryOf(model.classOf(context.devices[i])))
        return false;
    return true;
  }

  /// All pipelines of exactly these devices.
  void pipelines(uint32_t mask, int64_t samples, std::vector<Config> &found) {
    Config config;
    config.samples = samples;
    config.bound = 0;
    extend(mask, 0, {0, 0}, config, found);
  }

  void extend(uint32_t left, int32_t u, std::pair<double, double> way, Config &config, std::vector<Config> &found) {
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
      auto [down, up] = way;
      if (!config.stages.empty()) {
        auto [there, back] = link(config.stages.back().mask, sub, u);
        down += there;
        up += back;
      }
      for (int32_t v = last ? model.units() : u + 1; v <= model.units(); ++v) {
        if (!last && model.units() - v < 1)
          break;
        if (!fitsAtAll(sub, u, v))
          break;
        auto [forward, backward] = passage(sub, u, v);
        const double seconds = moveOf(sub, u, v), before = std::max(down, seconds), behind = std::max(up, seconds);
        bool any = false;
        for (size_t r = 0; r < model.rows().size(); ++r) {
          if (r > 0 && model.rows()[r] > config.samples)
            break;
          if (model.rows()[r] & (model.rows()[r] - 1))
            continue; // descents try what lies between powers of two
          double least = leastBusy(sub, u, v, r, config.samples), end = before + least + behind;
          if (end >= best * (1 - kSlack))
            continue;
          any = true;
          config.stages.push_back({sub, u, v, r, before, behind, least});
          double bound = config.bound;
          config.bound = std::max(bound, end);
          if (last)
            found.push_back(config);
          else
            extend(left & ~sub, v, {down + forward, up + backward}, config, found);
          config.bound = bound;
          config.stages.pop_back();
        }
        if (!any && before + leastBusyOverRows(sub, u, v, config.samples) + behind >= best)
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
      if (stage.before + longest + stage.behind >= best * (1 - kSlack))
        return;
      if (at == members.size()) {
        if (left == 0)
          result.push_back({stage.before + longest + stage.behind, shares});
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
  double card = INFINITY;      ///< least seconds per byte of a card
  std::vector<double> perByte; ///< by pair of devices
  std::vector<double> moved, leastBusyOf;
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

/// Simulates a layout under several schedules, and the best of them under all rules of owners (all under all where memory lacks).
Candidate bestSchedule(SearchContext &context, LayoutTimer &simulation, const std::vector<step::Schedule> &schedules, Layout layout) {
  Candidate best;
  best.score = INFINITY;
  if (layout.pipelines.empty())
    return best;
  bool shared = layout.pipelines.size() > 1, lacks = false; // shared: owners can be chosen
  for (const Stage &stage : layout.pipelines.front().stages)
    shared |= stage.members.size() > 1;
  auto weigh = [&](const step::Schedule &schedule, StateRule rule) {
    layout.schedule = schedule;
    layout.state = rule;
    const LayoutTimer::Result &result = simulation.run(layout);
    if (!result.ran)
      return;
    lacks |= result.excess > 0;
    double score = context.scoreOf(layout, result.step, context.missingMemory(result.memory));
    if (score < best.score) {
      best.layout = layout;
      best.score = score;
      best.step = result.step;
      best.excess = result.excess;
    }
  };
  for (const step::Schedule &schedule : schedules)
    weigh(schedule, StateRule::Proportional);
  if (!shared || !(best.score < INFINITY))
    return best;
  const step::Schedule leading = best.layout.schedule;
  for (StateRule rule : {StateRule::Equal, StateRule::FreeMemory}) {
    if (!lacks || rule == StateRule::Equal)
      weigh(leading, rule);
    else
      for (const step::Schedule &schedule : schedules)
        weigh(schedule, rule);
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
      context.parallel(end - at,
                       [&](size_t worker, size_t i) { batch[i] = bestSchedule(context, context.timer(worker), schedules, layout(at + i)); });
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
    std::map<std::pair<uint32_t, int64_t>, double> cutOff;
    auto bestOf = [&](uint32_t mask, int64_t samples) -> const std::vector<Config> & {
      auto [it, isNew] = known.try_emplace({mask, samples});
      if (isNew) {
        exact.pipelines(mask, samples, it->second);
        std::stable_sort(it->second.begin(), it->second.end(), [](const Config &a, const Config &b) { return a.bound < b.bound; });
        if (it->second.size() > kPaired) {
          cutOff[{mask, samples}] = it->second[kPaired].bound;
          it->second.resize(kPaired);
        }
      }
      return it->second;
    };
    struct Pair {
      double bound;
      const Config *a, *b;
      Entry ones, others;
    };
    double open = INFINITY; // least bound of what is not gone through
    std::vector<Pair> pairs;
    // All shares of both, the most promising first.
    auto addPair = [&](const Config &a, const Config &b) {
      double bound = exact.pairBound(a, b);
      if (bound >= exact.bestStep() * (1 - kSlack))
        return;
      std::vector<Entry> of[2];
      for (int side : {0, 1}) {
        exact.entriesOf({side ? b : a}, 0, SIZE_MAX, of[side]);
        std::stable_sort(of[side].begin(), of[side].end(), [](const Entry &x, const Entry &y) { return x.bound < y.bound; });
        if (of[side].size() > kShares) {
          open = std::min(open, std::max(bound, of[side][kShares].bound));
          of[side].resize(kShares);
        }
      }
      for (const Entry &x : of[0])
        for (const Entry &y : of[1])
          if (pairs.size() < kMostPairs)
            pairs.push_back({std::max({bound, x.bound, y.bound}), &a, &b, x, y});
          else
            open = std::min(open, std::max({bound, x.bound, y.bound}));
    };
    for (uint32_t mask = 1; mask <= all; ++mask) {
      if (!exact.canonical(mask, all))
        continue;
      for (uint32_t other = all & ~mask; other; other = (other - 1) & all & ~mask) {
        if (!exact.canonical(other, all & ~mask))
          continue;
        for (int64_t samples = 1; samples < context.problem.batch; ++samples) {
          const int64_t rest = context.problem.batch - samples;
          if (exact.leastBusyOverRows(mask, 0, context.model.units(), samples) >= exact.bestStep() ||
              exact.leastBusyOverRows(other, 0, context.model.units(), rest) >= exact.bestStep())
            continue;
          const std::vector<Config> &ones = bestOf(mask, samples), &others = bestOf(other, rest);
          for (const Config &a : ones)
            for (const Config &b : others)
              addPair(a, b);
          for (const auto &[key, list] : {std::pair(std::pair(mask, samples), &others), std::pair(std::pair(other, rest), &ones)})
            if (auto it = cutOff.find(key); it != cutOff.end() && !list->empty())
              open = std::min(open, std::max(it->second, list->front().bound));
        }
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair &x, const Pair &y) { return x.bound < y.bound; });
    bool through = simulate(
        pairs.size(), most / 2, [&](size_t i) { return pairs[i].bound; },
        [&](size_t i) {
          Layout layout;
          layout.pipelines.push_back(exact.pipelineOf(*pairs[i].a, pairs[i].ones));
          layout.pipelines.push_back(exact.pipelineOf(*pairs[i].b, pairs[i].others));
          return layout;
        });
    proven = proven && through && open >= exact.bestStep() * (1 - kSlack);
  }
  std::vector<Candidate> winners(pool.begin(), pool.begin() + static_cast<long>(std::min<size_t>(pool.size(), 32)));
  context.parallel(winners.size(),
                   [&](size_t worker, size_t i) { winners[i] = bestSchedule(context, context.timer(worker), every, winners[i].layout); });
  for (Candidate &candidate : winners)
    if (candidate.score < INFINITY) {
      candidate.id = context.nextId();
      pool.push_back(std::move(candidate));
    }
  std::sort(pool.begin(), pool.end(), better);
  return proven && exact.complete;
}
