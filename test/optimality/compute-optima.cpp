// Enumerates all layouts of small random instances and prints their optima.
//
//     compute-optima FIRST COUNT [--start=optima.jsonl] [--threads=N] [--devices=N --units=N
//                    --global-batch-size=N]
//
// Prints one line per seed, in order, and progress on stderr. --start reads optima of an older
// simulator; their layouts bound the search from the start.
#include "Optima.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: compute-optima FIRST-SEED COUNT [--start=FILE] [--threads=N] "
                         "[--devices=N] [--units=N] [--global-batch-size=N]\n");
    return 2;
  }
  uint64_t first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  unsigned threads = 2;
  Size max;
  std::map<uint64_t, Known> older;
  for (int i = 3; i < argc; ++i) {
    auto value = [&](const char *name) -> const char * {
      return std::strncmp(argv[i], name, std::strlen(name)) == 0 ? argv[i] + std::strlen(name)
                                                                 : nullptr;
    };
    if (const char *v = value("--start="))
      older = readOptima(v);
    else if (const char *v = value("--threads="))
      threads = static_cast<unsigned>(std::atoi(v));
    else if (const char *v = value("--devices="))
      max.devices = std::atoi(v);
    else if (const char *v = value("--units="))
      max.units = std::atoi(v);
    else if (const char *v = value("--batch="))
      max.batch = std::atoi(v);
  }
  std::atomic<uint64_t> next{0};
  std::vector<std::string> lines(count);
  std::vector<bool> done(count, false);
  uint64_t printed = 0;
  std::mutex mutex;
  auto work = [&] {
    for (uint64_t i; (i = next++) < count;) {
      auto began = std::chrono::steady_clock::now();
      auto instance = makeInstance(first + i, max);
      ExhaustiveOptions options;
      Optimum start;
      if (auto it = older.find(first + i); it != older.end() && it->second.feasible) {
        auto e = evaluate(*instance->problem, makePlan(*instance->problem, it->second.strategy));
        if (!e.failed() && e->shortfallBytes == 0) {
          start.feasible = true;
          start.step = options.known = e->step;
          start.strategy = it->second.strategy;
        }
      }
      Optimum optimum = exhaustive(*instance->problem, options);
      if (start.feasible && !(optimum.feasible && optimum.step < start.step)) {
        start.families = optimum.families;
        start.simulated = optimum.simulated;
        optimum = start;
      }
      Known known{optimum.feasible, optimum.step, optimum.strategy, optimum.simulated,
                  sampleTimes(*instance)};
      double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      std::lock_guard<std::mutex> lock(mutex);
      std::fprintf(stderr, "%llu: %s: %.6f s, %llu families, %llu simulated, %.1f s\n",
                   static_cast<unsigned long long>(first + i), instance->describe().c_str(),
                   optimum.step, static_cast<unsigned long long>(optimum.families),
                   static_cast<unsigned long long>(optimum.simulated), seconds);
      lines[i] = writeKnown(first + i, known);
      done[i] = true;
      for (; printed < count && done[printed]; ++printed)
        std::printf("%s\n", lines[printed].c_str());
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i)
    pool.emplace_back(work);
  for (std::thread &thread : pool)
    thread.join();
}
