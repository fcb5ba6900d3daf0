// Compares the planner with the best of all rectangle tilings and task orders of tiny instances
// (set 2).
//
//     compare-tilings --compute FIRST COUNT [--threads=N] > tilings.jsonl
//     compare-tilings tilings.jsonl [--every=N] [--verbose]
//
// The first form computes the optima, one JSON object per line. The second compares the planner
// with them.
//
// Fails if the file is older than the simulator, or if the planner's plan is more than 2 % slower
// than the optimum.
#include "Optima.h"
#include "Tilings.h"

#include "zorse/Planning/Search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

/// Makes an instance with two or three devices. Units x batch is at most 12, so that all tilings
/// and orders can be enumerated.
std::unique_ptr<Instance> makeTiny(uint64_t seed) {
  constexpr struct {
    int units;
    int64_t batch;
  } sizes[] = {{2, 2}, {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 2}, {3, 4}};
  Size size;
  size.devices = size.types = 3;
  size.units = sizes[seed % 7].units;
  size.batch = sizes[seed % 7].batch;
  return makeInstance(seed, size);
}

int compute(uint64_t first, uint64_t count, unsigned threads) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::vector<std::string> lines(count);
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < std::max(1u, threads); ++t)
    pool.emplace_back([&] {
      for (uint64_t i; (i = next++) < count;) {
        auto instance = makeTiny(first + i);
        Optimum layout = exhaustive(*instance->problem); // layouts are tilings: the best one is a
                                                         // good start
        TilingOptions options;
        options.known = layout.step;
        TilingOptimum tiling;
        if (layout.feasible)
          tiling = bestTiling(*instance->problem, options);
        Known known;
        known.step = tiling.feasible ? tiling.step : layout.feasible ? layout.step : 0;
        known.simulated = tiling.simulated;
        known.sample = sampleTimes(*instance);
        std::lock_guard<std::mutex> lock(mutex);
        lines[i] = writeKnown(first + i, known);
        std::fprintf(stderr,
                     "%llu: %s: layouts %.6f s, tilings %.6f s; %llu tilings, %llu assignments, "
                     "%llu orders\n",
                     static_cast<unsigned long long>(first + i), instance->describe().c_str(),
                     layout.step, known.step, static_cast<unsigned long long>(tiling.tilings),
                     static_cast<unsigned long long>(tiling.assignments),
                     static_cast<unsigned long long>(tiling.orders));
      }
    });
  for (std::thread &thread : pool)
    thread.join();
  for (const std::string &line : lines)
    std::printf("%s\n", line.c_str());
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  unsigned threads = 2;
  uint64_t every = 1;
  bool verbose = false;
  for (int i = 2; i < argc; ++i)
    if (std::strncmp(argv[i], "--threads=", 10) == 0)
      threads = static_cast<unsigned>(std::atoi(argv[i] + 10));
    else if (std::strncmp(argv[i], "--every=", 8) == 0)
      every = std::max<uint64_t>(1, std::strtoull(argv[i] + 8, nullptr, 10));
    else if (std::strcmp(argv[i], "--verbose") == 0)
      verbose = true;
  if (argc >= 4 && std::strcmp(argv[1], "--compute") == 0)
    return compute(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10),
                   threads);
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: compare-tilings --compute FIRST COUNT [--threads=N]\n       "
                         "compare-tilings tilings.jsonl [--every=N] [--verbose]\n");
    return 2;
  }
  int cases = 0, stale = 0, atZero = 0, within = 0, missing = 0, infeasible = 0, better = 0;
  double worst = 0;
  size_t position = 0;
  for (auto &[seed, known] : readOptima(argv[1])) {
    if (position++ % every)
      continue;
    auto instance = makeTiny(seed);
    stale += std::fabs(sampleTimes(*instance) - known.sample) > 1e-9 * known.sample;
    if (known.step <= 0) {
      ++infeasible;
      continue;
    }
    ++cases;
    SearchOptions options;
    options.threads = 1;
    Result<SearchResult> result = searchPlan(*instance->problem, options);
    double gap = !result.failed() && result->evaluation.shortfallBytes == 0
                     ? result->evaluation.step / known.step - 1
                     : INFINITY;
    if (verbose)
      std::printf("%llu: %s: optimum %.6g, gap %.2f %%\n", static_cast<unsigned long long>(seed),
                  instance->describe().c_str(), known.step, 100 * gap);
    missing += gap == INFINITY;
    worst = std::max(worst, gap);
    atZero += gap <= 1e-6;
    within += gap <= 0.02;
    better += gap < -1e-6;
  }
  if (stale > 0) {
    std::printf("FAILED: %d optima differ from this simulator: compute them again "
                "(test/optimality/README.md)\n",
                stale);
    return 1;
  }
  bool good = worst <= 0.02;
  std::printf("%s: %d tiny instances (%d more without a plan that fits): %.1f %% at the optimum of "
              "all tilings and orders, %.1f %% within 2 %%, "
              "worst gap %.2f %% (limit 2 %%); no plan: %d; better: %d\n",
              good ? "passed" : "FAILED", cases, infeasible, 100.0 * atZero / std::max(cases, 1),
              100.0 * within / std::max(cases, 1), 100 * worst, missing, better);
  return good ? 0 : 1;
}
