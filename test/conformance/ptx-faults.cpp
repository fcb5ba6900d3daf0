// Injects faults into PTX text, one at a time, and counts how many the execution of the text
// detects: the text cannot be loaded, there is a finding, or the bits differ from those of the
// bitcode emulator.
//
//   ptx-faults [--quick] [--arch=ARCH] [--list]
//
// Each line with a barrier, a warp barrier, a wait for copies, a commit of copies or a fence is
// removed in turn; then the faults of a list (PtxFaults.cpp) are injected. Fails if a fault is not
// detected and is not proven harmless.
#include "PtxFaults.h"

#include "PtxReader.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace zorse::conformance;

namespace {

struct Arguments {
  bool quick = false, lists = false;
  std::string arch = "sm_80";
};

/// A case that has been run with the original text.
struct Subject {
  std::string name;
  Recording recording;
};

/// \returns false if the original text has a finding
bool record(const PtxSubject &of, const std::string &arch, Subject &subject) {
  subject.name = of.name;
  const auto machine = makePtxReader({arch, 1, &subject.recording});
  const Outcome outcome = of.run(*machine);
  if (!outcome.problem.empty())
    std::printf("%s: %s\n", subject.name.c_str(), outcome.problem.c_str());
  return outcome.problem.empty() && !subject.recording.runs.empty();
}

/// Runs the text with a few orders of execution. \returns the fault; empty if there is none
std::string faultOf(const std::string &text, const Recording &recording) {
  for (uint64_t seed = 1; seed <= 3; ++seed)
    for (const RecordedRun &run : recording.runs)
      if (std::string problem = runAgain(text, run, seed); !problem.empty())
        return problem;
  return "";
}

/// The kernel at a position of the text, without the suffix that makes its name unique.
std::string kernelAt(const std::string &text, size_t at) {
  const std::string mark = ".entry ";
  const size_t entry = text.rfind(mark, at);
  if (entry == std::string::npos)
    return "";
  const std::string name =
      text.substr(entry + mark.size(), text.find('(', entry) - entry - mark.size());
  return name.substr(0, name.rfind('_'));
}

struct Tally {
  int all = 0, found = 0, asText = 0, byBits = 0, proved = 0;

  void add(const std::string &problem) {
    ++all;
    found += !problem.empty();
    asText += problem.rfind("PTX: ", 0) == 0;
    byBits += problem.rfind("element ", 0) == 0;
  }
};

std::string lineAt(const std::string &text, size_t at) {
  std::string line = text.substr(at, text.find('\n', at) - at);
  return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
}

/// Removes each synchronization of the subject in turn.
void dropSynchronizations(const Subject &subject, const Arguments &arguments, Tally &tally) {
  const std::string &text = subject.recording.text;
  Tally own;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = lineAt(text, at);
    if (isSynchronization(line)) {
      std::string without = text;
      without.replace(at, text.find('\n', at) - at, "");
      const std::string problem = faultOf(without, subject.recording);
      const std::string kernel = kernelAt(text, at);
      const char *proof = problem.empty() ? whyHarmless(text, at) : nullptr;
      own.add(problem);
      own.proved += proof != nullptr;
      if (problem.empty())
        std::printf("  not found: %s in %s of %s%s%s\n", line.c_str(), kernel.c_str(),
                    subject.name.c_str(), proof ? ", harmless: " : "", proof ? proof : "");
      else if (arguments.lists)
        std::printf("  %s in %s of %s: %s\n", line.c_str(), kernel.c_str(), subject.name.c_str(),
                    problem.c_str());
    }
    if (text.find('\n', at) == std::string::npos)
      break;
  }
  std::printf(
      "%s: %d of %d synchronizations missed (%d by other bits alone), %d proved to be harmless\n",
      subject.name.c_str(), own.found, own.all, own.byBits, own.proved);
  std::fflush(stdout);
  tally.all += own.all, tally.found += own.found, tally.byBits += own.byBits,
      tally.proved += own.proved;
}

void plant(const PtxFault &fault, const Subject &subject, const Arguments &arguments,
           Tally &tally) {
  std::string text = subject.recording.text;
  if (!fault.plant(text)) {
    ++tally.all;
    std::printf("  no place for: %s (%s)\n", fault.name, subject.name.c_str());
    return;
  }
  const std::string problem = faultOf(text, subject.recording);
  tally.add(problem);
  if (problem.empty() || arguments.lists)
    std::printf("  %s%s (%s): %s\n", problem.empty() ? "not found: " : "", fault.name,
                subject.name.c_str(), problem.c_str());
}

bool run(const Arguments &arguments) {
  Tally dropped, planted;
  bool sound = true;
  for (const PtxSubject &one : synchronizedSubjects(arguments.quick)) {
    Subject subject;
    if (record(one, arguments.arch, subject))
      dropSynchronizations(subject, arguments, dropped);
    else
      sound = false;
  }
  std::string last;
  Subject subject;
  const bool hasTensorCores = std::atoi(arguments.arch.c_str() + std::strlen("sm_")) >= 80;
  for (const PtxFault &fault : ptxFaults(hasTensorCores)) {
    if (fault.subject.name != last)
      sound &= record(fault.subject, arguments.arch, subject);
    last = fault.subject.name;
    plant(fault, subject, arguments, planted);
  }
  std::printf("%s: %d of %d dropped synchronizations found, %d more proved to be harmless (limit: "
              "all); %d of %d other planted bugs found (limit: "
              "all), %d of "
              "them as text that cannot be loaded, %d by other bits alone\n",
              arguments.arch.c_str(), dropped.found, dropped.all - dropped.proved, dropped.proved,
              planted.found, planted.all, planted.asText, planted.byBits);
  return sound && dropped.all > 0 && dropped.found + dropped.proved == dropped.all &&
         planted.found == planted.all && planted.all >= 30;
}

} // namespace

int main(int argc, char **argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick")
      arguments.quick = true;
    else if (argument == "--list")
      arguments.lists = true;
    else if (argument.rfind("--arch=sm_", 0) == 0)
      arguments.arch = argument.substr(std::strlen("--arch="));
    else
      return std::fprintf(stderr, "usage: ptx-faults [--quick] [--arch=ARCH] [--list]\n"), 2;
  }
  return run(arguments) ? 0 : 1;
}
