#include "zorse/Planning/TensorParallel.h"

#include "Teams.h"

#include "../Search/Candidates.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Returns rows per second of every device for the whole model.
std::vector<double> speedsOf(const Problem &problem) {
  std::vector<double> speeds;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d) {
    double seconds = 0;
    for (int32_t u = 0; u < problem.summary.units_size(); ++u)
      for (step::UnitTask task : {step::UnitTask::Forward, step::UnitTask::Backward})
        seconds += problem.costs.unit(d, u, task, 1);
    speeds.push_back(1 / seconds);
  }
  return speeds;
}

struct CostedGrouping {
  Grouping grouping;
  CostModel costs; ///< of its teams
  double estimate; ///< score of a short search
};

class GroupSearch {
public:
  GroupSearch(const Problem &problem, const SearchOptions &options, DivisibleModel &model)
      : problem(problem), options(options), model(model) {}

  /// Computes the costs of a grouping and estimates its score, in about a second.
  Result<CostedGrouping> prepare(Grouping grouping) {
    for (Team &team : grouping.teams)
      if (team.isGroup()) {
        Result<const CostedDivision *> division = divideAll(team.shares);
        if (division.failed())
          return userError(division.message());
        team.division = *division;
      }
    CostModel costs = costsOfTeams(problem.costs, grouping);
    const Cluster cluster = clusterOfTeams(problem.cluster, grouping, 1);
    const Problem teams = problemOf(cluster, costs);
    const double estimate = estimateOf(teams, ofTeams(/*ranks=*/true));
    return CostedGrouping{std::move(grouping), std::move(costs), estimate};
  }

  /// Returns the score of a short search; infinity if it finds no plan that fits.
  static double estimateOf(const Problem &problem, const SearchOptions &options) {
    return shortSearch(problem, options).value_or(kNone);
  }

  /// Searches with one grouping; keeps the result if it is the best so far.
  /// \param ranks  with a small budget
  /// \returns seconds of a step; infinity: no plan fits
  Result<double> run(const CostedGrouping &costed, bool ranks) {
    const SearchOptions own = ofTeams(ranks);
    const Grouping &grouping = costed.grouping;
    // A device of a group also keeps values that are whole, so the plan may need more memory than
    // the search expects.
    double memory = 1;
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
      const Cluster cluster = clusterOfTeams(problem.cluster, grouping, memory);
      Result<SearchResult> found = searchPlan(problemOf(cluster, costed.costs), own);
      if (found.failed())
        return userError(found.message());
      found->plan = planOfDevices(problem, found->plan, grouping);
      double step = 0;
      const Result<double> needed = evaluate(std::move(*found), step);
      if (needed.failed())
        return needed.error();
      if (*needed <= 1)
        return step;
      memory /= *needed * 1.02;
    }
    return kNone;
  }

  static constexpr double kNone = std::numeric_limits<double>::infinity();
  GroupedResult result;
  bool any = false;   ///< `result` has a plan
  uint32_t tried = 0; ///< simulated candidates

  bool better(const SearchResult &a, const SearchResult &b) const {
    if (options.objective == Objective::CostPerSample)
      return a.evaluation.step * a.price < b.evaluation.step * b.price;
    return a.evaluation.step < b.evaluation.step;
  }

private:
  SearchOptions ofTeams(bool ranks) const {
    SearchOptions own = options;
    own.ranks = ranks;
    own.excluded.clear();
    own.memoryHints = false;
    return own;
  }
  Problem problemOf(const Cluster &teams, const CostModel &costs) const {
    return problem.of(problem.summary, nullptr, teams, costs);
  }

  Result<CostedDivision> divide(const std::vector<UnitGroup> &groups) {
    Result<DividedModel> made = model.divide(groups);
    if (made.failed())
      return made.error();
    Result<CostModel> costs =
        CostModel::make(made->summary, problem.cluster, problem.costs.profile(), {});
    if (costs.failed())
      return costs.error();
    return CostedDivision{std::move(*made), std::move(*costs)};
  }

  /// Returns the model with all units divided by shares. It lives as long as the search.
  Result<const CostedDivision *> divideAll(const std::vector<double> &shares) {
    std::unique_ptr<CostedDivision> &known = divisions[shares];
    if (known)
      return known.get();
    UnitGroup group{"tp", shares, {}};
    for (int u = 0; u < problem.summary.units_size(); ++u)
      group.units.push_back(static_cast<uint32_t>(u));
    Result<CostedDivision> made = divide({group});
    if (made.failed())
      return made.error();
    known = std::make_unique<CostedDivision>(std::move(*made));
    return known.get();
  }

  /// Evaluates a plan of devices by its full expansion, and keeps it if it fits and is the best.
  /// Returns the memory that the fullest device needs, relative to what it has.
  double neededBy(const Evaluation &evaluation) const {
    double needed = 0;
    for (size_t d = 0; d < problem.cluster.devices.size(); ++d)
      if (const uint64_t capacity = problem.cluster.devices[d].capacity())
        needed = std::max(needed, double(evaluation.memory[d]) / double(capacity));
    return needed;
  }

  /// \param step  receives its seconds
  /// \returns the memory that the fullest device needs, relative to what it has
  Result<double> evaluate(SearchResult found, double &step) {
    Result<CostedDivision> divided = divide(unitGroupsOf(found.plan));
    if (divided.failed())
      return divided.error();
    const std::optional<bundle::FunctionLibrary> &functions = divided->model.functions;
    const Problem whole = problem.of(divided->model.summary, functions ? &*functions : nullptr,
                                     problem.cluster, divided->costs);
    tried += found.tried;
    // Placing buffers takes most of the time, and a plan needs no less memory than its live bytes.
    Result<Evaluation> evaluation = planning::estimate(whole, found.plan);
    if (!evaluation.failed() && neededBy(*evaluation) <= 1)
      evaluation = planning::evaluate(whole, found.plan);
    if (evaluation.failed())
      return evaluation.error();
    const double needed = neededBy(*evaluation);
    found.evaluation = std::move(*evaluation);
    step = found.evaluation.step;
    if (found.evaluation.shortfallBytes > 0)
      return std::max(needed, 1.01);
    // The expansion may be slower than the search expected.
    if (double(problem.batch) / step < options.minThroughput)
      return needed;
    if (!any || better(found, result.best)) {
      found.strategy = Strategy();
      result.best = std::move(found);
      result.model = std::make_unique<DividedModel>(std::move(divided->model));
      any = true;
    }
    return needed;
  }

  const Problem &problem;
  const SearchOptions &options;
  DivisibleModel &model;
  std::map<std::vector<double>, std::unique_ptr<CostedDivision>> divisions; ///< by shares
};

} // namespace

std::vector<UnitGroup> planning::unitGroupsOf(const step::Plan &plan) {
  std::vector<std::set<uint32_t>> units(plan.groups.size());
  for (const step::Cell &cell : plan.cells)
    for (int32_t u = cell.unitBegin; cell.group >= 0 && u < cell.unitEnd; ++u)
      units[static_cast<size_t>(cell.group)].insert(static_cast<uint32_t>(u));
  std::vector<UnitGroup> groups;
  groups.reserve(plan.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g)
    groups.push_back(
        {plan.groups[g].name, plan.groups[g].shares, {units[g].begin(), units[g].end()}});
  return groups;
}

/// Devices of a group update parts of parameters.
static Status checkUpdates(const Problem &problem) {
  if (std::any_of(problem.summary.update_rules().begin(), problem.summary.update_rules().end(),
                  [](const bundle::UpdateRule &rule) { return rule.block_size() > 0; }))
    return userError("--tensor-parallel-size: devices of a group have parts of parameters, and "
                     "--optimizer=" +
                     std::string(infoOf(problem.summary.training().optimizer()).name) +
                     " updates whole blocks of them; plan with --tensor-parallel-size=1, or choose "
                     "another optimizer");
  return Status::success();
}

/// Searches with groups. \param alone  the plan without groups, or why none fits
static Result<GroupedResult> searchGroups(const Problem &problem, const SearchOptions &options,
                                          uint32_t maxSize, DivisibleModel &model,
                                          Result<SearchResult> alone) {
  std::vector<uint32_t> usable;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    if (std::find(options.excluded.begin(), options.excluded.end(), d) == options.excluded.end())
      usable.push_back(d);
  GroupSearch search(problem, options, model);
  std::string failure;
  std::vector<CostedGrouping> groupings; // the best estimate first
  for (Grouping &grouping :
       makeGroupings(problem.cluster, problem.costs, usable, speedsOf(problem), maxSize)) {
    if (options.stages > grouping.teams.size())
      continue;
    Result<CostedGrouping> costed = search.prepare(std::move(grouping));
    if (costed.failed())
      failure = costed.message();
    else
      groupings.push_back(std::move(*costed));
  }
  std::stable_sort(groupings.begin(), groupings.end(),
                   [](const auto &a, const auto &b) { return a.estimate < b.estimate; });
  search.result.groupings = static_cast<uint32_t>(groupings.size());
  // Estimates err by some percent. Where they promise no gain, groups have not paid off.
  constexpr int kSearched = 2;
  constexpr double kFarBehind = 1.1;
  const double toBeat = alone.failed() ? GroupSearch::kNone
                                       : GroupSearch::estimateOf(problem, options);
  double fastest = GroupSearch::kNone;
  const CostedGrouping *best = nullptr;
  int searched = 0;
  for (const CostedGrouping &grouping : groupings) {
    if (searched == kSearched || (!alone.failed() && grouping.estimate >= toBeat))
      break;
    const Result<double> step = search.run(grouping, /*ranks=*/true);
    if (step.failed())
      failure = step.message();
    searched += !alone.failed() || search.any;
    if (!step.failed() && *step < fastest)
      std::tie(fastest, best) = std::tuple(*step, &grouping);
  }
  if (best && (alone.failed() || fastest < kFarBehind * alone->evaluation.step))
    (void)search.run(*best, /*ranks=*/false);
  if (alone.failed() && !search.any)
    return userError(alone.message() + (failure.empty() ? "" : "\nwith groups: " + failure));
  if (!alone.failed())
    search.result.stepWithout = alone->evaluation.step;
  const uint32_t tried = search.tried + (alone.failed() ? 0 : alone->tried);
  if (!alone.failed() && (!search.any || !search.better(search.result.best, *alone))) {
    search.result.best = std::move(*alone);
    search.result.model = nullptr;
  }
  search.result.best.tried = tried;
  return std::move(search.result);
}

Result<GroupedResult> planning::searchWithGroups(const Problem &problem,
                                                 const SearchOptions &options, uint32_t maxSize,
                                                 DivisibleModel &model) {
  if (Status status = checkUpdates(problem); status.failed())
    return status;
  return searchGroups(problem, options, maxSize, model, searchPlan(problem, options));
}

uint32_t planning::groupSizeThatFits(const Problem &problem, const SearchOptions &options,
                                     uint32_t maxSize, DivisibleModel &model) {
  if (checkUpdates(problem).failed())
    return 0;
  const Result<GroupedResult> found =
      searchGroups(problem, options, maxSize, model, userError("no plan fits without groups"));
  size_t largest = 0;
  if (!found.failed())
    for (const step::DeviceGroup &group : found->best.plan.groups)
      largest = std::max(largest, group.devices.size());
  return static_cast<uint32_t>(largest);
}
