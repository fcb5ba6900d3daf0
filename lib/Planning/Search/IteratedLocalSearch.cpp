// Descents for problems with strategies that are quick to simulate. A descent tries all small
// changes of a strategy, kind by kind, until none helps. Then a few random moves change the
// strategy, and it descends again. Walks start from strategies of different structure and are
// independent.

#include "Neighborhood.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

using namespace zorse;
using namespace zorse::planning;

namespace {

class IteratedLocalSearch {
public:
  IteratedLocalSearch(SearchContext &context, const Candidate &start,
                      const std::vector<step::Schedule> &schedules, uint64_t seed)
      : best(start), context(context), now(start), seed(seed),
        neighborhood(context, schedules, [this](Candidate &&candidate) {
          evaluate(candidate);
          if (candidate.score < next.score)
            next = std::move(candidate);
          return !isOver();
        }) {}

  /// Continues with a worker's solver and timer: `descents` more descents (the first from the
  /// unchanged start) and at most `simulations` simulations.
  void run(size_t worker, uint64_t descents, uint32_t simulations) {
    place = worker;
    max = used + simulations;
    for (uint64_t i = 0; i < descents && used < max; ++i, ++done) {
      if (done > 0 && !kick())
        continue;
      hillClimb();
      if (now.score < best.score)
        best = now;
    }
  }

  uint32_t simulated() const { return used; }
  Candidate best;

private:
  /// Makes random moves from the best strategy, sometimes from the result of the last descent.
  bool kick() {
    Candidate from = done % 4 == 3 ? now : best, to;
    bool moved = false;
    for (uint64_t step = 0; step < 1 + done % 3; ++step)
      for (uint64_t attempt = 0; attempt < context.effort().attempts; ++attempt)
        if (mutateAlike(context, place, from,
                        seed * 1000003 + done * 8191 + step * 131 + attempt * 7919, to)) {
          from = to;
          moved = true;
          break;
        }
    if (moved) {
      now = from;
      evaluate(now);
    }
    return moved;
  }

  void evaluate(Candidate &candidate) {
    ++used;
    if (asAsked(candidate.strategy))
      context.evaluate(place, candidate);
    else
      candidate.score = candidate.step = INFINITY;
  }

  bool asAsked(const Strategy &strategy) const {
    for (const Pipeline &pipeline : strategy.pipelines)
      for (const Stage &stage : pipeline.stages)
        for (size_t i = 0; i < stage.members.size(); ++i)
          for (size_t j = 0; j < i; ++j)
            if (stage.members[i].device == stage.members[j].device)
              return false; // moves of devices that have several stages
    if (context.options.pipelines && strategy.pipelines.size() != context.options.pipelines)
      return false;
    return context.options.stages == 0 ||
           std::all_of(
               strategy.pipelines.begin(), strategy.pipelines.end(),
               [&](const Pipeline &p) { return p.stages.size() == context.options.stages; });
  }

  /// For few devices the best neighbor is used, for many the first better one.
  bool isOver() const { return used >= max || (!context.effort().bestNeighbour && isBetter()); }
  bool isBetter() const { return next.score < now.score * (1 - 1e-9); }

  void hillClimb() {
    const size_t kinds = neighborhood.kinds();
    size_t failed = 0;
    for (size_t kind = 0; failed < kinds && used < max; kind = (kind + 1) % kinds) {
      bool moved = false;
      for (;;) {
        next = Candidate();
        next.score = INFINITY;
        neighborhood.visit(static_cast<Neighborhood::Kind>(kind), place, now);
        if (!isBetter())
          break;
        now = next;
        moved = true;
      }
      failed = moved ? 0 : failed + 1;
    }
  }

  SearchContext &context;
  size_t place = 0; ///< of the worker
  Candidate now, next;
  uint64_t seed, done = 0;
  uint32_t max = 0, used = 0;
  Neighborhood neighborhood;
};

size_t stagesOf(const Strategy &strategy) {
  size_t max = 0;
  for (const Pipeline &pipeline : strategy.pipelines)
    max = std::max(max, pipeline.stages.size());
  return max;
}

} // namespace

void zorse::planning::hillClimb(SearchContext &context, std::vector<Candidate> &pool,
                                uint32_t simulations) {
  const SearchEffort effort = context.effort();
  const std::vector<step::Schedule> schedules = scheduleChoices(context, true);
  std::vector<std::unique_ptr<IteratedLocalSearch>> walks;
  auto start = [&](const Candidate &candidate) {
    walks.push_back(std::make_unique<IteratedLocalSearch>(
        context, candidate, schedules, context.options.seed * 31 + walks.size()));
  };
  // Starts from the best strategies of different structure, with whole and with shared units. Their
  // results decide which walks continue.
  std::vector<std::string> structures;
  std::vector<size_t> stages;
  size_t ofKind[2] = {};
  for (const Candidate &candidate : pool) {
    const bool shares = candidate.strategy.boundaryDenominator > 1;
    if (!(candidate.score < INFINITY) ||
        ofKind[shares] >= (shares ? effort.sharingStarts : effort.hillClimbStarts))
      continue;
    std::string structure = structureOf(context.model, candidate.strategy) +
                            (shares ? "shared" : "");
    if (std::find(structures.begin(), structures.end(), structure) != structures.end())
      continue;
    structures.push_back(std::move(structure));
    ++ofKind[shares];
    start(candidate);
    if (!shares)
      stages.push_back(stagesOf(candidate.strategy));
  }
  // And from the best strategy of every number of stages that is not among them.
  size_t others = 0;
  for (const Candidate &candidate : pool)
    if (size_t count = stagesOf(candidate.strategy);
        others < effort.stagesStarts && candidate.score < INFINITY &&
        candidate.strategy.boundaryDenominator == 1 &&
        std::find(stages.begin(), stages.end(), count) == stages.end()) {
      stages.push_back(count);
      ++others;
      start(candidate);
    }
  uint32_t left = simulations;
  double best = pool.empty() ? INFINITY : pool.front().score;
  for (size_t round = 0, stale = 0;
       !walks.empty() && left >= walks.size() && stale <= effort.descentPatience; ++round) {
    std::vector<uint32_t> before;
    for (const auto &search : walks)
      before.push_back(search->simulated());
    const uint32_t each = left / static_cast<uint32_t>(walks.size());
    context.parallel(walks.size(), [&](size_t worker, size_t i) {
      walks[i]->run(worker, round == 0 ? 1 : effort.kicks, each);
    });
    uint32_t used = 0;
    double now = best;
    for (size_t i = 0; i < walks.size(); ++i) {
      used += walks[i]->simulated() - before[i];
      now = std::min(now, walks[i]->best.score);
    }
    context.count(used);
    left -= std::min(left, std::max(used, static_cast<uint32_t>(walks.size()))); // also ends if no
                                                                                 // walk can move
    stale = now < best * (1 - 1e-9) ? 0 : stale + 1;
    best = now;
    if (round == 0 || walks.size() > effort.keptStarts) {
      for (auto &search : walks) {
        search->best.id = context.nextId();
        pool.push_back(search->best);
      }
      std::stable_sort(walks.begin(), walks.end(),
                       [](const auto &a, const auto &b) { return better(a->best, b->best); });
      while (walks.size() > effort.keptStarts)
        walks.pop_back();
    }
  }
  for (auto &search : walks) {
    search->best.id = context.nextId();
    pool.push_back(search->best);
  }
  std::sort(pool.begin(), pool.end(), better);
}
