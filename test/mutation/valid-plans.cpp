// valid-plans: expands, serializes and verifies random valid plans of random models. No plan may be
// refused. Small plans are also run by the interpreter, which checks that the programs that the
// verifier accepted are correct.
#include "Interpreter.h"
#include "NumberOption.h"
#include "RandomCases.h"

#include "zorse/Verify/Verify.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

using namespace zorse;

namespace {

struct Options {
  uint64_t plans = 1000, first = 0;
  int largest = 4, interleavings = 5;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  size_t interpreted = 400; ///< maximum number of instructions of interpreted programs
};

struct Outcome {
  std::string problem; ///< empty if accepted
  size_t devices = 0, cells = 0, instructions = 0;
  bool interpreted = false;
};

Outcome tryCase(uint64_t seed, const Options &options, test::RandomCase &drawn) {
  Outcome outcome;
  // Every second case is small and can be interpreted; the others grow with the seed.
  drawn =
      test::randomCase(seed, nullptr, seed % 2 ? 1 : 1 + int(seed / 2 % uint64_t(options.largest)));
  test::RealCase real;
  real.model = drawn.model;
  const std::string json = step::writePlan(drawn.plan, drawn.model.summary);
  auto again = step::readPlan(json, drawn.model.summary);
  if (again.failed() || step::writePlan(*again, drawn.model.summary) != json) {
    outcome.problem = "the plan's file is not read as it was written: " + again.message();
    return outcome;
  }
  if (Status status = test::makePrograms(real, *again); status.failed()) {
    outcome.problem = "refused by the compiler: " + status.message();
    return outcome;
  }
  outcome.devices = drawn.plan.devices.size();
  outcome.cells = drawn.plan.cells.size();
  for (const auto &program : real.programs)
    outcome.instructions += size_t(program.instructions_size());
  auto findings = verify::verifyPrograms(real.model.summary, real.model.functions, real.plan,
                                         real.programs, {});
  for (const auto &finding : findings)
    outcome.problem += (outcome.problem.empty() ? "" : "; ") + verify::toString(finding, real.plan);
  if (options.interleavings > 0 && outcome.instructions <= options.interpreted) {
    outcome.interpreted = true;
    const interpret::Steps steps = "ETTET";
    auto expected = interpret::reference(
        real.model.summary, real.model.functions,
        {real.plan.batch, real.plan.splitBackward, real.plan.commitsByGroup}, steps);
    auto harm = interpret::findHarm(real.model.summary, real.model.functions, real.programs,
                                    expected, steps, options.interleavings, uint32_t(seed));
    if (harm.harmful)
      outcome.problem +=
          (outcome.problem.empty() ? "accepted, but harmful: " : "; also harmful: ") + harm.what;
  }
  return outcome;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, auto &target) {
      return test::numberOption(argv[i], name, target);
    };
    if (number("--plans", options.plans) || number("--first", options.first) ||
        number("--largest", options.largest) || number("--interleavings", options.interleavings) ||
        number("--threads", options.threads) || number("--interpreted", options.interpreted))
      continue;
    fprintf(stderr, "valid-plans [--plans=N] [--first=SEED] [--largest=FACTOR] [--interleavings=N] "
                    "[--interpreted=ENTRIES] [--threads=N]\n");
    return 2;
  }
  struct Row {
    int plans = 0, accepted = 0, interpreted = 0;
  };
  std::map<std::string, Row> rows;
  Row total;
  size_t devices = 0, cells = 0, instructions = 0;
  std::mutex mutex;
  std::atomic<uint64_t> next{0};
  auto start = std::chrono::steady_clock::now();
  auto work = [&] {
    for (uint64_t index; (index = next++) < options.plans;) {
      test::RandomCase drawn;
      Outcome outcome = tryCase(options.first + index, options, drawn);
      std::lock_guard<std::mutex> lock(mutex);
      for (Row *row : {&rows[drawn.kind + " | " + drawn.schedule], &total}) {
        ++row->plans;
        row->accepted += outcome.problem.empty();
        row->interpreted += outcome.interpreted;
      }
      devices = std::max(devices, outcome.devices);
      cells = std::max(cells, outcome.cells);
      instructions += outcome.instructions;
      if (!outcome.problem.empty())
        printf(
            "seed %llu: %s, %s, owners %s, %d units x %lld samples, %zu cells on %zu devices: %s\n",
            static_cast<unsigned long long>(options.first + index), drawn.kind.c_str(),
            drawn.schedule.c_str(), drawn.owners.c_str(), drawn.model.summary.units_size(),
            static_cast<long long>(drawn.plan.batch), drawn.plan.cells.size(),
            drawn.plan.devices.size(), outcome.problem.c_str());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < options.threads; ++t)
    threads.emplace_back(work);
  work();
  for (auto &thread : threads)
    thread.join();
  printf("| plan | schedule | plans | accepted | also interpreted |\n|---|---|---|---|---|\n");
  for (const auto &[name, row] : rows)
    printf("| %s | %d | %d | %d |\n", name.c_str(), row.plans, row.accepted, row.interpreted);
  printf("%zu instructions in all; at most %zu cells, %zu devices; %.0f s\n", instructions, cells,
         devices, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  printf("%d of %d random valid plans accepted; the interpreter agrees on the %d it ran\n",
         total.accepted, total.plans, total.interpreted);
  return total.accepted != total.plans;
}
