// The model to plan for: an ONNX file, a bundle, a summary, or dimensions alone.
#pragma once

#include "zorse/Pipelines/Compile.h"
#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Layers.h"

#include "bundle.pb.h"

#include <optional>
#include <string>

namespace zorse {

struct LoadedModel {
  bundle::ModelSummary summary;
  std::optional<bundle::BodyLibrary> bodies;  ///< of ONNX files and bundles
  std::optional<planning::LayerTable> layers; ///< of tables of layers; its summary is moved to `summary`
};

/// `path`: FILE.onnx, a bundle's directory, a table of layers (*.json), or a summary (*.pb).
/// The message of an error is empty where everything has been printed.
Result<LoadedModel> loadModel(const std::string &path, pipelines::CompileOptions options);

/// `text`: a known shape, key=value settings, or both, separated by commas: "llama-7b,precision=f16",
/// "layers=24,hidden=2048,ffn=5504,heads=16,vocabulary=32000". Without `precision` it is bf16 where every device of the cluster has it, else f16.
Result<LoadedModel> shapeModel(const std::string &text, int64_t sequence, const planning::Cluster *cluster);

} // namespace zorse
