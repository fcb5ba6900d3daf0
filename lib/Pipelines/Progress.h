// What people see of a compilation.
#pragma once

#include "Diagnostics.h"

#include "zorse/Pipelines/Compile.h"

#include "mlir/IR/BuiltinOps.h"

#include <chrono>
#include <string>

namespace zorse::pipelines {

/// A line for every phase, with its time and what it made; and what the module is behind it, as files or printed.
class Progress {
public:
  /// \param last  stage of the compilation
  Progress(const CompileOptions &options, Stage last, DiagnosticPrinter &printer) : options(options), last(last), printer(printer) {}

  /// The phase that makes a stage is over.
  void end(Stage stage, mlir::ModuleOp module);
  /// And all are.
  void endAll();

  /// Folder of the texts of kernels; empty: they are not wanted.
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
