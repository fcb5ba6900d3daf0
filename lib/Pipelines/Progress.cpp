#include "Progress.h"

#include "Planned.h"
#include "Programs.h"

#include "zorse/Bundle/DescribeTraining.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"

#include <map>
#include <set>

using namespace mlir;

namespace zorse::pipelines {

/// Phases by the stage that they make, with the file of --dump-dir, if any.
static constexpr struct {
  const char *name, *file;
} kPhases[] = {{"import", "1-import.mlir"}, {"recognize", "2-recognize.mlir"},
               {"units", "3-units.mlir"},   {"backward", "3-units.mlir"},
               {"lower", "4-lower.mlir"},   {"plan", "5-plan.json"},
               {"kernels", nullptr},        {"step", nullptr},
               {"exec", nullptr},           {"verify", nullptr},
               {"bundle", nullptr}};

std::optional<Stage> findPhase(const std::string &name) {
  for (size_t i = 0; i < std::size(kPhases); ++i)
    if (name == kPhases[i].name)
      return static_cast<Stage>(i);
  return std::nullopt;
}

/// Prints a module. With `names`, values are named after their ONNX nodes; without, equal graphs
/// have equal texts.
static std::string textOf(ModuleOp module, bool names = true) {
  std::string text;
  llvm::raw_string_ostream os(text);
  OpPrintingFlags flags;
  flags.printNameLocAsPrefix(names);
  flags.elideLargeElementsAttrs(32);
  module->print(os, flags);
  return text + "\n";
}

/// Describes the graph: number of operations, with those listed by name that exporters often
/// decompose.
static std::string describeGraph(ModuleOp module, const Precision &precision) {
  std::map<std::string, int> special; // sorted
  int ops = 0, roundings = 0;
  module->walk([&](Operation *op) {
    if (op->getNumResults() == 0)
      return;
    ++ops;
    roundings += isa<RoundOp>(op);
    StringRef name = op->getName().stripDialect();
    for (StringRef known : {"attention", "layer_norm", "rms_norm", "rope", "gelu", "silu",
                            "cross_entropy", "softmax"})
      if (name == known && isa_and_nonnull<ZorseDialect>(op->getDialect()))
        ++special[name.str()];
  });
  std::string text = std::to_string(ops) + " ops";
  const char *separator = ": ";
  for (const auto &[name, count] : special) {
    text += separator + std::to_string(count) + " " + name;
    separator = ", ";
  }
  if (roundings)
    text += separator + std::to_string(roundings) + " roundings to " +
            elementTypeName(precision.rounded);
  return text;
}

static std::string describeUnits(ModuleOp module, int64_t batch) {
  FailureOr<bundle::ModelSummary> summary = units::summarize(module);
  if (failed(summary))
    return {};
  const bundle::ModelSummary &s = *summary;
  std::string text = counted(s.units_size(), "unit") + " of " + std::to_string(s.classes_size()) +
                     (s.classes_size() == 1 ? " class" : " classes");
  if (s.blocks_count())
    text += ", " + counted(s.blocks_count(), "block") + " of " + std::to_string(s.blocks_period());
  text += ", " + counted(s.groups_size(), "state group");
  const char *head = "\n             loss: ";
  for (const std::string &line : describeLoss(s, batch)) {
    text += head + line;
    head = "\n                   ";
  }
  return text;
}

void Progress::end(Stage stage, ModuleOp module) {
  if (stage == Stage::Units && last > Stage::Units)
    return; // one phase makes units and their functions
  if (!options.quiet) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::string made = printer.takeRemarks();
    if (stage == Stage::Recognized)
      made = describeGraph(module, options.precision);
    if (stage == Stage::Units || stage == Stage::Functions)
      made = describeUnits(module, options.batch);
    llvm::errs() << "  " << llvm::format("%-10s", kPhases[int(stage)].name)
                 << llvm::format("%7.2f s  ", seconds) << made << '\n';
  }
  if (!options.dumpDir.empty())
    writeFiles(stage, module);
  print(stage, module);
  begin = Clock::now();
}

void Progress::endAll() {
  if (!options.quiet)
    llvm::errs() << "  " << llvm::format("%-10s", "")
                 << llvm::format("%7.2f s  ",
                                 std::chrono::duration<double>(Clock::now() - start).count())
                 << "in all\n";
}

void Progress::write(const std::string &name, const std::string &text) const {
  std::error_code failure;
  llvm::raw_fd_ostream os(options.dumpDir + "/" + name, failure);
  if (!failure)
    os << text;
}

static std::string planOf(ModuleOp module) {
  return fileOf(module->getAttr(units::kPlanAttr))->text;
}

static std::vector<std::string> programTexts(ModuleOp module) {
  const Planned planned(module);
  const bundle::ProgramNames names = programNames(planned.plan, planned.summary, planned.library);
  std::vector<std::string> texts;
  for (const std::string &program : programsOf(module, kProgramsAttr))
    texts.push_back(programText(program, names));
  return texts;
}

void Progress::writeFiles(Stage stage, ModuleOp module) const {
  if (const char *file = kPhases[int(stage)].file)
    write(file, stage == Stage::Plan ? planOf(module) : textOf(module));
  if (stage == Stage::Programs)
    for (const auto &[device, text] : llvm::enumerate(programTexts(module)))
      write("6-program-" + std::to_string(device) + ".mlir", text);
}

void Progress::print(Stage stage, ModuleOp module) const {
  if (options.emit == Emit::Graph && stage == Stage::Graph && last == stage)
    llvm::outs() << textOf(module);
  if (options.emit == Emit::Graph && stage == Stage::Recognized)
    llvm::outs() << textOf(module, /*names=*/false); // canonical graph: independent of the exporter
  if (options.emit == Emit::Units && (stage == Stage::Units || stage == Stage::Functions))
    llvm::outs() << textOf(module);
  if (options.emit == Emit::Plan && stage == Stage::Plan)
    llvm::outs() << planOf(module);
  if (options.emit == Emit::Exec && stage == Stage::Programs)
    llvm::outs() << llvm::join(programTexts(module), "");
  if (options.emit == Emit::Llvm && stage == Stage::Lowered) {
    std::error_code failure;
    std::set<std::string> files; // sorted, so that the text is deterministic
    for (llvm::sys::fs::directory_iterator it(kernelTexts, failure), end; it != end && !failure;
         it.increment(failure))
      if (StringRef(it->path()).ends_with(".ll"))
        files.insert(it->path());
    for (const std::string &file : files)
      if (auto text = llvm::MemoryBuffer::getFile(file))
        llvm::outs() << (*text)->getBuffer() << '\n';
  }
}

} // namespace zorse::pipelines
