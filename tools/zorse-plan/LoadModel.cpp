#include "LoadModel.h"

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Pipelines/DivisibleOnnx.h"
#include "zorse/Planning/ModelShape.h"
#include "zorse/Support/RegularFile.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

using namespace zorse;

Result<LoadedModel> zorse::loadModel(const std::string &path, pipelines::CompileOptions options) {
  LoadedModel model;
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) {
    Result<bundle::BundleView> view = bundle::readBundle(path);
    if (view.failed())
      return view.error();
    model.summary = std::move(view->summary);
    model.functions = std::move(view->functions);
    return model;
  }
  if (path.size() > 5 && path.compare(path.size() - 5, 5, ".onnx") == 0) {
    options.model = path;
    model.functions.emplace();
    if (!pipelines::summarizeModel(options, model.summary, *model.functions))
      return userError("");
    model.divisible = std::make_shared<pipelines::DivisibleOnnx>(options);
    return model;
  }
  if (path.size() > 5 && path.compare(path.size() - 5, 5, ".json") == 0) {
    Result<planning::LayerTable> layers = planning::readLayersFile(path);
    if (layers.failed())
      return layers.error();
    model.layers = std::move(*layers);
    model.summary = std::move(model.layers->summary);
    return model;
  }
  Result<std::string> bytes = readRegularFile(path, INT32_MAX);
  if (bytes.failed())
    return bytes.error();
  if (!model.summary.ParseFromString(*bytes) || model.summary.units_size() == 0)
    return userError(path + ": expected an ONNX file (*.onnx), a bundle, a table of layers "
                            "(*.json) or a model summary (summary.pb), found none of these");
  return model;
}

Result<LoadedModel> zorse::shapeModel(const std::string &text, int64_t sequence,
                                      const bundle::TrainingOptions &training,
                                      const planning::Cluster *cluster) {
  planning::ModelShape shape;
  shape.name = "shape";
  shape.sequence = sequence;
  shape.training = training;
  bool precision = false;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      std::optional<planning::ModelShape> known = planning::findModelShape(part);
      if (!known)
        return userError(
            "--model-shape: '" + part +
            "' is unknown; known shapes: " + planning::knownModelShapes() +
            "; or set layers=, hidden=, ffn=, heads=, kv_heads=, vocabulary=, precision=");
      known->sequence = shape.sequence;
      known->training = training;
      shape = *known;
      continue;
    }
    const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
    if (key == "precision") {
      precision = true;
      if (value != "f32" && value != "f16" && value != "bf16")
        return userError("--model-shape: precision: expected f32, f16 or bf16, got '" + value +
                         "'");
      shape.computeType = value == "f32"   ? bundle::F32
                          : value == "f16" ? bundle::F16
                                           : bundle::BF16;
      continue;
    }
    const std::pair<const char *, int64_t *> keys[] = {
        {"layers", &shape.layers},    {"hidden", &shape.hidden},
        {"ffn", &shape.ffn},          {"heads", &shape.heads},
        {"kv_heads", &shape.kvHeads}, {"vocabulary", &shape.vocabulary},
        {"sequence", &shape.sequence}};
    auto it =
        std::find_if(std::begin(keys), std::end(keys), [&](auto &k) { return key == k.first; });
    if (it == std::end(keys))
      return userError("--model-shape: unknown setting '" + key +
                       "'; known settings: layers, hidden, ffn, heads, kv_heads, vocabulary, "
                       "sequence, precision");
    if (value.empty() || value.size() > 15 ||
        value.find_first_not_of("0123456789") != std::string::npos)
      return userError("--model-shape: " + key + ": expected a whole number, got '" + value + "'");
    *it->second = std::stoll(value);
  }
  if (shape.kvHeads == 0)
    shape.kvHeads = shape.heads;
  if (shape.sequence == 0)
    return userError("--model-shape needs --seq-length, the tokens of a sample");
  if (!precision && cluster)
    for (const planning::ClusterDevice &device : cluster->devices)
      if (device.flopsPerSecond[planning::speedIndex(bundle::BF16)] <= 0)
        shape.computeType = bundle::F16;
  LoadedModel model;
  if (!precision)
    model.assumptions.push_back(
        shape.computeType == bundle::F16
            ? "the model computes in f16, because not every device has bf16 (--model-shape "
              "...,precision=f32 changes it)"
            : "the model computes in bf16 (--model-shape ...,precision=f16 changes it)");
  Result<bundle::ModelSummary> summary = planning::makeSummary(shape);
  if (summary.failed())
    return summary.error();
  model.summary = std::move(*summary);
  model.divisible = std::make_shared<planning::DivisibleShape>(shape);
  return model;
}
