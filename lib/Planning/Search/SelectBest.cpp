// End of a search: the full expansion of the best candidates decides.

#include "Candidates.h"

#include "../Repair/NearPlan.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::planning;

namespace {

std::string show(double number) { return format("%.4g", number); }

/// Whether live bytes nearly fill a device, so that gaps between placed buffers decide whether the
/// plan fits. Timed schedules then reduce the samples in flight. With many devices, placing buffers
/// is slow, and only devices that already hold a single micro-batch count.
bool isTight(SearchContext &context, const Strategy &strategy, const Evaluation &evaluation) {
  const SearchEffort effort = context.effort();
  const std::vector<uint64_t> *gaps =
      effort.placesFull ? &context.simulator(0).run(strategy).fragmentationDivisor : nullptr;
  for (size_t d = 0; d < evaluation.memory.size(); ++d) {
    const uint64_t limit = context.problem.cluster.devices[d].capacity(),
                   usual = gaps ? (*gaps)[d] * effort.fragmentationDivisor /
                                      StrategySimulator::kFragmentationDivisor
                                : limit / 20;
    const bool givesWay = gaps && strategy.schedule.kind == step::ScheduleKind::SteadyState &&
                          evaluation.peakInFlightCells[d] > 1;
    if (limit && !givesWay && evaluation.memory[d] + usual > limit)
      return true;
  }
  return false;
}

/// Whether a device needs more than 110 % of its memory. No schedule and no placement of buffers
/// can correct that.
bool isFar(const Problem &problem, const Evaluation &evaluation) {
  for (size_t d = 0; d < evaluation.memory.size(); ++d)
    if (uint64_t limit = problem.cluster.devices[d].capacity();
        limit && evaluation.memory[d] > limit + limit / 10)
      return true;
  return false;
}

/// Whether some device is nearly full.
bool memoryBinds(const Problem &problem, const Evaluation &evaluation) {
  constexpr double kFull = 0.9;
  for (size_t d = 0; d < evaluation.memory.size(); ++d)
    if (const uint64_t limit = problem.cluster.devices[d].capacity();
        limit && static_cast<double>(evaluation.memory[d]) > kFull * static_cast<double>(limit))
      return true;
  return false;
}

/// Memory optimizations must save at least 2 %, because they make plans harder to read.
constexpr double kWorth = 0.98;

/// Judges candidates by the full expansion, first without placing buffers. Plans that exceed memory
/// then are dropped. If none is left, the closest one provides the error message.
class Selection {
public:
  Selection(SearchContext &context, const std::vector<Candidate> &pool)
      : context(context), pool(pool) {}

  Result<SearchResult> run() {
    expandMore(effort.judged, effort.judged + effort.judgedBesides);
    expandSingle();
    chooseBest();
    result.tried = context.tried();
    if (bestScore < INFINITY) {
      preferNear();
      easeMemory();
      if (Status status = checkLimits(); status.failed())
        return status;
      return std::move(result);
    }
    if (!closest)
      return userError("no plan was found" + (refusal.empty() ? "" : ": " + refusal));
    if (options.memoryOptimizations && !problem.memoryOptimizations.any())
      if (std::optional<SearchResult> eased =
              searchWithMemoryOptimizations(problem, options, INFINITY, closest->strategy)) {
        const uint32_t tried = result.tried;
        result = std::move(*eased);
        result.tried += tried;
        return std::move(result);
      }
    return userError(explainShortfall());
  }

private:
  struct EvaluatedPlan {
    const Candidate *candidate;
    Evaluation evaluation;
    double score;
  };

  void score(EvaluatedPlan &one) const {
    one.score = context.scoreOf(one.candidate->strategy, one.evaluation.step,
                                context.missingMemory(one.evaluation.memory));
  }

  Result<Evaluation> estimateOf(const Strategy &strategy) {
    if (!effort.judgesReplicas)
      return estimate(problem, makePlan(problem, strategy));
    if (!simulator)
      simulator.emplace(problem, 0, step::LoweringOptions().tries);
    return simulator->estimate(strategy);
  }

  void expand(const Candidate &candidate) {
    EvaluatedPlan one{&candidate, {}, 0};
    Result<Evaluation> evaluation = estimateOf(candidate.strategy);
    if (evaluation.failed()) {
      refusal = evaluation.message();
      return;
    }
    one.evaluation = std::move(*evaluation);
    score(one);
    fitting += one.evaluation.shortfallBytes == 0;
    evaluated.push_back(std::move(one));
  }

  /// Expands candidates, best first, until `enough` of them fit or `tries` are expanded.
  bool expandMore(size_t enough, size_t tries) {
    const size_t before = evaluated.size(), fittingBefore = fitting;
    for (; next != pool.end() && next->score < INFINITY && fitting - fittingBefore < enough &&
           evaluated.size() - before < tries;
         ++next) {
      if (std::find(seen.begin(), seen.end(), next->step) != seen.end())
        continue;
      seen.push_back(next->step);
      single |= isSingle(next->strategy);
      expand(*next);
    }
    return evaluated.size() > before;
  }

  /// Also expands the fastest single device, because no plan may be slower than it.
  void expandSingle() {
    for (auto it = next; it != pool.end() && !single && it->score <= 1.2 * pool.front().score; ++it)
      if (isSingle(it->strategy)) {
        single = true;
        expand(*it);
      }
  }

  /// Chooses the best plan. A plan that fits before its buffers are placed may not fit afterwards;
  /// then more candidates are tried.
  void chooseBest() {
    size_t chosen = 0;
    for (size_t round = 0; round < effort.judgeRounds; ++round) {
      std::stable_sort(
          evaluated.begin() + static_cast<long>(chosen), evaluated.end(),
          [](const EvaluatedPlan &a, const EvaluatedPlan &b) { return a.score < b.score; });
      for (; chosen < evaluated.size() && evaluated[chosen].score < bestScore; ++chosen)
        choose(evaluated[chosen]);
      chosen = evaluated.size();
      if (bestScore < INFINITY || (closest && isFar(problem, closestEvaluation)) ||
          !expandMore(1, effort.judgedMore))
        break;
    }
  }

  void choose(EvaluatedPlan &one) {
    const bool mayFit = !isFar(problem, one.evaluation);
    step::Plan plan = makePlan(problem, one.candidate->strategy);
    // If gaps use memory, fewer samples may be in flight.
    if (mayFit && (effort.placesFirst || one.evaluation.shortfallBytes > 0 ||
                   isTight(context, one.candidate->strategy, one.evaluation)))
      if (Result<Evaluation> placed = evaluate(problem, plan); !placed.failed()) {
        one.evaluation = std::move(*placed);
        score(one);
      }
    if (one.evaluation.shortfallBytes == 0) {
      if (one.score >= bestScore)
        return;
      bestScore = one.score;
      result.strategy = one.candidate->strategy;
      result.strategy.memoryOptimizations = memoryOptimizationsOf(problem, result.strategy);
      result.plan = std::move(plan);
      result.evaluation = std::move(one.evaluation);
      result.price = context.price(result.strategy);
    } else if (!closest || one.evaluation.shortfallBytes < closestEvaluation.shortfallBytes) {
      closest = one.candidate;
      closestEvaluation = std::move(one.evaluation);
    }
  }

  /// Of repairs that are nearly as fast as the best one, takes the one that moves the least state.
  void preferNear() {
    if (!options.near)
      return;
    const double max =
        std::max(bestScore, std::min(bestScore * effort.repairsWithin, context.maxScore));
    struct Alternative {
      uint64_t moved;
      Strategy strategy;
      step::Plan plan;
    };
    std::vector<Alternative> list;
    auto add = [&](const Strategy &strategy) {
      step::Plan plan = makePlan(problem, strategy);
      list.push_back({options.near->movedBytes(problem, plan), strategy, std::move(plan)});
    };
    auto nearest = [&](const Strategy &strategy, const step::Plan &plan) {
      return options.near->withNearestDevices(problem, strategy, plan, context.devices);
    };
    const uint64_t moved = options.near->movedBytes(problem, result.plan);
    std::vector<double> steps{result.evaluation.step};
    add(nearest(result.strategy, result.plan));
    for (auto c = pool.begin();
         c != pool.end() && c->score <= max && steps.size() <= effort.repairsCompared; ++c) {
      if (c->shortfallBytes > 0 || std::find(steps.begin(), steps.end(), c->step) != steps.end())
        continue;
      steps.push_back(c->step);
      add(c->strategy);
      add(nearest(c->strategy, list.back().plan));
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Alternative &a, const Alternative &b) { return a.moved < b.moved; });
    for (Alternative &one : list) {
      if (one.moved >= moved)
        break;
      Result<Evaluation> evaluation = estimateOf(one.strategy);
      if (!evaluation.failed() && isTight(context, one.strategy, *evaluation))
        evaluation = evaluate(problem, one.plan);
      if (evaluation.failed() || evaluation->shortfallBytes > 0 ||
          context.scoreOf(one.strategy, evaluation->step, 0) > max)
        continue;
      result.strategy = std::move(one.strategy);
      result.strategy.memoryOptimizations = memoryOptimizationsOf(problem, result.strategy);
      result.plan = std::move(one.plan);
      result.evaluation = std::move(*evaluation);
      result.price = context.price(result.strategy);
      return;
    }
  }

  /// If memory is nearly full, a memory optimization that saves memory may pay off in time, because
  /// more samples are in flight.
  void easeMemory() {
    if (options.memoryOptimizations && !problem.memoryOptimizations.any() &&
        effort.searchesWithOptimizations && memoryBinds(problem, result.evaluation))
      if (std::optional<SearchResult> eased = searchWithMemoryOptimizations(
              problem, options, bestScore * kWorth, result.strategy)) {
        eased->tried += result.tried;
        eased->price = context.price(eased->strategy);
        result = std::move(*eased);
      }
  }

  Status checkLimits() const {
    double rate = static_cast<double>(problem.batch) / result.evaluation.step;
    if (rate < options.minThroughput)
      return userError("no plan reaches " + show(options.minThroughput) +
                       " samples/s; the best that was found reaches " + show(rate));
    if (options.maxPrice > 0 && result.price > options.maxPrice)
      return userError("no plan costs " + show(options.maxPrice) +
                       " an hour or less; the best that was found costs " + show(result.price));
    return Status::success();
  }

  /// Explains the missing memory with the candidate that exceeds memory least, including all
  /// devices in one sequence. The best score may belong to one device with the whole model.
  std::string explainShortfall() {
    if (!options.memoryHints)
      return "no plan fits the memory of the devices";
    Strategy min = closest->strategy;
    const auto minOfPool =
        std::min_element(pool.begin(), pool.end(), [](const Candidate &a, const Candidate &b) {
          return std::pair(a.score < INFINITY ? a.shortfallBytes : UINT64_MAX, a.id) <
                 std::pair(b.score < INFINITY ? b.shortfallBytes : UINT64_MAX, b.id);
        });
    if (minOfPool != pool.end())
      takeIfLess(minOfPool->strategy, min);
    const size_t longest =
        std::min<size_t>(context.devices.size(), static_cast<size_t>(context.model.units()));
    for (size_t stages = 1; stages <= longest;
         stages = stages < longest ? std::min(2 * stages, longest) : longest + 1)
      if (std::optional<Candidate> row = proportionalPartition(context, stages)) {
        row->strategy.state = ShardSizing::ByFreeMemory;
        takeIfLess(row->strategy, min);
      }
    return explainMemory(context, min, closestEvaluation);
  }

  void takeIfLess(const Strategy &strategy, Strategy &min) {
    const StrategySimulator::Result &found = context.simulator(0).run(strategy);
    if (!found.ran || found.shortfallBytes >= closestEvaluation.shortfallBytes)
      return;
    if (Result<Evaluation> evaluation = estimate(problem, makePlan(problem, strategy));
        !evaluation.failed() && evaluation->shortfallBytes > 0 &&
        evaluation->shortfallBytes < closestEvaluation.shortfallBytes) {
      min = strategy;
      closestEvaluation = std::move(*evaluation);
    }
  }

  SearchContext &context;
  const std::vector<Candidate> &pool;
  SearchResult result;
  std::string refusal; ///< of the last plan that could not be expanded
  const Problem &problem = context.problem;
  const SearchOptions &options = context.options;
  const SearchEffort effort = context.effort();

  std::optional<StrategySimulator> simulator; ///< if replicas are simulated once
  std::vector<EvaluatedPlan> evaluated;
  std::vector<double> seen; ///< step times of all expanded candidates
  std::vector<Candidate>::const_iterator next = pool.begin();
  size_t fitting = 0;  ///< number of judged plans that fit
  bool single = false; ///< whether a judged plan uses a single device
  double bestScore = INFINITY;
  const Candidate *closest = nullptr; ///< closest of those that do not fit
  Evaluation closestEvaluation;
};

} // namespace

Result<SearchResult> zorse::planning::selectBest(SearchContext &context,
                                                 const std::vector<Candidate> &pool) {
  return Selection(context, pool).run();
}
