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

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Tasks that the default budget simulates: some ten seconds of two cores for up to 256 devices, under half a second for 512 and in proportion to the
/// devices beyond.
double taskBudget(size_t devices) { return devices <= 256 ? 8e7 : 8e5 * static_cast<double>(devices) / 512; }

double tasksOf(const Layout &layout) {
  double tasks = 0;
  for (const Pipeline &pipeline : layout.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const Member &member : stage.members)
        tasks += 5.0 * static_cast<double>((member.samples + member.rows - 1) / member.rows);
  return std::max(tasks, 1.0);
}

/// Of those that quick simulations make: twins are simulated once.
double simulatedTasksOf(const Problem &problem, const Layout &layout) {
  TwinFinder twins(problem);
  twins.find(layout);
  Layout simulated;
  for (size_t p = 0; p < layout.pipelines.size(); ++p)
    if (!twins.isTwin(p))
      simulated.pipelines.push_back(layout.pipelines[p]);
  return tasksOf(simulated);
}

/// Simulations of descents for few devices, beyond the budget of the moves: about a second's.
uint32_t descents(const SearchContext &context, const Layout &layout) {
  return static_cast<uint32_t>(std::min(isSmall(context) ? 40000.0 : 20000.0, 1e7 / tasksOf(layout)));
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
  else if (context.options.stages > 0 &&
           (context.options.stages > static_cast<uint32_t>(context.tables.units()) || context.options.stages > context.devices.size()))
    error = std::to_string(context.options.stages) + " stages are asked for; the model has " + std::to_string(context.tables.units()) +
            " units and the cluster " + std::to_string(context.devices.size()) + " devices, so at most " +
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
        candidate.layout.pipelines.push_back(
            {context.problem.batch, {makeStage(context.model, {d}, 0, context.model.units(), context.problem.batch, r)}});
        candidate.id = context.nextId();
        batch.push_back(std::move(candidate));
      }
      break;
    }
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
                                 return std::any_of(c.layout.pipelines.begin(), c.layout.pipelines.end(),
                                                    [&](const Pipeline &p) { return p.stages.size() != options.stages; });
                               }),
                seeds.end());
  const double tasks = seeds.empty() ? 1e3 : simulatedTasksOf(problem, seeds.front().layout);
  context.budget =
      options.candidates ? options.candidates : static_cast<uint32_t>(std::clamp(taskBudget(context.devices.size()) / tasks, 16.0, 6000.0));

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
  size_t first = std::min<size_t>(seeds.size(), std::max<size_t>(context.devices.size() > 1024 ? 6 : 8, context.budget / 4));
  for (size_t i = 0; i < first; ++i) {
    seeds[i].layout.schedule = schedules.front();
    pool.push_back(seeds[i]);
  }
  if (pool.empty() && options.stages > 0 && options.pipelines <= 1)
    if (std::optional<Candidate> plain = plainCut(context)) {
      plain->layout.schedule = schedules.front();
      plain->id = context.nextId();
      pool.push_back(std::move(*plain));
    }
  if (pool.empty()) {
    error = "no plan was found" +
            (options.stages > 0
                 ? " with " + std::to_string(options.stages) + " stages" +
                       (options.pipelines > 1 ? " in " + std::to_string(options.pipelines) + " pipelines" : "") +
                       ": in every cut a stage lacks memory, or has more devices than samples; take other numbers, or leave them to the search"
                 : std::string());
    return std::nullopt;
  }
  context.simulate(pool);
  std::sort(pool.begin(), pool.end(), better);
  // The best of single devices is kept to the end.
  std::optional<Candidate> alone;
  for (const Candidate &candidate : pool)
    if (!alone && candidate.layout.pipelines.size() == 1 && candidate.layout.pipelines[0].stages.size() == 1 &&
        candidate.layout.pipelines[0].stages[0].members.size() == 1)
      alone = candidate;
  size_t leaders = std::min<size_t>(
      pool.size(), std::max<size_t>(context.devices.size() > 1024 ? 1 : 2, context.budget / 4 / std::max<size_t>(schedules.size(), 1)));
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
  const double expansions = 6e5 / tasksOf(pool.front().layout);
  if (context.devices.size() <= 16 && !options.candidates && expansions >= 100) {
    std::vector<Candidate> found = descendFully(context, pool, static_cast<uint32_t>(std::min(expansions, 6000.0)));
    pool.insert(pool.begin(), found.begin(), found.end());
  }

  if (alone)
    pool.push_back(*alone);

  if (judge(context, pool, result, error))
    return result;
  return std::nullopt;
}
