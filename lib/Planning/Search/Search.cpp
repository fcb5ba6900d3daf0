// The order of a search:
//
//   seeds       devices ordered by class and site, stages cut by dynamic programme, for several assumptions; best estimates first
//   simulate    the best seeds under the most promising schedules
//   refine      moves, each with units and samples cut again
//   descend     few devices: all small changes of the best few layouts until none helps, again and again after random moves
//   exact       small problems: branch and bound over the whole space
//   descend     where expansions are quick: by the full expansion, from the best few
//   judge       the best few by the full expansion, which alone decides

#include "Candidates.h"

#include "zorse/Planning/Baselines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Tasks that the default budget simulates: some ten seconds of two cores for up to 256 devices, under half a second for 512 and in proportion to the devices beyond.
double taskBudget(size_t devices) { return devices <= 256 ? 8e7 : 2e6 * static_cast<double>(devices) / 512; }

double tasksOf(const Problem &problem, const Layout &layout) {
  double tasks = 0;
  for (const Pipeline &pipeline : layout.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const Member &member : stage.members)
        tasks += 5.0 * static_cast<double>((member.samples + member.rows - 1) / member.rows);
  (void)problem;
  return std::max(tasks, 1.0);
}

/// Simulations of descents for few devices, beyond the budget of the moves: about a second's.
uint32_t descents(const SearchContext &context, const Layout &layout) {
  return static_cast<uint32_t>(std::min(isSmall(context) ? 40000.0 : 20000.0, 1e7 / tasksOf(context.problem, layout)));
}

std::string show(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

bool checkOptions(const SearchContext &context, std::string &error) {
  const Problem &problem = context.problem;
  if (context.tables.units() == 0)
    error = "the model has no units";
  else if (problem.cluster.devices.empty())
    error = "the cluster has no devices";
  else if (problem.batch < 1)
    error = "batch is " + std::to_string(problem.batch) + ", expected at least 1";
  else if (context.devices.empty())
    error = "every device of the cluster is excluded; leave at least one";
  else if (context.options.stages > 0 && (context.options.stages > static_cast<uint32_t>(context.tables.units()) || context.options.stages > context.devices.size()))
    error = std::to_string(context.options.stages) + " stages are asked for; the model has " + std::to_string(context.tables.units()) + " units and the cluster " +
            std::to_string(context.devices.size()) + " devices, so at most " +
            std::to_string(std::min<size_t>(static_cast<size_t>(context.tables.units()), context.devices.size())) + " are possible";
  return error.empty();
}

/// Every device alone that is the fastest of its class: no plan may be slower than one device.
void addSingles(SearchContext &context, std::vector<Candidate> &batch) {
  for (uint32_t c = 0; c < context.model.classes(); ++c)
    for (uint32_t d : context.devices) {
      if (context.model.classOf(d) != c)
        continue;
      for (size_t r = 0; r < context.model.rows().size(); ++r) {
        Candidate candidate;
        candidate.layout.pipelines.push_back({context.problem.batch, {makeStage(context.model, {d}, 0, context.model.units(), context.problem.batch, r)}});
        candidate.id = context.nextId();
        batch.push_back(std::move(candidate));
      }
      break;
    }
}

/// What other planners would choose, where nothing is fixed: no plan may be slower than theirs.
std::vector<Candidate> rivals(SearchContext &context) {
  std::vector<Candidate> found;
  const SearchOptions &o = context.options;
  if (o.stages || o.pipelines || o.rows || o.schedule || o.splitBackward || !o.excluded.empty())
    return found;
  for (const Baseline &baseline : baselines()) {
    std::string ignored;
    if (std::optional<Layout> layout = baseline.plan(context.problem, ignored)) {
      found.emplace_back();
      found.back().layout = std::move(*layout);
      found.back().id = context.nextId();
    }
  }
  return found;
}

/// Where what is alive at once nearly fills a device, the gaps that placed buffers leave decide whether the plan fits.
bool isTight(const Problem &problem, const Evaluation &evaluation) {
  for (size_t d = 0; d < evaluation.memory.size(); ++d) {
    uint64_t limit = problem.cluster.devices[d].memory;
    if (limit && evaluation.memory[d] > limit - limit / 20)
      return true;
  }
  return false;
}

} // namespace

std::optional<SearchResult> zorse::planning::searchPlan(const Problem &problem, const SearchOptions &options, std::string &error) {
  error.clear();
  SearchContext context(problem, options);
  if (!checkOptions(context, error))
    return std::nullopt;
  std::vector<Candidate> seeds = makeSeeds(context);
  if (options.stages > 0)
    seeds.erase(std::remove_if(seeds.begin(), seeds.end(),
                               [&](const Candidate &c) {
                                 return std::any_of(c.layout.pipelines.begin(), c.layout.pipelines.end(), [&](const Pipeline &p) { return p.stages.size() != options.stages; });
                               }),
                seeds.end());
  double tasks = seeds.empty() ? 1e3 : tasksOf(problem, seeds.front().layout);
  context.budget = options.candidates ? options.candidates : static_cast<uint32_t>(std::clamp(taskBudget(context.devices.size()) / tasks, 16.0, 6000.0));

  const bool small = isSmall(context);
  std::vector<step::Schedule> schedules = scheduleChoices(context, small || context.devices.size() <= 16);
  if (schedules.empty()) {
    error = "no schedule is left to choose from: this model's backward cannot be split";
    return std::nullopt;
  }
  std::vector<Candidate> pool;
  if (options.stages <= 1 && options.pipelines <= 1) {
    addSingles(context, pool);
    for (Candidate &candidate : pool)
      candidate.layout.schedule = schedules.front();
    if (pool.size() > 64)
      pool.resize(64);
  }
  // The best estimates under the first schedules, then the best of them under all.
  size_t first = std::min<size_t>(seeds.size(), std::max<size_t>(8, context.budget / 4));
  for (size_t i = 0; i < first; ++i) {
    seeds[i].layout.schedule = schedules.front();
    pool.push_back(seeds[i]);
  }
  if (pool.empty()) {
    error = "no plan was found" + (options.stages > 0 ? " with " + std::to_string(options.stages) + " stages: in every cut a stage lacks memory, or has more devices than samples; other numbers may fit, and without --stages the "
                                                        "devices that lack memory are named"
                                                      : std::string());
    return std::nullopt;
  }
  context.simulate(pool);
  std::sort(pool.begin(), pool.end(), better);
  // The best of single devices is kept to the end.
  std::optional<Candidate> alone;
  for (const Candidate &candidate : pool)
    if (!alone && candidate.layout.pipelines.size() == 1 && candidate.layout.pipelines[0].stages.size() == 1 && candidate.layout.pipelines[0].stages[0].members.size() == 1)
      alone = candidate;
  size_t leaders = std::min<size_t>(pool.size(), std::max<size_t>(context.devices.size() > 1024 ? 1 : 2, context.budget / 4 / std::max<size_t>(schedules.size(), 1)));
  leaders = std::min<size_t>(leaders, 12);
  std::vector<Candidate> varied;
  for (size_t i = 0; i < leaders; ++i)
    for (size_t s = 1; s < schedules.size(); ++s) {
      if (pool[i].layout.parts > 1 && schedules[s].kind != step::ScheduleKind::Timed)
        continue; // other orders have one range of units per device
      Candidate candidate = pool[i];
      candidate.layout.schedule = schedules[s];
      candidate.id = context.nextId();
      varied.push_back(std::move(candidate));
    }
  context.simulate(varied);
  pool.insert(pool.end(), varied.begin(), varied.end());
  std::sort(pool.begin(), pool.end(), better);

  SearchResult result;
  refine(context, pool);
  if (context.devices.size() <= 16)
    descend(context, pool, options.candidates ? context.budget - std::min(context.budget, context.tried()) : descents(context, pool.front().layout));
  if (small && options.exact && options.stages == 0)
    result.proven = searchExactly(context, pool);

  // Few devices and samples: expansions are quick, and more than the last few can be had.
  const double expansions = 6e5 / tasksOf(problem, pool.front().layout);
  if (context.devices.size() <= 16 && !options.candidates && expansions >= 100) {
    std::vector<Candidate> found = descendFully(context, pool, static_cast<uint32_t>(std::min(expansions, 6000.0)));
    pool.insert(pool.begin(), found.begin(), found.end());
  }

  if (alone)
    pool.push_back(*alone);

  // The full expansion judges, without placing buffers first. What exceeds memory there is passed over; if nothing is left the closest says why.
  struct Judged {
    const Candidate *candidate;
    step::Plan plan;
    Evaluation evaluation;
    double score;
  };
  std::vector<Judged> judged;
  std::vector<double> seen;
  auto isSingle = [](const Candidate &c) { return c.layout.pipelines.size() == 1 && c.layout.pipelines[0].stages.size() == 1 && c.layout.pipelines[0].stages[0].members.size() == 1; };
  const size_t most = small ? 12 : context.devices.size() > 256 ? 1 : 4;
  const bool place = context.devices.size() <= 64; // affordable, whatever it shows
  size_t fitting = 0;
  bool single = false; // the fastest device alone is always judged: no plan may be slower
  auto judge = [&](const Candidate &candidate) {
    Judged one{&candidate, makePlan(problem, candidate.layout), {}, 0};
    std::string why;
    std::optional<Evaluation> evaluation = evaluate(problem, one.plan, why, /*timeOnly=*/true);
    if (!evaluation) {
      error = why;
      return;
    }
    one.evaluation = std::move(*evaluation);
    one.score = context.scoreOf(candidate.layout, one.evaluation.step, context.missingMemory(one.evaluation.memory));
    fitting += one.evaluation.excess == 0;
    judged.push_back(std::move(one));
  };
  for (const Candidate &candidate : pool) {
    if (!(candidate.score < INFINITY))
      break;
    bool alone = isSingle(candidate);
    if ((fitting >= most || judged.size() >= most + 20) && (single || !alone || candidate.score > 1.2 * pool.front().score))
      continue;
    if (std::find(seen.begin(), seen.end(), candidate.step) != seen.end())
      continue;
    seen.push_back(candidate.step);
    single |= alone;
    judge(candidate);
  }
  constexpr double kRivals = 1200; // expansions affordable where theirs, at most 24 a planner, are few
  const std::vector<Candidate> others = context.devices.size() <= 16 && !options.candidates && expansions >= kRivals ? rivals(context) : std::vector<Candidate>();
  for (const Candidate &candidate : others)
    judge(candidate);
  std::stable_sort(judged.begin(), judged.end(), [](const Judged &a, const Judged &b) { return a.score < b.score; });
  double bestScore = INFINITY;
  const Candidate *closest = nullptr;
  Evaluation closestEvaluation;
  for (Judged &one : judged) {
    if (one.score >= bestScore)
      break;
    if (place || one.evaluation.excess > 0 || isTight(problem, one.evaluation))
      if (std::optional<Evaluation> placed = evaluate(problem, one.plan, error)) { // where buffers' gaps take memory, fewer samples may be under way
        one.evaluation = std::move(*placed);
        one.score = context.scoreOf(one.candidate->layout, one.evaluation.step, context.missingMemory(one.evaluation.memory));
      }
    if (one.evaluation.excess == 0) {
      if (one.score >= bestScore)
        continue;
      bestScore = one.score;
      result.layout = one.candidate->layout;
      result.plan = std::move(one.plan);
      result.evaluation = std::move(one.evaluation);
      result.price = context.price(result.layout);
    } else if (!closest || one.evaluation.excess < closestEvaluation.excess) {
      closest = one.candidate;
      closestEvaluation = std::move(one.evaluation);
    }
  }
  result.tried = context.tried();
  if (bestScore < INFINITY) {
    double rate = static_cast<double>(problem.batch) / result.evaluation.step;
    if (rate < options.leastThroughput) {
      error = "no plan reaches " + show(options.leastThroughput) + " samples/s; the best that was found reaches " + show(rate);
      return std::nullopt;
    }
    if (options.mostPrice > 0 && result.price > options.mostPrice) {
      error = "no plan costs " + show(options.mostPrice) + " an hour or less; the best that was found costs " + show(result.price);
      return std::nullopt;
    }
    error.clear();
    return result;
  }
  if (!closest) {
    error = "no plan was found" + (error.empty() ? "" : ": " + error);
    return std::nullopt;
  }
  error = explainMemory(context, closest->layout, closestEvaluation);
  return std::nullopt;
}
