// Runs generated GPU kernels for many shapes and types and compares every number with the
// reference. The tolerance follows from an analysis of rounding errors (Tolerances.h). The emulator
// also checks every access.
//
//   kernel-conformance [--quick] [--seeds=N] [--first-seed=N] [--class=NAME] [--type=TYPE]
//                      [--arch=ARCH | --ptx=ARCH] [--record=FOLDER [--times]] [--verbose]
//
// - --arch=sm_90: compiles for this architecture and runs on this machine's first GPU instead of
//   the emulator.
// - --ptx=sm_90: interprets the PTX text for this architecture and compares its results bit by bit
//   with those of the emulator for the bitcode of the PTX.
// - --record: writes the compiled cases and expected results to a directory, for gpu-probe on a
//   machine with a GPU, and runs nothing. With --times, one large shape of each class, to measure
//   its time.
//
// Every class of kernels is run in every type with the shapes of a fixed list and with eight random
// shapes per seed. --quick uses a few of the fixed ones. Fails on a finding, on a number outside
// its band, and if a class has fewer than 20 shapes (unless --quick, --class or --type is given).
#include "PtxReader.h"
#include "Recorder.h"
#include "Routines.h"
#include "RunCase.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

using namespace zorse::conformance;

namespace {

constexpr int kFixed = 24, kPerSeed = 8, kQuick = 3, kMin = 20;

struct Totals {
  int kernels = 0, shapes = 0, problems = 0;
  bool enough = true;
};

struct Arguments {
  bool quick = false, verbose = false, times = false;
  int seeds = 1, first = 1;
  std::string only, type, arch = "emu", ptx, record;
};

/// Runs one shape and returns its outcome and name.
using RunShape = std::function<std::pair<Outcome, std::string>(Sizes &sizes, uint64_t seed)>;

/// Runs a class and prints a line of the table.
void runClass(const char *name, const std::string &type, const RunShape &run,
              const Arguments &arguments, Totals &totals, int turn) {
  int shapes = 0, problems = 0;
  double worst = 0;
  const std::clock_t begin = std::clock();
  const int64_t large = !arguments.times          ? 0
                        : arguments.arch == "emu" ? int64_t(1) << 10
                                                  : int64_t(1) << 24; // the emulator does not
                                                                      // measure GPU time
  auto one = [&](int index, uint64_t seed) {
    Sizes sizes(index, seed, large);
    const auto [outcome, shape] = run(sizes, seed);
    ++shapes;
    totals.kernels += outcome.kernels;
    worst = std::max(worst, outcome.worst);
    if (arguments.verbose)
      std::printf("  %-28s %-5s %2d %-60s %.3f\n", name, type.c_str(), index, shape.c_str(),
                  outcome.worst);
    if (outcome.problem.empty())
      return;
    ++problems;
    std::printf("%s, %s, shape %d of seed %d (%s): %s\n", name, type.c_str(), index, int(seed),
                shape.c_str(), outcome.problem.c_str());
  };
  for (int i = 0; i < (arguments.times ? 1 : kFixed); ++i)
    if (arguments.times || !arguments.quick || (i + turn) % (kFixed / kQuick) == 0)
      one(i, 0);
  if (!arguments.quick && !arguments.times)
    for (int seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed)
      for (int i = 0; i < kPerSeed; ++i)
        one(kFixed + i, uint64_t(seed));
  std::printf("%-28s %-5s %3d shapes  %d findings  worst error %.3f of its band  %.1f s\n", name,
              type.c_str(), shapes, problems, worst, double(std::clock() - begin) / CLOCKS_PER_SEC);
  std::fflush(stdout);
  totals.shapes += shapes;
  totals.problems += problems;
  totals.enough &= shapes >= kMin;
}

using Coverage = std::map<std::string, zorse::emulator::ptx::Program::Coverage>;

/// \returns "N instructions of M kinds, P % of them executed"
std::string describe(const Coverage &coverage, bool verbose) {
  uint64_t statements = 0, reached = 0, executed = 0;
  for (const auto &[opcode, of] : coverage) {
    statements += of.statements, reached += of.reached, executed += of.executed;
    if (verbose)
      std::printf("  %-52s %8llu in texts, %8llu of them executed, %11llu times\n", opcode.c_str(),
                  static_cast<unsigned long long>(of.statements),
                  static_cast<unsigned long long>(of.reached),
                  static_cast<unsigned long long>(of.executed));
  }
  char text[160];
  std::snprintf(text, sizeof text,
                "%llu instructions of %zu kinds, %.1f %% of them executed, %.1f million times by a "
                "group of lanes",
                static_cast<unsigned long long>(statements), coverage.size(),
                statements ? 100.0 * double(reached) / double(statements) : 0,
                double(executed) / 1e6);
  return text;
}

bool parse(int argc, char **argv, Arguments &arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    auto value = [&](const char *name) {
      const bool is = argument.rfind(name, 0) == 0;
      return std::pair(is, is ? argument.substr(std::strlen(name)) : "");
    };
    if (argument == "--quick")
      arguments.quick = true;
    else if (argument == "--verbose")
      arguments.verbose = true;
    else if (argument == "--times")
      arguments.times = true;
    else if (auto [is, text] = value("--record="); is)
      arguments.record = text;
    else if (auto [is, text] = value("--seeds="); is)
      arguments.seeds = std::atoi(text.c_str());
    else if (auto [is, text] = value("--first-seed="); is)
      arguments.first = std::atoi(text.c_str());
    else if (auto [is, text] = value("--class="); is)
      arguments.only = text;
    else if (auto [is, text] = value("--type="); is)
      arguments.type = text;
    else if (auto [is, text] = value("--arch="); is)
      arguments.arch = text;
    else if (auto [is, text] = value("--ptx="); is)
      arguments.ptx = text;
    else
      return false;
  }
  return true;
}

} // namespace

int main(int argc, char **argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments))
    return std::fprintf(stderr,
                        "usage: kernel-conformance [--quick] [--seeds=N] [--first-seed=N] "
                        "[--class=NAME] [--type=TYPE] "
                        "[--arch=ARCH | --ptx=ARCH] [--record=FOLDER [--times]] [--verbose]\n"),
           2;
  std::string error;
  const bool emulates = arguments.arch == "emu" && arguments.record.empty();
  std::unique_ptr<Machine> driver =
      arguments.record.empty() ? makeDriver(arguments.arch, error)
                               : makeRecorder(arguments.record, arguments.arch, arguments.times);
  if (!driver)
    return std::fprintf(stderr, "%s: %s\n",
                        emulates ? "the fakes of the GPU libraries cannot be loaded"
                                 : "no GPU runs here",
                        error.c_str()),
           2;
  const bool reads = !arguments.ptx.empty();
  Coverage coverage;
  std::unique_ptr<Machine> emulator = !emulates ? nullptr
                                      : reads
                                          ? makePtxReader({arguments.ptx, 1, nullptr, &coverage})
                                          : makeEmulator();
  Machine &kernelMachine = emulates ? *emulator : *driver;
  Totals totals;
  int turn = 0;
  auto inAllTypes = [&](const char *name, auto run, bool narrowAlone = false) {
    for (const std::string type : {"f32", "bf16", "f16"}) {
      ++turn; // so that --quick uses different shapes for different classes
      if (!(narrowAlone && type == "f32") && (arguments.only.empty() || arguments.only == name) &&
          (arguments.type.empty() || arguments.type == type))
        runClass(
            name, type, [&](Sizes &sizes, uint64_t seed) { return run(sizes, type, seed); },
            arguments, totals, turn);
    }
  };
  auto onMachine = [](const KernelClass &kernels, Machine &machine) {
    return [&](Sizes &sizes, const std::string &type, uint64_t seed) {
      const Case test = kernels.make(sizes, type);
      machine.begin(std::string(kernels.name) + ", " + type + ", " + test.shape);
      return std::pair(runCase(test, type, machine, seed * 7919 + uint64_t(sizes.index)),
                       test.shape);
    };
  };
  for (const KernelClass &kernels :
       arguments.times ? timedAttention(arguments.arch == "emu") : std::vector<KernelClass>())
    inAllTypes(kernels.name, onMachine(kernels, kernelMachine), kernels.narrowAlone);
  for (const KernelClass &kernels : kernelClasses())
    if (!arguments.times || std::string(kernels.name).find("attention") == std::string::npos)
      inAllTypes(kernels.name, onMachine(kernels, kernelMachine), kernels.narrowAlone);
  if (arguments.record.empty()) // these routines compare their results themselves
    inAllTypes("routines of a step", [&](Sizes &sizes, const std::string &type, uint64_t) {
      return std::pair(runRoutines(sizes, type, kernelMachine), std::string("by size"));
    });
  const KernelClass products = productClass();
  if (!reads) // matmuls have no PTX
    inAllTypes(products.name, onMachine(products, *driver));
  const bool few = arguments.quick || arguments.times;
  if (!totals.enough && !few)
    std::printf("fewer than %d shapes in some class\n", kMin);
  emulator.reset(); // its destructor counts the last program
  if (reads)
    std::printf("PTX of %s: %s\n", arguments.ptx.c_str(),
                describe(coverage, arguments.verbose).c_str());
  std::printf("conformance: %d kernels x shapes (%d shapes), %d findings%s\n", totals.kernels,
              totals.shapes, totals.problems,
              reads ? " in the text of the PTX or in bits that the emulator has otherwise" : "");
  return totals.problems == 0 && totals.shapes > 0 && (totals.enough || few) ? 0 : 1;
}
