// The state of one compilation, and its phases in order (Compile.cpp runs them).
#pragma once

#include "Diagnostics.h"
#include "Planned.h"
#include "TrainPipeline.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Import/ONNX/Import.h"
#include "zorse/Pipelines/Compile.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/MLIRContext.h"

namespace zorse::pipelines {

/// Loads the dialects and attaches the interfaces that the phases need.
void prepareContext(mlir::MLIRContext &context);

struct Compiler {
  const CompileOptions &options;
  mlir::MLIRContext &context;

  DiagnosticPrinter &printer;

  Phase last; ///< that runs

  ImportedModel imported = {};           ///< its module is what all phases change
  bundle::TrainingOptions training = {}; ///< the options', with what the file brings of its own
  std::string decay = {};                ///< likewise
  bundle::ModelSummary summary = {};
  std::string kernelTexts = {};          ///< folder for them; empty: they are not wanted
  std::optional<Planned> planned = {};
  std::string planJson = {};                                   ///< canonical
  step::StepGraph graph = {};                                  ///< until its programs are there
  std::vector<std::string> programs = {}, stagedPrograms = {}; ///< the latter of the same step by way of the host, where something goes directly

  // Each phase says in `remark` what it made, for its line, and returns whether it succeeded; it has printed why not.
  bool import(std::string &remark);
  bool recognize(std::string &remark);
  bool buildUnits(std::string &remark);
  bool compileBodies(std::string &remark);
  bool plan(std::string &remark);
  bool compileKernels(std::string &remark);
  bool expand(std::string &remark);
  bool convert(std::string &remark);
  bool verify(std::string &remark);
  bool write(std::string &remark);

  mlir::ModuleOp module() { return *imported.module; }
  /// Runs the part of the pipeline that takes the module from one stage to another.
  bool runPasses(Stage from, Stage to);
  void fill(TrainPipelineOptions &passOptions) const;
  /// All passes, as `zorse-opt --pass-pipeline` takes them.
  std::string pipelineText() const;
  /// What the summary says that the graph does not.
  std::string settings() const;

  Result<step::StepGraph> expandAs(const step::Plan &plan);

  /// Writes `text` to options.dumpDir/name, if there is one.
  void dump(const std::string &name, const std::string &text) const;
};

} // namespace zorse::pipelines
