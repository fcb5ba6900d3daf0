// Runs the phases in order, times them, and prints, dumps and stops where asked.
#include "zorse/Pipelines/Compile.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Summarize.h"

#include "Compiler.h"
#include "Diagnostics.h"
#include "EarlyChecks.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/WithColor.h"

#include <chrono>

using namespace mlir;

namespace zorse::pipelines {

namespace {

constexpr const char *kPhaseNames[] = {"import", "recognize", "units", "backward", "bodies", "plan", "kernels", "step", "exec", "verify", "bundle"};

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Runner {
  const CompileOptions &options;
  Clock::time_point start = Clock::now();

  /// One line: name, time, what was made.
  bool run(Phase phase, Compiler &compiler, bool (Compiler::*what)(std::string &)) {
    auto begin = Clock::now();
    std::string remark;
    bool good = (compiler.*what)(remark);
    if (good && !options.quiet)
      llvm::errs() << "  " << llvm::format("%-10s", kPhaseNames[int(phase)]) << llvm::format("%7.2f s  ", secondsSince(begin)) << remark << '\n';
    return good;
  }
};

/// With `names`, values are called by the ONNX nodes they come from; without, equal graphs are equal texts.
std::string textOf(Operation *op, bool names = true) {
  std::string text;
  llvm::raw_string_ostream os(text);
  OpPrintingFlags flags;
  flags.printNameLocAsPrefix(names);
  flags.elideLargeElementsAttrs(32);
  op->print(os, flags);
  return text + "\n";
}

Phase phaseOf(Emit emit, Phase asked) {
  switch (emit) {
  case Emit::Graph:
    return std::min(asked, Phase::Recognize);
  case Emit::Pipeline:
    return Phase::Import;
  case Emit::Units:
    return std::min(asked, Phase::Backward);
  case Emit::Plan:
    return Phase::Plan;
  case Emit::Exec:
    return Phase::Exec;
  case Emit::Llvm:
    return Phase::Bodies;
  case Emit::Nothing:
    break;
  }
  return asked;
}

/// What no model changes: known before minutes are spent.
bool checkEarly(const CompileOptions &options) {
  if (!options.dumpDir.empty())
    if (std::error_code failure = llvm::sys::fs::create_directories(options.dumpDir)) {
      printError(options.dumpDir + ": cannot be made: " + failure.message());
      return false;
    }

  if (std::string problem = problemAtStart(options); !problem.empty()) {
    printError(problem);
    return false;
  }
  return true;
}

void print(const std::string &text) { llvm::outs() << text; }

/// From the file to units with their backwards, or as far as `last`.
bool makeUnits(Runner &runner, Compiler &c, Phase last) {
  const CompileOptions &options = c.options;
  // Import first: everything else needs the graph. What the file says wrongly is found here, at the user's nodes.
  if (!runner.run(Phase::Import, c, &Compiler::import))
    return false;
  c.dump("1-import.mlir", textOf(*c.imported.module));
  if (last == Phase::Import) {
    if (options.emit == Emit::Graph)
      print(textOf(*c.imported.module));
    if (options.emit == Emit::Pipeline)
      print(c.pipelineText() + "\n");
    return true;
  }

  // Single ops before units: cuts and the saved set are chosen on norms and attentions, not on their parts.
  if (!runner.run(Phase::Recognize, c, &Compiler::recognize))
    return false;
  c.dump("2-recognize.mlir", textOf(*c.imported.module));
  if (options.emit == Emit::Graph)
    print(textOf(*c.imported.module, /*names=*/false)); // the canonical graph: the same whichever exporter wrote the model
  if (last == Phase::Recognize)
    return true;

  // One function per class, differentiated once each: 80 equal blocks cost one.
  if (!runner.run(last == Phase::Units ? Phase::Units : Phase::Backward, c, &Compiler::buildUnits))
    return false;
  c.dump("3-units.mlir", textOf(*c.imported.module));
  if (options.emit == Emit::Units)
    print(textOf(*c.imported.module));
  return true;
}

/// From the units to the bundle, or as far as `last`.
bool makeBundle(Runner &runner, Compiler &c, Phase last) {
  const CompileOptions &options = c.options;
  // Bodies before the plan: they say which slots a task has and how much workspace, and the plan must fit.
  if (!runner.run(Phase::Bodies, c, &Compiler::compileBodies))
    return false;
  if (!options.dumpDir.empty())
    c.dump("4-bodies.mlir", textOf(*c.imported.module));
  if (last == Phase::Bodies)
    return true;
  if (!runner.run(Phase::Plan, c, &Compiler::plan))
    return false;
  c.dump("5-plan.json", c.planJson);
  if (options.emit == Emit::Plan)
    print(c.planJson);
  if (last == Phase::Plan)
    return true;
  // Machine code after it: a plan that does not split the backward needs half of the backwards' kernels, and one that is refused none.
  if (!runner.run(Phase::Kernels, c, &Compiler::compileKernels))
    return false;
  if (last == Phase::Kernels)
    return true;
  if (!runner.run(Phase::Step, c, &Compiler::expand))
    return false;
  if (last == Phase::Step)
    return true;
  if (!runner.run(Phase::Exec, c, &Compiler::convert))
    return false;
  if (last == Phase::Exec)
    return true;

  // The programs as serialised, by code that trusts nothing above: a bundle that was not verified is never written.
  if (!runner.run(Phase::Verify, c, &Compiler::verify))
    return false;
  if (last == Phase::Verify || options.output.empty())
    return true;
  if (!runner.run(Phase::Bundle, c, &Compiler::write))
    return false;
  if (!options.quiet)
    llvm::errs() << "  " << llvm::format("%-10s", "") << llvm::format("%7.2f s  ", secondsSince(runner.start)) << "in all\n";
  return true;
}

} // namespace

std::optional<Phase> findPhase(const std::string &name) {
  for (size_t i = 0; i < std::size(kPhaseNames); ++i)
    if (name == kPhaseNames[i])
      return static_cast<Phase>(i);
  return std::nullopt;
}

// MLIR's own threads order part of what they do by atomics inside its libraries, which ThreadSanitizer does not see: with it, passes run on one
// thread. The threads of this project (kernels, programs, verifier) are checked as ever.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ZORSE_MLIR_THREADS false
#endif
#endif
#ifndef ZORSE_MLIR_THREADS
#define ZORSE_MLIR_THREADS true
#endif

bool compileModel(const CompileOptions &options) {
  bool threads = ZORSE_MLIR_THREADS && options.threads > 1;
  MLIRContext context(threads ? MLIRContext::Threading::ENABLED : MLIRContext::Threading::DISABLED);
  prepareContext(context);
  DiagnosticPrinter printer(&context, options.model);
  Runner runner{options};
  const Phase last = phaseOf(options.emit, options.last);
  Compiler c{options, context, printer, last};
  if (!options.dumpDir.empty())
    c.kernelTexts = options.dumpDir + "/4-bodies";
  return checkEarly(options) && makeUnits(runner, c, last) && (last <= Phase::Backward || makeBundle(runner, c, last));
}

bool summarizeModel(const CompileOptions &options, bundle::ModelSummary &summary, bundle::BodyLibrary &bodies) {
  bool threads = ZORSE_MLIR_THREADS && options.threads > 1;
  MLIRContext context(threads ? MLIRContext::Threading::ENABLED : MLIRContext::Threading::DISABLED);
  prepareContext(context);
  DiagnosticPrinter printer(&context, options.model);
  Runner runner{options};
  Compiler c{options, context, printer, Phase::Bodies};
  if (!runner.run(Phase::Import, c, &Compiler::import) || !runner.run(Phase::Recognize, c, &Compiler::recognize) ||
      !runner.run(Phase::Backward, c, &Compiler::buildUnits) || !runner.run(Phase::Bodies, c, &Compiler::compileBodies))
    return false;
  return parseBytes(c.module()->getAttr(kSummaryAttr), summary) && parseBytes((*c.module().getOps<TargetOp>().begin()).getBodies(), bodies);
}

} // namespace zorse::pipelines
