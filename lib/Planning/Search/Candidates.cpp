#include "Candidates.h"

#include "../Repair/NearPlan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <thread>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Penalty of a violated limit, larger than any price. The amount of the violation still counts.
constexpr double kBroken = 1000;

/// Number of pipelines on the same devices with different stage boundaries, if stages share units.
int32_t waysOf(const Problem &problem, const SearchOptions &options, int32_t max) {
  for (const Strategy &start : options.starts)
    if (start.boundaryDenominator > 1)
      return start.boundaryDenominator;
  if (options.near && options.near->strategy() && options.near->strategy()->boundaryDenominator > 1)
    return options.near->strategy()->boundaryDenominator;
  const bool timed = !options.schedule || *options.schedule == step::ScheduleKind::SteadyState;
  return timed && !options.wholeUnits && problem.batch >= 4 * max && options.stages == 0 ? max : 1;
}

} // namespace

SearchContext::SearchContext(const Problem &problem, const SearchOptions &options)
    : problem(problem), options(options), tables(problem.summary, problem.functions),
      model(problem, tables, options.maxMicroBatchSize) {
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    if (std::find(options.excluded.begin(), options.excluded.end(), d) == options.excluded.end())
      devices.push_back(d);
  const SearchEffort effort = this->effort();
  moves.adapt = effort.adaptsMoves;
  if (int32_t ways = waysOf(problem, options, effort.boundaryVariants); ways > 1)
    fractionalModel =
        std::make_unique<StageModel>(problem, tables, options.maxMicroBatchSize, ways);
  unsigned threads = options.threads ? options.threads
                                     : std::max(1u, std::thread::hardware_concurrency());
  for (unsigned t = 0; t < threads; ++t) {
    simulators.push_back(std::make_unique<StrategySimulator>(
        problem, effort.fragmentationDivisor, effort.small ? step::LoweringOptions().tries : 1));
    partitioners.push_back(std::make_unique<StagePartitioner>(model));
    if (fractionalModel)
      fractionalSolvers.push_back(std::make_unique<StagePartitioner>(*fractionalModel));
  }
}

void SearchContext::parallel(size_t count, const std::function<void(size_t, size_t)> &work) {
  size_t threads = std::min(simulators.size(), count);
  if (threads <= 1) {
    for (size_t i = 0; i < count; ++i)
      work(0, i);
    return;
  }
  std::atomic<size_t> next{0};
  auto run = [&](size_t worker) {
    for (size_t i; (i = next.fetch_add(1)) < count;)
      work(worker, i);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < threads; ++t)
    others.emplace_back(run, t);
  run(0);
  for (std::thread &thread : others)
    thread.join();
}

double zorse::planning::priceOf(const Problem &problem, const Strategy &strategy) {
  double sum = 0;
  std::vector<uint8_t> node(problem.cluster.nodes.size(), 0),
      seen(problem.cluster.devices.size(), 0);
  for (const Pipeline &pipeline : strategy.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const step::StageDevice &member : stage.members) {
        if (seen[member.device]++)
          continue;
        const ClusterDevice &device = problem.cluster.devices[member.device];
        sum += device.price;
        if (!node[device.node]++)
          sum += problem.cluster.nodes[device.node].price;
      }
  return sum;
}

double SearchContext::missingMemory(const std::vector<uint64_t> &memory) const {
  double missing = 0;
  for (size_t d = 0; d < memory.size(); ++d) {
    double limit = static_cast<double>(problem.cluster.devices[d].capacity());
    if (limit > 0 && static_cast<double>(memory[d]) > limit)
      missing += (static_cast<double>(memory[d]) - limit) / limit;
  }
  constexpr double few = SearchEffort::kMaxFewDevices;
  return missing * std::min(1.0, few / static_cast<double>(memory.size()));
}

bool SearchContext::isHopeless(const Candidate &candidate) const {
  double memory = 0;
  for (uint32_t d : devices)
    memory += static_cast<double>(problem.cluster.devices[d].capacity());
  return static_cast<double>(candidate.shortfallBytes) > memory / 10;
}

double zorse::planning::scoreOf(const Problem &problem, const SearchOptions &options,
                                const Strategy &strategy, double step, double missing) {
  double value = step, penalty = missing > 0 ? 1.02 + 2 * missing : 1;
  if (options.objective == Objective::CostPerSample || options.maxPrice > 0) {
    double perHour = priceOf(problem, strategy);
    if (options.objective == Objective::CostPerSample)
      value = step * std::max(perHour, 1e-9);
    if (options.maxPrice > 0 && perHour > options.maxPrice)
      penalty *= kBroken * perHour / options.maxPrice;
  }
  double throughput = static_cast<double>(problem.batch) / step;
  if (options.minThroughput > 0 && throughput < options.minThroughput)
    penalty *= kBroken * options.minThroughput / throughput;
  return value * penalty;
}

void SearchContext::evaluate(size_t worker, Candidate &candidate) {
  const StrategySimulator::Result &result = simulator(worker).run(candidate.strategy);
  candidate.step = result.ran ? result.step : INFINITY;
  candidate.shortfallBytes = result.shortfallBytes;
  candidate.work = result.work;
  if (fractionalModel)
    candidate.busy.assign(result.busy.begin(), result.busy.end());
  candidate.score = result.ran
                        ? scoreOf(candidate.strategy, result.step, missingMemory(result.memory))
                        : INFINITY;
}

void SearchContext::simulate(std::vector<Candidate> &batch) {
  parallel(batch.size(), [&](size_t worker, size_t i) { evaluate(worker, batch[i]); });
  triedCount += static_cast<uint32_t>(batch.size());
  if (options.progress) {
    double best = INFINITY;
    for (const Candidate &candidate : batch)
      if (candidate.shortfallBytes == 0)
        best = std::min(best, candidate.step);
    options.progress(triedCount, budget, best);
  }
}

void zorse::planning::addSimulated(SearchContext &context, std::vector<Candidate> candidates,
                                   double maxWork, std::vector<Candidate> &pool) {
  const bool limited = maxWork < INFINITY;
  const size_t most = limited ? context.effort().simulatedAtOnce : candidates.size();
  // The first batch is small: a single strategy may have more work than the limit.
  size_t atOnce = limited ? std::min<size_t>(most, 4) : most;
  constexpr double kOptimism = 1.1; // nine of ten steps are longer by more than that
  auto hopeless = [&](const Candidate &candidate) {
    return limited && !countsPrices(context.options) && !pool.empty() &&
           candidate.estimate * kOptimism > pool.front().score;
  };
  for (auto next = candidates.begin(); next != candidates.end() && maxWork > 0;) {
    std::vector<Candidate> batch;
    for (; next != candidates.end() && batch.size() < atOnce; ++next)
      if (!hopeless(*next))
        batch.push_back(std::move(*next));
    context.simulate(batch);
    double work = 1;
    for (Candidate &candidate : batch) {
      work += double(candidate.work);
      pool.push_back(std::move(candidate));
    }
    maxWork -= work;
    const double affordable = maxWork * double(std::max<size_t>(batch.size(), 1)) / work;
    atOnce = static_cast<size_t>(std::clamp(affordable, 1.0, double(std::max<size_t>(most, 1))));
    std::sort(pool.begin(), pool.end(), better);
  }
}

const std::vector<step::ScheduleKind> &zorse::planning::searchedSchedules() {
  static const std::vector<step::ScheduleKind> kinds{step::ScheduleKind::OneForwardOneBackward,
                                                     step::ScheduleKind::GPipe,
                                                     step::ScheduleKind::SteadyState};
  return kinds;
}

std::vector<step::Schedule> zorse::planning::scheduleChoices(const SearchContext &context,
                                                             bool every) {
  std::vector<step::Schedule> choices;
  auto add = [&](step::ScheduleKind kind, bool split, double inFlight, double delay) {
    if (context.options.schedule && *context.options.schedule != kind)
      return;
    if (context.options.splitBackward && *context.options.splitBackward != split)
      return;
    if (split && !context.tables.canSplit())
      return;
    step::Schedule schedule;
    schedule.kind = kind;
    schedule.splitBackward = split;
    schedule.inFlightFactor = inFlight;
    schedule.maxWeightGradDelay = delay;
    choices.push_back(schedule);
  };
  if (context.problem.memoryOptimizations.reshardAfterForward) { // other schedules have no separate
                                                                 // phases of a chunk
    for (bool split : {false, true})
      add(step::ScheduleKind::BreadthFirst, split, 1, 0);
    return choices;
  }
  // With many stages, samples wait for each other longer than the ideal times predict.
  std::vector<double> factors = every ? std::vector<double>{1, 1.5, 1.25, 2, 3}
                                      : std::vector<double>{1.5, 1, 1.25, 2, 3};
  for (bool split : {true, false})
    for (double inFlight : factors)
      add(step::ScheduleKind::SteadyState, split, inFlight, 0);
  add(step::ScheduleKind::SteadyState, true, 1, 1);
  add(step::ScheduleKind::SteadyState, true, 1.5, 3);
  add(step::ScheduleKind::OneForwardOneBackward, true, 1, 0);
  add(step::ScheduleKind::OneForwardOneBackward, false, 1, 0);
  if (every) {
    add(step::ScheduleKind::GPipe, false, 1, 0);
    add(step::ScheduleKind::GPipe, true, 1, 0);
  }
  return choices;
}
