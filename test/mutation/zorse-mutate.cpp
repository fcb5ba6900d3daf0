// zorse-mutate: mutation testing of the verifier. It makes one change to a real program at a time.
// The interpreter decides whether the mutant is harmful, and the verifier decides independently
// whether to reject it. Prints a table. Exits with 1 if a harmful mutant is accepted or a correct
// program is rejected.
#include "Interpreter.h"
#include "Mutations.h"
#include "NumberOption.h"

#include "zorse/Verify/Verify.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
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
  uint32_t plans = 40, first = 0, perMutation = 1;
  int interleavings = 100;
  interpret::Steps steps = "ETTET";
  unsigned threads = 1;
  bool details = false, verbose = false, levels = false;
  std::string bundle;
};

/// The class of faults of `--levels`.
constexpr char kLevels[] = "levels of a sum";

int usage() {
  fprintf(stderr,
          "zorse-mutate [--plans=N] [--first=SEED] [--per-mutation=N] [--interleavings=N] "
          "[--threads=N] [--bundle=DIR | --levels] [--details] [--verbose]\n"
          "Breaks the programs of N random plans; every mutation is tried --per-mutation "
          "times on each plan.\n"
          "The model is a synthetic one per plan, or that of --bundle. --levels: plans that "
          "sum gradients along nodes and sites, and mutations of these sums only. "
          "--details: also a row for every mutation.\n");
  return 2;
}

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, auto &target) {
      return test::numberOption(argv[i], name, target);
    };
    if (number("--plans", options.plans) || number("--first", options.first) ||
        number("--per-mutation", options.perMutation) ||
        number("--interleavings", options.interleavings) || number("--threads", options.threads))
      continue;
    if (!strncmp(argv[i], "--bundle=", 9))
      options.bundle = argv[i] + 9;
    else if (!strcmp(argv[i], "--details"))
      options.details = true;
    else if (!strcmp(argv[i], "--verbose"))
      options.verbose = true;
    else if (!strcmp(argv[i], "--levels"))
      options.levels = true;
    else
      return false;
  }
  return !options.levels || options.bundle.empty();
}

/// Results for all plans.
struct Outcome {
  std::vector<Row> rows = std::vector<Row>(test::mutations().size());
  std::map<std::string, int> plansOf;
  std::map<std::string, Row> schedules;
  int correct = 0, wronglyRejected = 0, disagreeing = 0;
  std::vector<std::string> problems;
  std::mutex mutex;
};

/// Tests one plan and its mutants.
struct Trial {
  const Options &options;
  Outcome &outcome;
  const uint32_t seed;
  const test::RealCase original;
  const interpret::Result expected = interpret::reference(
      original.model.summary, original.model.functions,
      {original.plan.batch, original.plan.splitBackward, original.plan.commitsByGroup},
      options.steps);

  /// Results of the compiler's own programs if the order of additions matters.
  const interpret::Outcome bits = withOrder(original.programs);

  interpret::Outcome withOrder(const std::vector<bundle::Program> &programs) const {
    interpret::Interleaving how;
    how.ordered = true;
    return interpret::run(original.model.summary, original.model.functions, programs, options.steps,
                          how);
  }
  /// Harm: results of another model, or sums that may have other bits than the compiler's.
  interpret::Harm harmOf(const std::vector<bundle::Program> &programs, uint32_t draws) const {
    interpret::Harm harm = interpret::findHarm(original.model.summary, original.model.functions,
                                               programs, expected, options.steps,
                                               options.interleavings, draws);
    if (!harm.harmful)
      harm.what = interpret::difference(bits.result, withOrder(programs).result);
    if (!harm.harmful && !harm.what.empty())
      harm = {true, "adds in another order: " + harm.what, harm.runs};
    return harm;
  }
  std::vector<verify::Finding> findingsOf(const std::vector<bundle::Program> &programs) const {
    return verify::verifyPrograms(original.model.summary, original.model.functions, original.plan,
                                  programs, {});
  }

  /// Whether the interpreter and the verifier accept the compiler's own programs.
  bool passes() const {
    auto harm = harmOf(original.programs, seed);
    auto findings = findingsOf(original.programs);
    std::lock_guard<std::mutex> lock(outcome.mutex);
    ++outcome.plansOf[original.kind];
    if (harm.harmful) {
      outcome.problems.push_back(original.name +
                                 ": the compiler's own programs are harmful: " + harm.what);
      ++outcome.disagreeing;
      return false;
    }
    ++outcome.correct;
    if (findings.empty())
      return true;
    ++outcome.wronglyRejected;
    outcome.problems.push_back(original.name + ": a correct program is rejected: " +
                               verify::toString(findings[0], original.plan));
    return false;
  }

  /// Applies mutation `c` of the list for the n-th time.
  void mutate(uint32_t c, uint32_t n) const {
    const test::Mutation &mutation = test::mutations()[c];
    std::mt19937 random(seed * 7919u + c * 104729u + n);
    std::string what;
    std::vector<bundle::Program> mutant;
    bool made = false;
    for (int attempt = 0; attempt < 8 && !made; ++attempt) {
      mutant = original.programs;
      made = mutation.apply(mutant, original, random, what);
    }
    if (!made)
      return;
    Row row;
    row.mutants = 1;
    row.legal = test::keepsSizesAndOrder(original, mutant);
    auto verdict = findingsOf(mutant);
    auto found = harmOf(mutant, seed + n * 31u + c);
    (found.harmful ? row.harmful : row.harmless) = 1;
    if (!verdict.empty())
      (found.harmful ? row.rejectedHarmful : row.rejectedHarmless) = 1;
    std::lock_guard<std::mutex> lock(outcome.mutex);
    outcome.rows[c] += row;
    outcome.schedules[original.schedule] += row;
    if (found.harmful && verdict.empty())
      outcome.problems.push_back(original.name + ": ACCEPTED although harmful: " + mutation.name +
                                 " (" + what + "): " + found.what);
    else if (options.verbose)
      printf("%-40s seed %u, %s: %s | %s\n", mutation.name.c_str(), seed, what.c_str(),
             found.harmful ? found.what.c_str() : "harmless",
             verdict.empty() ? "accepted" : verify::toString(verdict[0], original.plan).c_str());
  }
};

void judge(const Options &options, const test::SyntheticModel *model, uint32_t seed,
           Outcome &outcome) {
  auto original = options.levels ? test::realLevelCase(seed) : test::realCase(seed, model);
  if (original.failed()) {
    std::lock_guard<std::mutex> lock(outcome.mutex);
    outcome.problems.push_back("seed " + std::to_string(seed) + ": " + original.message());
    return;
  }
  const Trial trial{options, outcome, seed, std::move(*original)};
  if (!trial.passes())
    return;
  for (uint32_t c = 0; c < test::mutations().size(); ++c)
    for (uint32_t n = 0; n < options.perMutation; ++n)
      if (!options.levels || !strcmp(test::mutations()[c].fault, kLevels))
        trial.mutate(c, n);
}

/// \returns the sum of all rows.
Row printTables(const Options &options, const Outcome &outcome) {
  const auto &classes = test::mutations();
  auto print = [](const std::string &name, const Row &r) {
    printf("| %s | %d | %d | %d | %d | %d | %d |\n", name.c_str(), r.mutants, r.legal, r.harmful,
           r.rejectedHarmful, r.harmless, r.rejectedHarmless);
  };
  const char *header = "| mutants | sizes and order legal | harmful | harmful rejected | harmless "
                       "| harmless rejected |\n|---|---|---|---|---|---|---|\n";
  if (options.details) {
    printf("| mutation %s", header);
    for (size_t c = 0; c < classes.size(); ++c)
      print(std::string(classes[c].fault) + ": " + classes[c].name, outcome.rows[c]);
    printf("\n");
  }
  printf("| class of fault %s", header);
  Row total;
  for (size_t c = 0; c < classes.size();) {
    Row row;
    size_t first = c;
    for (; c < classes.size() && !strcmp(classes[c].fault, classes[first].fault); ++c)
      row += outcome.rows[c];
    print(std::string(classes[first].fault) + " (" + std::to_string(c - first) + ")", row);
    total += row;
  }
  print("**all** (" + std::to_string(classes.size()) + ")", total);
  printf("\n| schedule %s", header);
  for (const auto &[name, row] : outcome.schedules)
    print(name, row);
  return total;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options))
    return usage();
  std::optional<test::SyntheticModel> compiled;
  if (!options.bundle.empty()) {
    Result<test::SyntheticModel> read = test::modelOfBundle(options.bundle);
    if (read.failed()) {
      fprintf(stderr, "zorse-mutate: error: %s\n", read.message().c_str());
      return 1;
    }
    compiled = std::move(*read);
  }
  Outcome outcome;
  std::atomic<uint32_t> next{0};
  auto start = std::chrono::steady_clock::now();
  auto work = [&] {
    for (uint32_t index; (index = next++) < options.plans;)
      judge(options, compiled ? &*compiled : nullptr, options.first + index, outcome);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < options.threads; ++t)
    threads.emplace_back(work);
  work();
  for (auto &thread : threads)
    thread.join();

  const Row total = printTables(options, outcome);
  printf("\n%u plans:", options.plans);
  for (const auto &[kind, count] : outcome.plansOf)
    printf(" %d %s,", count, kind.c_str());
  printf(" %d interleavings of %zu steps each\n", options.interleavings, options.steps.size());
  for (const std::string &problem : outcome.problems)
    printf("%s\n", problem.c_str());
  printf("%d of %d harmful mutants rejected (%d mutants, %d of %d harmless ones rejected too); %d "
         "of %d correct programs rejected; %.0f s\n",
         total.rejectedHarmful, total.harmful, total.mutants, total.rejectedHarmless,
         total.harmless, outcome.wronglyRejected, outcome.correct,
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return total.harmful != total.rejectedHarmful || outcome.wronglyRejected || outcome.disagreeing ||
         !outcome.problems.empty();
}
