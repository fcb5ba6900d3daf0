// Phases of a compilation before and after its passes.
#pragma once

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Import/ONNX/Import.h"
#include "zorse/Pipelines/Compile.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// Returns a problem of options and files that is cheap to detect, before minutes are spent on the
/// model and the search; empty if there is none. Problems that depend on the model (a plan's units,
/// a profile's classes) are detected later.
std::string problemAtStart(const CompileOptions &options);

/// An imported ONNX file: the module, and data that is only in the file.
struct Model {
  ImportedModel imported;           ///< its module is modified by all passes
  bundle::TrainingOptions training; ///< the options' values, completed by the file's own
  std::string decay;                ///< weight decay rule, chosen like `training`
  int64_t groupRows = 0; ///< samples per group; the options' value, or the batch if the file
                         ///< combines samples and they give none
};

/// Returns nothing after an error message. A remark of the context summarizes the import.
std::optional<Model> importModel(const CompileOptions &options, mlir::MLIRContext &context);

/// --near: returns the model of a bundle, with compiled functions and machine code. Its module is
/// at Stage::Kernels, but without a plan. Returns nothing after an error message.
std::optional<Model> modelOfBundle(const CompileOptions &options, mlir::MLIRContext &context);

/// --near: returns the initial weights of the bundle `options.near`: as bytes if the bundle
/// contains them, unless options.weights is Reference.
Result<bundle::StoredWeights> weightsOfBundle(const CompileOptions &options);

/// Searches for a plan, also with groups of up to options.tensorParallelSize devices.
/// \param module  after zorse-lower-functions
/// \returns the plan as text if it has groups
Result<std::optional<std::string>> planWithGroups(const CompileOptions &options,
                                                  mlir::ModuleOp module);

/// Replaces defaults by the optimizer in the file; options that the caller gave are kept. Returns a
/// human-readable line, or nothing.
std::string adoptOptimizer(const FileTraining &training, const CompileOptions &options,
                           bundle::TrainingOptions &to, std::string &decay);

/// Writes options.output from a module with verified programs, with the weights of the model's
/// files.
/// \returns a human-readable line about it
Result<std::string> writeBundle(const CompileOptions &options, const ImportedModel &imported);

/// Returns one entry per ParameterInfo, in its order, from the file's initializers or from
/// constants that were lifted to parameters of `@model`. The error names a parameter without data.
Result<std::vector<bundle::WeightData>> collectWeights(const ImportedModel &imported,
                                                       const bundle::ModelSummary &summary);

/// --rebuild-kernels: adds the weights of the bundle `options.rebuild` to `contents`, if its
/// summary equals the one that this compiler made. Otherwise the error describes the difference.
/// \param remark  receives a human-readable remark
Status takeFromBundle(const CompileOptions &options, bundle::BundleContents &contents,
                      std::string &remark);

} // namespace zorse::pipelines
