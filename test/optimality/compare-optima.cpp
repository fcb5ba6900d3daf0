// Runs the planner on the instances of a file of optima (see compute-optima) and prints its gap to
// the optimum. Also runs other planners on the same instances.
//
//     compare-optima optima.jsonl [--every=N] [--threads=N] [--verbose]
//
// Fails if the file is older than the simulator, if a plan is more than 2 % slower than the
// optimum, if the planner finds no plan although one exists, or if another planner finds a faster
// plan.
#include "Optima.h"

#include "zorse/Baselines/Baselines.h"
#include "zorse/Planning/Search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

struct Judged {
  uint64_t seed = 0;
  Kind kind = Kind::Plain;
  std::string description;
  bool stale = false, feasible = false;
  double optimum = 0;
  double found[2] = {0, 0}; ///< step times of the planner: default options; at most two rows. 0: no
                            ///< plan
  std::vector<double> others; ///< step times of the baselines; 0: no plan
};

Judged judge(uint64_t seed, const Known &known) {
  auto instance = makeInstance(seed);
  Judged r;
  r.seed = seed;
  r.kind = instance->kind;
  r.description = instance->describe();
  r.feasible = known.feasible;
  r.optimum = known.step;
  auto equal = [](double a, double b) { return std::fabs(a - b) <= 1e-9 * std::max(a, b); };
  r.stale = !equal(sampleTimes(*instance), known.sample);
  if (known.feasible) {
    Result<Evaluation> e =
        evaluate(*instance->problem, makePlan(*instance->problem, known.strategy));
    r.stale |= e.failed() || e->shortfallBytes > 0 || !equal(e->step, known.step);
  }
  for (int i = 0; i < 2; ++i) {
    SearchOptions options;
    options.maxMicroBatchSize = i > 0 ? 2 : 0;
    options.threads = 1;
    if (Result<SearchResult> result = searchPlan(*instance->problem, options); !result.failed())
      if (Result<Evaluation> e = evaluate(*instance->problem, result->plan);
          !e.failed() && e->shortfallBytes == 0)
        r.found[i] = e->step;
  }
  for (const Baseline &baseline : baselines()) {
    r.others.push_back(0);
    if (Result<Strategy> strategy = baseline.plan(*instance->problem); !strategy.failed())
      if (Result<Evaluation> e =
              evaluate(*instance->problem, makePlan(*instance->problem, *strategy));
          !e.failed() && e->shortfallBytes == 0)
        r.others.back() = e->step;
  }
  return r;
}

/// Prints one line of the table of gaps. \returns the worst gap; infinite if a plan is missing.
double summarise(const char *title, const std::vector<Judged> &results, int which, int kind) {
  int count = 0, atZero = 0, within = 0, better = 0, missing = 0;
  double worst = 0, sum = 0;
  for (const Judged &r : results) {
    if (!r.feasible || (kind >= 0 && static_cast<int>(r.kind) != kind))
      continue;
    ++count;
    if (r.found[which] <= 0) {
      ++missing;
      continue;
    }
    double gap = r.found[which] / r.optimum - 1;
    worst = std::max(worst, gap);
    sum += std::max(gap, 0.0);
    atZero += gap <= 1e-6;
    within += gap <= 0.02;
    better += gap < -1e-6;
  }
  if (count > 0)
    std::printf("%-22s %5d %8.2f %% %8.2f %% %8.1f %% %8.1f %% %8.1f %%%s\n", title, count,
                100 * worst, 100 * sum / count, 100.0 * atZero / count, 100.0 * within / count,
                100.0 * better / count,
                missing ? (", no plan: " + std::to_string(missing)).c_str() : "");
  return missing ? INFINITY : worst;
}

} // namespace

int main(int argc, char **argv) {
  uint64_t every = 1;
  unsigned threads = 2;
  bool verbose = false;
  for (int i = 2; i < argc; ++i)
    if (std::strncmp(argv[i], "--every=", 8) == 0)
      every = std::max<uint64_t>(1, std::strtoull(argv[i] + 8, nullptr, 10));
    else if (std::strncmp(argv[i], "--threads=", 10) == 0)
      threads = static_cast<unsigned>(std::atoi(argv[i] + 10));
    else if (std::strcmp(argv[i], "--verbose") == 0)
      verbose = true;
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: compare-optima optima.jsonl [--every=N] [--threads=N] [--verbose]\n");
    return 2;
  }
  std::vector<std::pair<uint64_t, Known>> all;
  size_t position = 0;
  for (auto &[seed, known] : readOptima(argv[1]))
    if (position++ % every == 0)
      all.push_back({seed, known});
  std::vector<Judged> results(all.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < std::max(1u, threads); ++t)
    pool.emplace_back([&] {
      for (size_t i; (i = next++) < all.size();)
        results[i] = judge(all[i].first, all[i].second);
    });
  for (std::thread &thread : pool)
    thread.join();

  int stale = 0, feasible = 0, unexpected = 0;
  for (const Judged &r : results) {
    stale += r.stale;
    feasible += r.feasible;
    if (verbose) {
      std::printf("%llu: %s: optimum %.6g", static_cast<unsigned long long>(r.seed),
                  r.description.c_str(), r.feasible ? r.optimum : 0.0);
      for (double f : r.found)
        std::printf(", %.6g (%+.2f %%)", f, f > 0 && r.feasible ? 100 * (f / r.optimum - 1) : 0.0);
      for (size_t b = 0; b < r.others.size(); ++b)
        std::printf(", %s %.6g", baselines()[b].name, r.others[b]);
      std::printf("\n");
    }
    if (!r.feasible && (r.found[0] > 0 || r.found[1] > 0))
      ++unexpected; // a plan outside the enumerated space: an order or a split that needs less
                    // memory
  }
  std::printf("%zu instances, %d of them with a plan that fits\n\n", results.size(), feasible);
  std::printf("%-22s %5s %10s %10s %10s %10s %10s\n", "gap to the optimum", "cases", "worst",
              "mean", "none", "<= 2 %", "better");
  double worst[2];
  const char *const titles[] = {"planner", "rows 1 or 2"};
  for (int which = 0; which < 2; ++which) {
    worst[which] = summarise(titles[which], results, which, -1);
    for (int k = 0; k < kKinds; ++k)
      summarise((std::string("    ") + nameOf(static_cast<Kind>(k))).c_str(), results, which, k);
  }
  std::printf("(better: faster than every enumerated plan, with schedules or row counts that are "
              "not enumerated%s)\n\n",
              unexpected ? ("; plans for instances without an enumerated plan: " +
                            std::to_string(unexpected))
                               .c_str()
                         : "");

  std::printf("%-22s %10s %10s %10s %10s\n", "other planners", "no plan", "median", "worst",
              "faster");
  int faster = 0;
  for (size_t b = 0; b < baselines().size(); ++b) {
    std::vector<double> ratios;
    int none = 0, own = 0;
    for (const Judged &r : results) {
      if (r.found[0] <= 0) {
        if (r.others[b] > 0)
          ++own;
        continue;
      }
      if (r.others[b] <= 0)
        ++none;
      else
        ratios.push_back(r.others[b] / r.found[0]);
    }
    std::sort(ratios.begin(), ratios.end());
    own += static_cast<int>(
        std::count_if(ratios.begin(), ratios.end(), [](double x) { return x < 1 - 1e-9; }));
    faster += own;
    if (ratios.empty())
      std::printf("%-22s %10d\n", baselines()[b].title, none);
    else
      std::printf("%-22s %10d %9.2f x %9.2f x %10d\n", baselines()[b].title, none,
                  ratios[ratios.size() / 2], ratios.back(), own);
  }
  std::printf("(step time relative to the planner's; faster: plans that are faster than the "
              "planner's)\n\n");
  if (stale > 0) {
    std::printf("FAILED: %d optima differ from this simulator: compute them again "
                "(test/optimality/README.md)\n",
                stale);
    return 1;
  }
  bool good = std::max(worst[0], worst[1]) <= 0.02 && faster == 0;
  std::printf("%s: worst gap %.2f %% of %d cases, with rows of the enumeration %.2f %% (limit 2 "
              "%%); other planners faster in %d cases (limit 0)\n",
              good ? "passed" : "FAILED", 100 * worst[0], feasible, 100 * worst[1], faster);
  return good ? 0 : 1;
}
