// Progress output of a compilation.
#pragma once

#include "Diagnostics.h"

#include "zorse/Pipelines/Compile.h"

#include "mlir/IR/BuiltinOps.h"

#include <chrono>
#include <string>

namespace zorse::pipelines {

/// Prints a line for every phase, with its time and its results; dumps the module after each phase
/// to files, or prints it.
class Progress {
public:
  /// \param last  last stage of the compilation
  Progress(const CompileOptions &options, Stage last, DiagnosticPrinter &printer)
      : options(options), last(last), printer(printer) {}

  /// Called after the phase that makes `stage`.
  void end(Stage stage, mlir::ModuleOp module);
  /// Called after all phases.
  void endAll();

  /// Folder for the texts of kernels; empty: not written.
  std::string kernelTexts;

private:
  using Clock = std::chrono::steady_clock;
  void writeFiles(Stage stage, mlir::ModuleOp module) const;
  void print(Stage stage, mlir::ModuleOp module) const;
  void write(const std::string &name, const std::string &text) const;

  const CompileOptions &options;
  const Stage last;
  DiagnosticPrinter &printer;
  const Clock::time_point start = Clock::now();
  Clock::time_point begin = start;
};

} // namespace zorse::pipelines
