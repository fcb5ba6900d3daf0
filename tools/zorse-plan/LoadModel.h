// Loads the model to plan for: an ONNX file, a bundle, a summary, or model dimensions.
#pragma once

#include "zorse/Codegen/PrivateDirectory.h"
#include "zorse/Pipelines/Compile.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DividedModel.h"
#include "zorse/Planning/Layers.h"

#include "bundle.pb.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse {

struct LoadedModel {
  std::shared_ptr<codegen::PrivateDirectory> folder; ///< of the file of a shape; `divisible` reads
                                                     ///< it
  bundle::ModelSummary summary;
  std::optional<bundle::FunctionLibrary> functions; ///< set for ONNX files and bundles
  std::optional<planning::LayerTable> layers; ///< set for tables of layers; the table's summary is
                                              ///< moved to `summary`
  std::vector<std::string> assumptions;       ///< about the model, for the report
  std::shared_ptr<planning::DivisibleModel> divisible; ///< nullptr: groups of devices cannot divide
                                                       ///< the model
};

/// Loads `path`: FILE.onnx, a bundle directory, a table of layers (*.json), or a summary (*.pb).
/// The message of an error is empty if it has already been printed.
Result<LoadedModel> loadModel(const std::string &path, pipelines::CompileOptions options);

/// Writes the graph of a model from its dimensions to a file, and loads it. \param text  a known
/// shape, the path of a config.json, key=value settings, or several of these, separated by commas:
/// "llama-7b,precision=f16", "family=gpt,layers=24,hidden=2048,ffn=8192,heads=16,vocabulary=50304"
/// \param precisionGiven  whether the caller chose options.precision. If neither does the text, it
/// is bf16 if every device of the cluster supports it, otherwise f16.
Result<LoadedModel> shapeModel(const std::string &text, pipelines::CompileOptions options,
                               bool precisionGiven, const planning::Cluster *cluster);

} // namespace zorse
