// zorse-mutate: breaks real programs one way at a time and asks two independent judges: the interpreter whether the mutant is harmful, the verifier
// whether it is rejected. Prints a table; exits with 1 when a harmful mutant is accepted or a correct program rejected.
#include "Interpreter.h"
#include "Mutations.h"

#include "zorse/Verify/Verify.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

using namespace zorse;

namespace {

struct Row {
  int mutants = 0, legal = 0, harmful = 0, rejectedHarmful = 0, harmless = 0, rejectedHarmless = 0;
  void operator+=(const Row &o) {
    mutants += o.mutants;
    legal += o.legal;
    harmful += o.harmful;
    rejectedHarmful += o.rejectedHarmful;
    harmless += o.harmless;
    rejectedHarmless += o.rejectedHarmless;
  }
};

struct Options {
  uint32_t plans = 40, first = 0, perClass = 1;
  int interleavings = 100, steps = 3;
  unsigned threads = 1;
  bool verbose = false;
  std::string bundle;
};

int usage() {
  fprintf(stderr, "zorse-mutate [--plans=N] [--first=SEED] [--per-class=N] [--interleavings=N] [--threads=N] [--bundle=DIR] [--verbose]\n"
                  "Breaks the programs of N random plans; every class of mutants is tried --per-class times on each plan.\n"
                  "The model is a synthetic one per plan, or that of --bundle.\n");
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, auto &target) {
      size_t length = strlen(name);
      if (strncmp(argv[i], name, length) || argv[i][length] != '=')
        return false;
      target = static_cast<std::decay_t<decltype(target)>>(atoi(argv[i] + length + 1));
      return true;
    };
    if (number("--plans", options.plans) || number("--first", options.first) || number("--per-class", options.perClass) || number("--interleavings", options.interleavings) ||
        number("--threads", options.threads))
      continue;
    if (!strncmp(argv[i], "--bundle=", 9))
      options.bundle = argv[i] + 9;
    else if (!strcmp(argv[i], "--verbose"))
      options.verbose = true;
    else
      return usage();
  }

  std::optional<test::SyntheticModel> compiled;
  if (!options.bundle.empty()) {
    std::string error;
    compiled = test::modelOfBundle(options.bundle, error);
    if (!compiled) {
      fprintf(stderr, "zorse-mutate: error: %s\n", error.c_str());
      return 1;
    }
  }
  const auto &classes = test::mutations();
  std::vector<Row> rows(classes.size());
  int correct = 0, wronglyRejected = 0, disagreeing = 0;
  std::vector<std::string> problems;
  std::mutex mutex;
  std::atomic<uint32_t> next{0};
  auto start = std::chrono::steady_clock::now();

  auto work = [&] {
    for (uint32_t index; (index = next++) < options.plans;) {
      uint32_t seed = options.first + index;
      std::string error;
      auto original = test::realCase(seed, compiled ? &*compiled : nullptr, error);
      if (!original) {
        std::lock_guard<std::mutex> lock(mutex);
        problems.push_back("seed " + std::to_string(seed) + ": " + error);
        continue;
      }
      const auto &model = original->model;
      auto expected = interpret::reference(model.summary, model.bodies, original->plan.batch, options.steps);
      auto verify = [&](const std::vector<bundle::Program> &programs) { return verify::verifyPrograms(model.summary, model.bodies, original->plan, programs, {}); };

      auto harm = interpret::findHarm(model.summary, model.bodies, original->programs, expected, options.steps, options.interleavings, seed);
      auto findings = verify(original->programs);
      {
        std::lock_guard<std::mutex> lock(mutex);
        if (harm.harmful)
          problems.push_back(original->name + ": the compiler's own programs are harmful: " + harm.what);
        if (!harm.harmful)
          ++correct;
        if (!harm.harmful && !findings.empty()) {
          ++wronglyRejected;
          problems.push_back(original->name + ": a correct program is rejected: " + verify::toString(findings[0], original->plan));
        }
        if (harm.harmful)
          ++disagreeing;
      }
      if (harm.harmful || !findings.empty())
        continue;

      for (size_t c = 0; c < classes.size(); ++c)
        for (uint32_t n = 0; n < options.perClass; ++n) {
          std::mt19937 random(seed * 7919u + uint32_t(c) * 104729u + n);
          std::string what;
          std::vector<bundle::Program> mutant;
          bool made = false;
          for (int attempt = 0; attempt < 8 && !made; ++attempt) {
            mutant = original->programs;
            made = classes[c].apply(mutant, *original, random, what);
          }
          if (!made)
            continue;
          Row row;
          row.mutants = 1;
          row.legal = test::keepsSizesAndOrder(*original, mutant);
          auto verdict = verify(mutant);
          auto found = interpret::findHarm(model.summary, model.bodies, mutant, expected, options.steps, options.interleavings, seed + n * 31u + uint32_t(c));
          (found.harmful ? row.harmful : row.harmless) = 1;
          if (!verdict.empty())
            (found.harmful ? row.rejectedHarmful : row.rejectedHarmless) = 1;
          std::lock_guard<std::mutex> lock(mutex);
          rows[c] += row;
          bool fatal = found.harmful && verdict.empty();
          if (fatal)
            problems.push_back(original->name + ": ACCEPTED although harmful: " + classes[c].name + " (" + what + "): " + found.what);
          else if (options.verbose)
            printf("%-40s seed %u, %s: %s | %s\n", classes[c].name, seed, what.c_str(), found.harmful ? found.what.c_str() : "harmless", verdict.empty() ? "accepted" : verify::toString(verdict[0], original->plan).c_str());
        }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < options.threads; ++t)
    threads.emplace_back(work);
  work();
  for (auto &thread : threads)
    thread.join();

  Row total;
  printf("| class | mutants | sizes and order legal | harmful | rejected harmful | harmless | rejected harmless |\n|---|---|---|---|---|---|---|\n");
  for (size_t c = 0; c < classes.size(); ++c) {
    const Row &r = rows[c];
    printf("| %s | %d | %d | %d | %d | %d | %d |\n", classes[c].name, r.mutants, r.legal, r.harmful, r.rejectedHarmful, r.harmless, r.rejectedHarmless);
    total += r;
  }
  printf("| **all** | %d | %d | %d | %d | %d | %d |\n\n", total.mutants, total.legal, total.harmful, total.rejectedHarmful, total.harmless, total.rejectedHarmless);
  printf("%d correct programs of %u plans, %d rejected; %d interleavings each; %.0f s\n", correct, options.plans, wronglyRejected, options.interleavings,
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  for (const std::string &problem : problems)
    printf("%s\n", problem.c_str());
  return total.harmful != total.rejectedHarmful || wronglyRejected || disagreeing || !problems.empty();
}
