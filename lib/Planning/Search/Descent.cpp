// Descents for problems whose layouts are quick to simulate: all small changes of a layout are tried, kind by kind, until none helps; then it is
// shaken by a few random moves and descends again. Walks start from layouts of different structure and know nothing of each other.

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr size_t kSteepest = 16; ///< devices

class Walk {
public:
  Walk(SearchContext &context, const Candidate &start, const std::vector<step::Schedule> &schedules, uint64_t seed)
      : best(start), context(context), model(context.model), schedules(schedules), now(start), seed(seed) {}

  /// Goes on with a worker's tools: so many more descents (the first from the start as it is), at most so many simulations.
  void run(size_t worker, uint64_t descents, uint32_t simulations) {
    timer = &context.timer(worker);
    solver = &context.solver(worker);
    place = worker;
    most = used + simulations;
    for (uint64_t i = 0; i < descents && used < most; ++i, ++done) {
      if (done > 0 && !kick())
        continue;
      descend();
      if (now.score < best.score)
        best = now;
    }
  }

  uint32_t simulated() const { return used; }
  Candidate best;

private:
  /// Random moves from the best, and now and then from where the last descent ended.
  bool kick() {
    Candidate from = done % 4 == 3 ? now : best, to;
    bool moved = false;
    for (uint64_t step = 0; step < 1 + done % 3; ++step)
      for (uint64_t attempt = 0; attempt < 6; ++attempt)
        if (mutateAlike(context, place, from, seed * 1000003 + done * 8191 + step * 131 + attempt * 7919, to)) {
          from = to;
          moved = true;
          break;
        }
    if (moved) {
      now = from;
      weigh(now);
    }
    return moved;
  }

  void weigh(Candidate &candidate) {
    ++used;
    candidate.score = candidate.step = INFINITY;
    if (!asAsked(candidate.layout))
      return;
    const LayoutTimer::Result &result = timer->run(candidate.layout);
    if (!result.ran)
      return;
    candidate.step = result.step;
    candidate.excess = result.excess;
    candidate.tasks = result.tasks;
    candidate.score = context.scoreOf(candidate.layout, result.step, context.missingMemory(result.memory));
  }

  bool asAsked(const Layout &layout) const {
    for (const Pipeline &pipeline : layout.pipelines)
      for (const Stage &stage : pipeline.stages)
        for (size_t i = 0; i < stage.members.size(); ++i)
          for (size_t j = 0; j < i; ++j)
            if (stage.members[i].device == stage.members[j].device)
              return false; // moves of devices that hold several stages
    if (context.options.pipelines && layout.pipelines.size() != context.options.pipelines)
      return false;
    return context.options.stages == 0 || std::all_of(layout.pipelines.begin(), layout.pipelines.end(),
                                                      [&](const Pipeline &p) { return p.stages.size() == context.options.stages; });
  }

  /// Offers a neighbour of `now`.
  void offer(const Layout &layout) {
    if (isOver())
      return;
    Candidate candidate;
    candidate.layout = layout;
    candidate.inFlight = now.inFlight;
    weigh(candidate);
    if (candidate.score < next.score)
      next = std::move(candidate);
  }

  /// Of few devices the best of all neighbours is taken, of many the first that is better.
  bool isOver() const { return used >= most || (context.devices.size() > kSteepest && next.score < now.score * (1 - 1e-9)); }

  void descend() {
    const size_t kinds = tiny() ? 8 : 7;
    size_t failed = 0;
    for (size_t kind = 0; failed < kinds && used < most; kind = (kind + 1) % kinds) {
      bool moved = false;
      for (;;) {
        next = Candidate();
        next.score = INFINITY;
        switch (kind) {
        case 0:
          orders();
          break;
        case 1:
          shares();
          break;
        case 2:
          rows();
          break;
        case 3:
          units();
          break;
        case 4:
          devices();
          break;
        case 5:
          exchanges();
          break;
        case 6:
          structure();
          break;
        default:
          tiles();
          break;
        }
        if (!(next.score < now.score * (1 - 1e-9)))
          break;
        now = next;
        moved = true;
      }
      failed = moved ? 0 : failed + 1;
    }
  }

  void orders() {
    for (const step::Schedule &schedule : schedules) {
      Layout layout = now.layout;
      layout.schedule = schedule;
      offer(layout);
    }
    for (StateRule rule : {StateRule::Equal, StateRule::Proportional, StateRule::FreeMemory}) {
      Layout layout = now.layout;
      layout.state = rule;
      offer(layout);
    }
  }

  void shares() {
    const Layout from = now.layout;
    for (size_t p = 0; p < from.pipelines.size(); ++p)
      for (size_t s = 0; s < from.pipelines[p].stages.size(); ++s) {
        const auto &members = from.pipelines[p].stages[s].members;
        for (size_t a = 0; a < members.size(); ++a)
          for (size_t b = 0; b < members.size(); ++b)
            for (int64_t by = 1; by <= std::max<int64_t>(1, members[a].rows);
                 by = by == 1 && members[a].rows > 1 ? members[a].rows : members[a].rows + 1) {
              if (a == b || members[a].samples <= by)
                continue;
              Layout layout = from;
              auto &changed = layout.pipelines[p].stages[s].members;
              changed[a].samples -= by;
              changed[b].samples += by;
              offer(layout);
            }
      }
    // Between pipelines.
    for (size_t p = 0; p < from.pipelines.size(); ++p)
      for (size_t q = 0; q < from.pipelines.size(); ++q)
        for (int64_t by : {1, 2, 4}) {
          if (p == q || from.pipelines[p].samples <= by)
            continue;
          Layout layout = from;
          if (give(layout.pipelines[p], -by) && give(layout.pipelines[q], by))
            offer(layout);
        }
  }

  bool give(Pipeline &pipeline, int64_t by) {
    pipeline.samples += by;
    for (Stage &stage : pipeline.stages)
      if (!share(stage, pipeline.samples))
        return false;
    return true;
  }

  size_t rowsOf(const Stage &stage) const {
    const auto &choices = model.rows();
    size_t i = static_cast<size_t>(std::lower_bound(choices.begin(), choices.end(), stage.members.front().rows) - choices.begin());
    return std::min(i, choices.size() - 1);
  }

  bool share(Stage &stage, int64_t samples) {
    std::vector<uint32_t> list;
    for (const Member &member : stage.members)
      list.push_back(member.device);
    stage = makeStage(model, list, stage.unitBegin, stage.unitEnd, samples, rowsOf(stage));
    return !stage.members.empty();
  }

  void rows() {
    const Layout from = now.layout;
    for (int64_t choice : model.rows()) {
      Layout all = from;
      for (size_t p = 0; p < from.pipelines.size(); ++p)
        for (size_t s = 0; s < from.pipelines[p].stages.size(); ++s) {
          for (Member &member : all.pipelines[p].stages[s].members)
            member.rows = choice;
          if (from.pipelines[p].stages[s].members.front().rows == choice)
            continue;
          Layout layout = from;
          Stage &stage = layout.pipelines[p].stages[s];
          for (Member &member : stage.members)
            member.rows = choice;
          offer(layout);
          if (stage.members.size() > 1 && share(stage, from.pipelines[p].samples))
            offer(layout);
        }
      offer(all);
    }
  }

  void units() {
    const Layout from = now.layout;
    for (size_t p = 0; p < from.pipelines.size(); ++p)
      for (size_t s = 0; s + 1 < from.pipelines[p].stages.size(); ++s) {
        const Stage &a = from.pipelines[p].stages[s], &b = from.pipelines[p].stages[s + 1];
        int32_t begin = std::max(a.unitBegin + 1, a.unitEnd - 3), end = std::min(b.unitEnd - 1, a.unitEnd + 3);
        for (int32_t cut = begin; cut <= end; ++cut) {
          if (cut == a.unitEnd)
            continue;
          Layout layout = from;
          Stage &front = layout.pipelines[p].stages[s], &behind = layout.pipelines[p].stages[s + 1];
          front.unitEnd = behind.unitBegin = cut;
          offer(layout);
          if (front.members.size() + behind.members.size() > 2 && share(front, from.pipelines[p].samples) && share(behind, from.pipelines[p].samples))
            offer(layout);
        }
      }
  }

  struct Seat {
    uint32_t device;
    size_t pipeline, stage;
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  std::vector<Seat> seats() const {
    std::vector<Seat> list;
    std::vector<uint8_t> used(context.problem.cluster.devices.size(), 0);
    for (size_t p = 0; p < now.layout.pipelines.size(); ++p)
      for (size_t s = 0; s < now.layout.pipelines[p].stages.size(); ++s)
        for (const Member &member : now.layout.pipelines[p].stages[s].members) {
          list.push_back({member.device, p, s});
          used[member.device] = 1;
        }
    for (uint32_t d : context.devices)
      if (!used[d])
        list.push_back({d, kNowhere, 0});
    return list;
  }

  /// Devices of a pipeline by stage.
  static std::vector<Atom> groupsOf(const Pipeline &pipeline) {
    std::vector<Atom> groups;
    for (const Stage &stage : pipeline.stages) {
      groups.emplace_back();
      for (const Member &member : stage.members)
        groups.back().devices.push_back(member.device);
    }
    return groups;
  }

  static void erase(std::vector<uint32_t> &from, uint32_t device) { from.erase(std::remove(from.begin(), from.end(), device), from.end()); }

  /// The layout with other groups in its pipelines: with cuts as they are where the number of stages is the same, and cut again.
  void regroup(const std::vector<std::vector<Atom>> &groups) {
    const Layout from = now.layout;
    for (bool again : {false, true}) {
      Layout layout = from;
      bool good = true;
      for (size_t p = 0; p < layout.pipelines.size() && good; ++p)
        good = !isOver() && (again ? cut(layout.pipelines[p], groups[p], layout) : refill(layout.pipelines[p], groups[p]));
      if (good)
        offer(layout);
    }
  }

  bool refill(Pipeline &pipeline, const std::vector<Atom> &groups) {
    if (groups.size() != pipeline.stages.size())
      return false;
    for (size_t s = 0; s < groups.size(); ++s) {
      Stage &stage = pipeline.stages[s];
      std::vector<uint32_t> had;
      for (const Member &member : stage.members)
        had.push_back(member.device);
      if (had == groups[s].devices)
        continue;
      if (groups[s].devices.empty())
        return false;
      stage = makeStage(model, groups[s].devices, stage.unitBegin, stage.unitEnd, pipeline.samples, rowsOf(stage));
    }
    return true;
  }

  bool cut(Pipeline &pipeline, const std::vector<Atom> &all, const Layout &layout) {
    std::vector<Atom> groups;
    for (const Atom &atom : all)
      if (!atom.devices.empty())
        groups.push_back(atom);
    if (groups.empty() || static_cast<int32_t>(groups.size()) > model.units())
      return false;
    CutOptions options;
    options.samples = pipeline.samples;
    options.copies = static_cast<uint32_t>(layout.pipelines.size());
    options.mostAtoms = 1;
    options.mayLeaveOut = false;
    options.split = layout.schedule.splitBackward;
    options.inFlight = now.inFlight;
    Cut result = solver->solve(groups, options);
    if (result.stages.empty())
      return false;
    pipeline = makePipeline(model, groups, result, pipeline.samples);
    return true;
  }

  std::vector<std::vector<Atom>> allGroups() const {
    std::vector<std::vector<Atom>> groups;
    for (const Pipeline &pipeline : now.layout.pipelines)
      groups.push_back(groupsOf(pipeline));
    return groups;
  }

  /// Whether moving either of two devices is the same.
  bool alike(const Seat &a, const Seat &b) const {
    return a.pipeline == b.pipeline && (a.pipeline == kNowhere || a.stage == b.stage) && model.classOf(a.device) == model.classOf(b.device) &&
           model.nodeOf(a.device) == model.nodeOf(b.device);
  }

  /// One device to every other stage, out, in.
  void devices() {
    const std::vector<Seat> list = seats();
    const auto groups = allGroups();
    for (size_t i = 0; i < list.size(); ++i) {
      if (std::any_of(list.begin(), list.begin() + static_cast<long>(i), [&](const Seat &other) { return alike(other, list[i]); }))
        continue;
      const Seat &from = list[i];
      auto without = groups;
      if (from.pipeline != kNowhere) {
        erase(without[from.pipeline][from.stage].devices, from.device);
        size_t left = 0;
        for (const Atom &atom : without[from.pipeline])
          left += atom.devices.size();
        if (left == 0) {
          dissolve(from.pipeline, from.device);
          continue;
        }
        regroup(without);
        alone(without, from.device);
      } else {
        alone(without, from.device);
      }
      for (size_t p = 0; p < groups.size(); ++p)
        for (size_t s = 0; s < groups[p].size(); ++s) {
          if (p == from.pipeline && s == from.stage)
            continue;
          auto moved = without;
          moved[p][s].devices.push_back(from.device);
          regroup(moved);
        }
    }
  }

  /// A pipeline of one device goes; the device joins another one's stages in turn.
  void dissolve(size_t gone, uint32_t device) {
    if (now.layout.pipelines.size() < 2)
      return;
    for (size_t p = 0; p < now.layout.pipelines.size(); ++p) {
      if (p == gone)
        continue;
      for (size_t s = 0; s <= now.layout.pipelines[p].stages.size(); ++s) { // the last: nowhere
        Layout layout = now.layout;
        Pipeline &pipeline = layout.pipelines[p];
        if (s < pipeline.stages.size())
          pipeline.stages[s].members.push_back({device, 0, pipeline.stages[s].members.front().rows});
        if (!give(pipeline, layout.pipelines[gone].samples))
          continue;
        layout.pipelines.erase(layout.pipelines.begin() + static_cast<long>(gone));
        offer(layout);
      }
    }
  }

  /// The device as a pipeline of its own, with samples by its speed.
  void alone(const std::vector<std::vector<Atom>> &without, uint32_t device) {
    if (without.size() > 2 || context.options.pipelines == without.size())
      return;
    double rate = 0;
    for (uint32_t d : context.devices)
      rate += 1 / model.leastPerSample(model.classOf(d), 0, model.units());
    int64_t samples =
        static_cast<int64_t>(static_cast<double>(context.problem.batch) / model.leastPerSample(model.classOf(device), 0, model.units()) / rate + 0.5);
    for (size_t p = 0; p < without.size(); ++p) {
      if (samples < 1 || now.layout.pipelines[p].samples <= samples)
        continue;
      Layout layout = now.layout;
      bool good = true;
      layout.pipelines[p].samples -= samples;
      for (size_t q = 0; q < without.size() && good; ++q)
        good = cut(layout.pipelines[q], without[q], layout);
      if (!good)
        continue;
      layout.pipelines.push_back({samples, {makeStage(model, {device}, 0, model.units(), samples, 0)}});
      offer(layout);
    }
  }

  /// Two devices change places; so do neighbouring stages.
  void exchanges() {
    const std::vector<Seat> list = seats();
    const auto groups = allGroups();
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size(); ++j) {
        const Seat &a = list[i], &b = list[j];
        if ((a.pipeline == b.pipeline && (a.pipeline == kNowhere || a.stage == b.stage)) ||
            (model.classOf(a.device) == model.classOf(b.device) && model.nodeOf(a.device) == model.nodeOf(b.device)))
          continue;
        auto moved = groups;
        for (const Seat *place : {&a, &b})
          if (place->pipeline != kNowhere) {
            auto &devices = moved[place->pipeline][place->stage].devices;
            std::replace(devices.begin(), devices.end(), place->device, place == &a ? b.device : a.device);
          }
        regroup(moved);
      }
    for (size_t p = 0; p < groups.size(); ++p)
      for (size_t s = 0; s < groups[p].size(); ++s)
        for (size_t r = s + 1; r < groups[p].size(); ++r) {
          auto moved = groups;
          std::swap(moved[p][s], moved[p][r]);
          regroup(moved);
        }
  }

  /// The pipeline's groups again and again, forwards or back and forth, with equally many units each.
  void repeat(size_t p, const std::vector<Atom> &groups, size_t times, bool folded) {
    const size_t stages = groups.size() * times;
    if (groups.size() < 2 || stages > static_cast<size_t>(model.units()))
      return;
    Layout layout = now.layout;
    Pipeline &pipeline = layout.pipelines[p];
    for (size_t rows = 0; rows < model.rows().size() && model.rows()[rows] <= pipeline.samples; ++rows) {
      pipeline.stages.clear();
      for (size_t s = 0; s < stages; ++s) {
        size_t lap = s / groups.size(), place = s % groups.size();
        const Atom &group = groups[folded && lap % 2 ? groups.size() - 1 - place : place];
        auto at = [&](size_t i) { return static_cast<int32_t>(static_cast<size_t>(model.units()) * i / stages); };
        pipeline.stages.push_back(makeStage(model, group.devices, at(s), at(s + 1), pipeline.samples, rows));
      }
      for (const step::Schedule &schedule : schedules)
        if (!schedule.splitBackward && (schedule.kind != step::ScheduleKind::Timed || schedule.inFlight == 1.5)) {
          layout.schedule = schedule;
          offer(layout);
        }
    }
  }

  /// Stages joined and divided; a device as a stage of its own at every place; devices with several stages.
  void structure() {
    const auto groups = allGroups();
    for (size_t p = 0; p < groups.size(); ++p) {
      std::vector<uint32_t> all;
      for (const Atom &atom : groups[p])
        all.insert(all.end(), atom.devices.begin(), atom.devices.end());
      std::sort(all.begin(), all.end());
      if (std::adjacent_find(all.begin(), all.end()) != all.end())
        continue;
      for (size_t times : {2, 3, 4})
        for (bool folded : {false, true})
          repeat(p, groups[p], times, folded);
    }
    auto recut = [&](size_t p, const std::vector<Atom> &changed) {
      Layout layout = now.layout;
      if (!isOver() && cut(layout.pipelines[p], changed, layout))
        offer(layout);
    };
    for (size_t p = 0; p < groups.size(); ++p) {
      for (size_t s = 0; s + 1 < groups[p].size(); ++s) {
        auto joined = groups[p];
        joined[s].devices.insert(joined[s].devices.end(), joined[s + 1].devices.begin(), joined[s + 1].devices.end());
        joined.erase(joined.begin() + static_cast<long>(s) + 1);
        recut(p, joined);
        // Units as they are, with all rows: those that the cut chooses for a large stage are not always the best.
        for (size_t rows = 0; rows < model.rows().size() && model.rows()[rows] <= now.layout.pipelines[p].samples && !isOver(); ++rows) {
          Layout layout = now.layout;
          Pipeline &pipeline = layout.pipelines[p];
          const Stage &front = pipeline.stages[s], &behind = pipeline.stages[s + 1];
          Stage whole = makeStage(model, joined[s].devices, front.unitBegin, behind.unitEnd, pipeline.samples, rows);
          if (whole.members.empty())
            continue;
          pipeline.stages[s] = std::move(whole);
          pipeline.stages.erase(pipeline.stages.begin() + static_cast<long>(s) + 1);
          offer(layout);
        }
      }
      for (size_t s = 0; s < groups[p].size(); ++s) {
        const std::vector<uint32_t> &all = groups[p][s].devices;
        for (uint32_t half = 1; all.size() > 1 && all.size() <= 6 && half + 1 < 1u << all.size(); ++half) {
          Atom a, b;
          for (size_t i = 0; i < all.size(); ++i)
            (half >> i & 1 ? a : b).devices.push_back(all[i]);
          auto divided = groups[p];
          divided[s] = a;
          divided.insert(divided.begin() + static_cast<long>(s) + 1, b);
          recut(p, divided);
        }
      }
    }
    for (const Seat &place : seats())
      for (size_t p = 0; p < groups.size(); ++p) {
        if (place.pipeline != kNowhere && place.pipeline != p)
          continue;
        auto without = groups[p];
        if (place.pipeline == p)
          erase(without[place.stage].devices, place.device);
        for (size_t at = 0; at <= without.size(); ++at) {
          auto moved = without;
          moved.insert(moved.begin() + static_cast<long>(at), Atom{{place.device}});
          recut(p, moved);
        }
      }
  }

  /// Few enough pieces that samples may each go their own way.
  bool tiny() const { return context.devices.size() <= 4 && model.units() * context.problem.batch <= 16; }

  /// The pipeline with one stage on another device, two devices exchanged, a stage divided or joined to the next, or a cut moved.
  std::vector<Pipeline> variants(const Pipeline &from) const {
    std::vector<Pipeline> list;
    for (size_t s = 0; s < from.stages.size(); ++s) {
      const Stage &stage = from.stages[s];
      for (uint32_t d : context.devices) {
        Pipeline changed = from;
        changed.stages[s].members = {{d, from.samples, stage.members.front().rows}};
        list.push_back(changed);
        for (int32_t cut = stage.unitBegin + 1; cut < stage.unitEnd; ++cut)
          for (bool front : {false, true}) {
            changed = from;
            changed.stages[s].unitEnd = cut;
            changed.stages.insert(changed.stages.begin() + static_cast<long>(s) + 1, stage);
            changed.stages[s + 1].unitBegin = cut;
            changed.stages[front ? s : s + 1].members = {{d, from.samples, stage.members.front().rows}};
            list.push_back(changed);
          }
      }
      if (s + 1 == from.stages.size())
        continue;
      for (size_t kept : {s, s + 1}) {
        Pipeline changed = from;
        changed.stages[kept].unitBegin = stage.unitBegin;
        changed.stages[kept].unitEnd = from.stages[s + 1].unitEnd;
        changed.stages.erase(changed.stages.begin() + static_cast<long>(kept == s ? s + 1 : s));
        list.push_back(changed);
      }
      for (int32_t cut = stage.unitBegin + 1; cut < from.stages[s + 1].unitEnd; ++cut) {
        Pipeline changed = from;
        changed.stages[s].unitEnd = changed.stages[s + 1].unitBegin = cut;
        list.push_back(changed);
      }
    }
    for (uint32_t a : context.devices)
      for (uint32_t b : context.devices) {
        if (b <= a)
          continue;
        Pipeline changed = from;
        for (Stage &stage : changed.stages)
          for (Member &member : stage.members)
            member.device = member.device == a ? b : member.device == b ? a : member.device;
        list.push_back(changed);
      }
    return list;
  }

  /// Samples divided among pipelines that may share devices: any cuts, any devices for each.
  void tiles() {
    const Layout from = now.layout;
    for (size_t p = 0; p < from.pipelines.size(); ++p) {
      const Pipeline &pipeline = from.pipelines[p];
      for (Pipeline &changed : variants(pipeline)) {
        Layout layout = from;
        layout.pipelines[p] = std::move(changed);
        offer(layout);
      }
      for (int64_t n = 1; n < pipeline.samples; ++n) {
        Pipeline rest = pipeline, part = pipeline;
        if (!give(rest, -n) || !give(part, n - pipeline.samples))
          continue;
        Layout layout = from;
        layout.pipelines[p] = rest;
        for (Pipeline &changed : variants(part)) {
          Layout divided = layout;
          divided.pipelines.insert(divided.pipelines.begin() + static_cast<long>(p) + 1, std::move(changed));
          offer(divided);
        }
      }
      for (size_t q = 0; q < from.pipelines.size(); ++q) {
        Layout layout = from;
        if (q == p || !give(layout.pipelines[p], from.pipelines[q].samples))
          continue;
        layout.pipelines.erase(layout.pipelines.begin() + static_cast<long>(q));
        offer(layout);
      }
    }
  }

  SearchContext &context;
  const StageModel &model;
  LayoutTimer *timer = nullptr;
  size_t place = 0; ///< of the worker
  CutSolver *solver = nullptr;
  const std::vector<step::Schedule> &schedules;
  Candidate now, next;
  uint64_t seed, done = 0;
  uint32_t most = 0, used = 0;
};

size_t stagesOf(const Layout &layout) {
  size_t most = 0;
  for (const Pipeline &pipeline : layout.pipelines)
    most = std::max(most, pipeline.stages.size());
  return most;
}

} // namespace

void zorse::planning::descend(SearchContext &context, std::vector<Candidate> &pool, uint32_t simulations) {
  constexpr size_t kWalks = 8, kOthers = 4, kKept = 4;
  constexpr uint64_t kKicks = 4;  ///< of every walk in a round
  constexpr size_t kPatience = 3; ///< rounds without anything better
  const std::vector<step::Schedule> schedules = scheduleChoices(context, true);
  std::vector<std::unique_ptr<Walk>> walks;
  std::vector<std::string> structures;
  for (const Candidate &candidate : pool) {
    if (walks.size() >= kWalks || !(candidate.score < INFINITY))
      break;
    if (candidate.layout.parts > 1) // descents change whole units
      continue;
    std::string structure = structureOf(context.model, candidate.layout);
    if (std::find(structures.begin(), structures.end(), structure) != structures.end())
      continue;
    structures.push_back(std::move(structure));
    walks.push_back(std::make_unique<Walk>(context, candidate, schedules, context.options.seed * 31 + walks.size()));
  }
  // And from the best with every number of stages that is not among them.
  std::vector<size_t> stages;
  const size_t first = walks.size();
  for (size_t i = 0; i < first; ++i)
    stages.push_back(stagesOf(walks[i]->best.layout));
  for (const Candidate &candidate : pool)
    if (size_t count = stagesOf(candidate.layout); walks.size() < first + kOthers && candidate.score < INFINITY && candidate.layout.parts == 1 &&
                                                   std::find(stages.begin(), stages.end(), count) == stages.end()) {
      stages.push_back(count);
      walks.push_back(std::make_unique<Walk>(context, candidate, schedules, context.options.seed * 31 + walks.size()));
    }
  uint32_t left = simulations;
  double best = pool.empty() ? INFINITY : pool.front().score;
  for (size_t round = 0, stale = 0; !walks.empty() && left >= walks.size() && stale <= kPatience; ++round) {
    std::vector<uint32_t> before;
    for (const auto &walk : walks)
      before.push_back(walk->simulated());
    const uint32_t each = left / static_cast<uint32_t>(walks.size());
    context.parallel(walks.size(), [&](size_t worker, size_t i) { walks[i]->run(worker, round == 0 ? 1 : kKicks, each); });
    uint32_t used = 0;
    double now = best;
    for (size_t i = 0; i < walks.size(); ++i) {
      used += walks[i]->simulated() - before[i];
      now = std::min(now, walks[i]->best.score);
    }
    context.count(used);
    left -= std::min(left, std::max(used, static_cast<uint32_t>(walks.size()))); // ends also where nothing can move
    stale = now < best * (1 - 1e-9) ? 0 : stale + 1;
    best = now;
    if (round == 0 || walks.size() > kKept) {
      for (auto &walk : walks) {
        walk->best.id = context.nextId();
        pool.push_back(walk->best);
      }
      std::stable_sort(walks.begin(), walks.end(), [](const auto &a, const auto &b) { return better(a->best, b->best); });
      while (walks.size() > kKept)
        walks.pop_back();
    }
  }
  for (auto &walk : walks) {
    walk->best.id = context.nextId();
    pool.push_back(walk->best);
  }
  std::sort(pool.begin(), pool.end(), better);
}
