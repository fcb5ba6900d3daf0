// What a compilation does before and behind its passes.
#pragma once

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Import/ONNX/Import.h"
#include "zorse/Pipelines/Compile.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// What is wrong with options and files that are cheap to look at, before minutes are spent on the model and the search; empty if nothing is. What
/// only the model can tell (a plan's units, a profile's classes) is found later.
std::string problemAtStart(const CompileOptions &options);

/// An ONNX file as a module, with what only the file knows.
struct Model {
  ImportedModel imported;           ///< its module is what all passes change
  bundle::TrainingOptions training; ///< the options', with what the file brings of its own
  std::string decay;                ///< likewise
};

/// Nothing after a message. A remark of the context says what was read.
std::optional<Model> importModel(const CompileOptions &options, mlir::MLIRContext &context);

/// Puts the optimizer that a file brings in the place of defaults; what the caller has said stays. Returns a line for people, or nothing.
std::string adoptOptimizer(const FileTraining &training, const CompileOptions &options, bundle::TrainingOptions &to, std::string &decay);

/// Writes options.output from a module with verified programs, and weights from where the model's file says. \returns a line about it for people
Result<std::string> writeBundle(const CompileOptions &options, const ImportedModel &imported);

/// One entry per ParameterInfo, in its order: from the file's initializers, or from constants that were lifted to parameters of `@model`.
/// An error names a parameter without bytes.
Result<std::vector<bundle::WeightData>> collectWeights(const ImportedModel &imported, const bundle::ModelSummary &summary);

/// --rebuild-kernels: puts the weights of the bundle `options.rebuild` into `contents`, if its summary is what this compiler made; else an error that
/// says what differs. \param remark  receives what people should know.
Status takeFromBundle(const CompileOptions &options, bundle::BundleContents &contents, std::string &remark);

} // namespace zorse::pipelines
