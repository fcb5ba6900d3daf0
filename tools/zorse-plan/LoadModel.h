// Loads the model to plan for: an ONNX file, a bundle, a summary, or model dimensions.
#pragma once

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

/// Creates the summary of a model from `text`: a known shape, key=value settings, or both,
/// separated by commas, such as "llama-7b,precision=f16" or
/// "layers=24,hidden=2048,ffn=5504,heads=16,vocabulary=32000". The default `precision` is bf16 if
/// every device of the cluster supports it, otherwise f16. \param training  decides about optimizer
/// states
Result<LoadedModel> shapeModel(const std::string &text, int64_t sequence,
                               const bundle::TrainingOptions &training,
                               const planning::Cluster *cluster);

} // namespace zorse
