// The order of a search:
//
//   seeds       devices ordered by class and site, stages cut by dynamic programme, for several assumptions; best estimates first
//   simulate    the best seeds under the most promising schedules
//   exact       small problems: branch and bound over the whole space
//   refine      moves, each with units and samples cut again
//   judge       the best few by the full expansion, which alone decides

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Tasks that the default budget simulates: about a second of two cores for 512 devices, and in proportion to the devices beyond.
constexpr double kTasks = 6e6;

double tasksOf(const Problem &problem, const Layout &layout) {
  double tasks = 0;
  for (const Pipeline &pipeline : layout.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const Member &member : stage.members)
        tasks += 5.0 * static_cast<double>((member.samples + member.rows - 1) / member.rows);
  (void)problem;
  return std::max(tasks, 1.0);
}

std::string gib(double bytes) {
  char text[40];
  if (bytes >= 1024.0 * 1024 * 1024)
    std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1024.0 * 1024 * 1024));
  else if (bytes >= 1024.0 * 1024)
    std::snprintf(text, sizeof text, "%.1f MiB", bytes / (1024.0 * 1024));
  else
    std::snprintf(text, sizeof text, "%.1f KiB", bytes / 1024);
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
  double scale = std::max(1.0, static_cast<double>(context.devices.size()) / 512);
  context.budget = options.candidates ? options.candidates : static_cast<uint32_t>(std::clamp(kTasks * scale / tasks, 24.0, 6000.0));

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
  context.simulate(pool);
  std::sort(pool.begin(), pool.end(), better);
  size_t leaders = std::min<size_t>(pool.size(), std::max<size_t>(2, context.budget / 4 / std::max<size_t>(schedules.size(), 1)));
  leaders = std::min<size_t>(leaders, 12);
  std::vector<Candidate> varied;
  for (size_t i = 0; i < leaders; ++i)
    for (size_t s = 1; s < schedules.size(); ++s) {
      Candidate candidate = pool[i];
      candidate.layout.schedule = schedules[s];
      candidate.id = context.nextId();
      varied.push_back(std::move(candidate));
    }
  context.simulate(varied);
  pool.insert(pool.end(), varied.begin(), varied.end());
  std::sort(pool.begin(), pool.end(), better);

  SearchResult result;
  if (options.stages == 0)
    refine(context, pool);
  if (small && options.exact)
    result.proven = searchExactly(context, pool);

  // The full expansion judges. What exceeds memory there is passed over; if nothing is left the closest says why.
  std::optional<Candidate> closest;
  Evaluation closestEvaluation;
  double bestScore = INFINITY;
  size_t judged = 0, most = small ? 12 : context.devices.size() > 256 ? 1 : 4;
  std::vector<double> seen;
  for (const Candidate &candidate : pool) {
    if (judged >= most && bestScore < INFINITY)
      break;
    if (judged >= most + 20 || !(candidate.score < INFINITY))
      break;
    if (std::find(seen.begin(), seen.end(), candidate.step) != seen.end())
      continue;
    seen.push_back(candidate.step);
    ++judged;
    step::Plan plan = makePlan(problem, candidate.layout);
    std::string why;
    std::optional<Evaluation> evaluation = evaluate(problem, plan, why);
    if (!evaluation) {
      error = why;
      continue;
    }
    double score = context.scoreOf(candidate.layout, evaluation->step, context.missingMemory(evaluation->memory));
    if (evaluation->excess == 0 && score < bestScore) {
      bestScore = score;
      result.layout = candidate.layout;
      result.plan = std::move(plan);
      result.evaluation = std::move(*evaluation);
      result.price = context.price(candidate.layout);
    } else if (!closest) {
      closest = candidate;
      closestEvaluation = std::move(*evaluation);
    }
  }
  result.tried = context.tried();
  if (bestScore < INFINITY) {
    error.clear();
    return result;
  }
  if (!closest) {
    error = "no plan was found" + (error.empty() ? "" : ": " + error);
    return std::nullopt;
  }
  error = "no plan fits the memory; in the one that comes closest:";
  size_t lines = 0;
  for (size_t d = 0; d < closestEvaluation.memory.size(); ++d) {
    const ClusterDevice &device = problem.cluster.devices[d];
    if (device.memory && closestEvaluation.memory[d] > device.memory && ++lines <= 8)
      error += "\ndevice '" + device.name + "' needs " + gib(static_cast<double>(closestEvaluation.memory[d])) + " of its " + gib(static_cast<double>(device.memory)) + ": " +
               std::to_string(closestEvaluation.memory[d] - device.memory) + " bytes too much";
  }
  if (lines > 8)
    error += "\n... and " + std::to_string(lines - 8) + " more devices";
  return std::nullopt;
}
