// Walks: moves from several initial strategies; the worse walks are dropped one at a time.

#include "Candidates.h"

#include <algorithm>
#include <cmath>
#include <string>

using namespace zorse;
using namespace zorse::planning;

Move AdaptiveMoveSelection::pick(SplitMix64 &random, bool parts) const {
  constexpr double base[2][kMoves] = {{14, 8, 12, 5, 0, 8, 47, 3, 3},
                                      {18, 4, 12, 5, 4, 4, 47, 3, 3}};
  // Rates of improvement as if kBefore moves had been made before, with the mean's success rate.
  constexpr double kBefore = 40, kMax = 5;
  double made = kBefore, good = 0.5;
  for (size_t m = 0; m < kMoves; ++m) {
    made += tries[m];
    good += improvements[m];
  }
  const double mean = good / made;
  double shares[kMoves], sum = 0;
  for (size_t m = 0; m < kMoves; ++m) {
    const double rate = (improvements[m] + kBefore * mean) / (tries[m] + kBefore);
    shares[m] = base[parts][m] * std::clamp(rate / mean, 1 / kMax, kMax);
    sum += shares[m];
  }
  double at = static_cast<double>(random.below(1 << 20)) / (1 << 20) * sum;
  for (size_t m = 0; m + 1 < kMoves; ++m)
    if ((at -= shares[m]) < 0)
      return static_cast<Move>(m);
  return Move::Pipelines;
}

std::string zorse::planning::structureOf(const StageModel &model, const Strategy &strategy) {
  std::string text;
  for (const Pipeline &pipeline : strategy.pipelines) {
    for (const Stage &stage : pipeline.stages) {
      std::vector<uint32_t> counts(model.deviceTypes(), 0);
      for (const step::StageDevice &member : stage.members)
        ++counts[model.deviceTypeOf(member.device)];
      for (uint32_t count : counts)
        text += std::to_string(count) + ",";
      text += ";";
    }
    text += "|";
  }
  return text;
}

namespace {

/// A walk from one initial strategy.
struct SearchStart {
  Candidate current, best;
};

/// Walks from several initial strategies of different structure. Half of them are dropped after a
/// quarter of the budget, and again after half of it.
class LocalSearch {
public:
  LocalSearch(SearchContext &context, std::vector<Candidate> &pool) : context(context), pool(pool) {
    std::vector<std::string> structures;
    for (const Candidate &candidate : pool) {
      if (starts.size() >= max || !(candidate.score < INFINITY))
        break;
      std::string structure = structureOf(context.model, candidate.strategy);
      if (std::find(structures.begin(), structures.end(), structure) != structures.end())
        continue;
      structures.push_back(structure);
      starts.push_back({candidate, candidate});
    }
  }

  void run() {
    if (starts.empty())
      return;
    size_t stale = 0;
    double best = starts.front().best.score;
    for (uint64_t round = 0; !context.budgetExhausted() && stale < effort.patience; ++round) {
      const double progress = static_cast<double>(context.tried() - begin) / budget;
      if (progress > 0.1 &&
          std::all_of(starts.begin(), starts.end(),
                      [&](const SearchStart &start) { return context.isHopeless(start.best); }))
        break;
      giveUpWorst(progress);
      makeMoves(round);
      if (moved.empty()) {
        ++stale;
        continue;
      }
      context.simulate(moved);
      takeMoves(progress);
      double now = best;
      for (const SearchStart &start : starts)
        now = std::min(now, start.best.score);
      stale = now < best * (1 - 1e-6) ? 0 : stale + 1;
      best = now;
    }
    for (const SearchStart &start : starts)
      pool.push_back(start.best);
    std::sort(pool.begin(), pool.end(), better);
  }

private:
  bool asAsked(const Candidate &c) const {
    return context.options.stages == 0 ||
           std::all_of(
               c.strategy.pipelines.begin(), c.strategy.pipelines.end(),
               [&](const Pipeline &p) { return p.stages.size() == context.options.stages; });
  }

  void giveUpWorst(double progress) {
    size_t keep = std::max<size_t>(1, progress < 0.25  ? max
                                      : progress < 0.5 ? max / 2
                                      : progress < 0.8 ? max / 4
                                                       : 1);
    if (starts.size() <= keep)
      return;
    std::sort(starts.begin(), starts.end(),
              [](const SearchStart &a, const SearchStart &b) { return better(a.best, b.best); });
    for (size_t i = keep; i < starts.size(); ++i)
      pool.push_back(starts[i].best);
    starts.resize(keep);
    for (SearchStart &start : starts)
      start.current = start.best;
  }

  void makeMoves(uint64_t round) {
    const size_t count = std::min<size_t>(effort.movesAtOnce, context.budget - context.tried());
    std::vector<Candidate> batch(count);
    std::vector<uint8_t> made(count, 0);
    context.parallel(count, [&](size_t worker, size_t i) {
      const SearchStart &start = starts[i % starts.size()];
      // Most moves start from the walk's current strategy, some from its best one.
      const Candidate &from = (i / starts.size()) % 4 == 3 ? start.best : start.current;
      for (uint64_t attempt = 0; attempt < effort.attempts && !made[i]; ++attempt)
        made[i] = mutate(context, worker, from,
                         context.options.seed * 1000003 + round * 8191 + i * 131 + attempt * 7919,
                         batch[i]) &&
                  asAsked(batch[i]);
    });
    moved.clear();
    islandOf.clear();
    for (size_t i = 0; i < count; ++i)
      if (made[i]) {
        batch[i].id = context.nextId();
        moved.push_back(std::move(batch[i]));
        islandOf.push_back(i % starts.size());
      }
  }

  /// Each walk continues with the best of its moves, at first even if that is slightly worse.
  void takeMoves(double progress) {
    double tolerance = 1 + 0.006 * std::max(0.0, 0.7 - progress);
    std::vector<const Candidate *> next(starts.size(), nullptr);
    for (size_t i = 0; i < moved.size(); ++i) {
      const Candidate *&to = next[islandOf[i]];
      if (moved[i].score != starts[islandOf[i]].current.score && (!to || better(moved[i], *to)))
        to = &moved[i];
    }
    for (size_t i = 0; i < moved.size(); ++i)
      context.moves.add(moved[i].move, better(moved[i], starts[islandOf[i]].best));
    for (size_t k = 0; k < starts.size(); ++k)
      if (next[k] && next[k]->score < starts[k].current.score * tolerance) {
        starts[k].current = *next[k];
        if (better(starts[k].current, starts[k].best))
          starts[k].best = starts[k].current;
      }
  }

  SearchContext &context;
  std::vector<Candidate> &pool;
  const uint32_t begin = context.tried(), budget = context.budget - begin;
  const SearchEffort effort = context.effort();
  const size_t max = effort.walksFor(budget);
  std::vector<SearchStart> starts;
  std::vector<Candidate> moved; ///< candidates of this round
  std::vector<size_t> islandOf; ///< island of each of them
};

} // namespace

void zorse::planning::refine(SearchContext &context, std::vector<Candidate> &pool) {
  if (!pool.empty() && !context.budgetExhausted())
    LocalSearch(context, pool).run();
}
