// What a search ends with: the full expansion of the best few decides.

#include "Candidates.h"

#include "zorse/Planning/Baselines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace zorse;
using namespace zorse::planning;

namespace {

std::string show(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
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

bool zorse::planning::judge(SearchContext &context, const std::vector<Candidate> &pool, double expansions, SearchResult &result, std::string &error) {
  const Problem &problem = context.problem;
  const SearchOptions &options = context.options;
  const bool small = isSmall(context);
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
  auto expand = [&](const Candidate &candidate) {
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
    expand(candidate);
  }
  constexpr double kRivals = 1200; // expansions affordable where theirs, at most 24 a planner, are few
  const std::vector<Candidate> others = context.devices.size() <= 16 && !options.candidates && expansions >= kRivals ? rivals(context) : std::vector<Candidate>();
  for (const Candidate &candidate : others)
    expand(candidate);
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
      return false;
    }
    if (options.mostPrice > 0 && result.price > options.mostPrice) {
      error = "no plan costs " + show(options.mostPrice) + " an hour or less; the best that was found costs " + show(result.price);
      return false;
    }
    error.clear();
    return true;
  }
  if (!closest) {
    error = "no plan was found" + (error.empty() ? "" : ": " + error);
    return false;
  }
  error = explainMemory(context, closest->layout, closestEvaluation);
  return false;
}
