#include "LoadModel.h"

#include "zorse/Bundle/BundleReader.h"
#include "zorse/ModelShapes/ModelShape.h"
#include "zorse/Pipelines/DivisibleOnnx.h"
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

namespace {

/// A shape and what else its text says.
struct GivenShape {
  shapes::ReadShape read;
  std::optional<Precision> precision;
};

/// Replaces the shape by a known one, by a family or by that of a configuration; `part` has no
/// value.
Status startFrom(const std::string &part, shapes::ReadShape &read) {
  if (part.size() > 5 && part.compare(part.size() - 5, 5, ".json") == 0) {
    Result<shapes::ReadShape> config = shapes::readModelConfig(part);
    if (config.failed())
      return config.error();
    read = std::move(*config);
    return Status::success();
  }
  std::optional<shapes::ModelShape> known = shapes::findModelShape(part);
  if (!known)
    return userError("--model-shape: '" + part +
                     "' is unknown; known shapes: " + shapes::knownModelShapes() +
                     "; or the path of a config.json; or family= and dimensions such as layers=, "
                     "hidden=, ffn=, heads=, vocabulary=");
  read.shape = *known;
  return Status::success();
}

Status applyPart(const std::string &key, const std::string &value, GivenShape &given) {
  if (key == "precision") {
    if (value != "f32" && value != "f16" && value != "bf16")
      return userError("precision: expected f32, f16 or bf16, got '" + value + "'");
    given.precision = parsePrecision(value);
    return Status::success();
  }
  if (key == "family") {
    std::optional<shapes::ModelShape> family = shapes::findFamily(value);
    if (!family)
      return userError("family: expected one of " + shapes::knownFamilies() + ", got '" + value +
                       "'");
    given.read.shape = *family;
    return Status::success();
  }
  return shapes::applySetting(given.read.shape, {key, value});
}

/// \param sequence  of --seq-length; 0: not given
Result<GivenShape> readShape(const std::string &text, int64_t sequence) {
  GivenShape given{{*shapes::findFamily("llama"), {}}, std::nullopt};
  given.read.shape.name = "shape";
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    Status status = equals == std::string::npos
                        ? startFrom(part, given.read)
                        : applyPart(part.substr(0, equals), part.substr(equals + 1), given);
    if (status.failed())
      return equals == std::string::npos ? status : userError("--model-shape: " + status.message());
  }
  shapes::ModelShape &shape = given.read.shape;
  if (shape.sequence == 0)
    shape.sequence = sequence;
  if (shape.sequence == 0 && shape.task != shapes::ModelShape::Task::Image)
    return userError("--model-shape needs --seq-length, the tokens of a sample");
  if (Status status = shapes::complete(shape); status.failed())
    return status;
  return given;
}

bool allCompute(const planning::Cluster *cluster, bundle::ElementType type) {
  return !cluster || std::all_of(cluster->devices.begin(), cluster->devices.end(),
                                 [&](const planning::ClusterDevice &device) {
                                   return device.flopsPerSecond[planning::speedIndex(type)] > 0;
                                 });
}

} // namespace

Result<LoadedModel> zorse::shapeModel(const std::string &text, pipelines::CompileOptions options,
                                      bool precisionGiven, const planning::Cluster *cluster) {
  Result<GivenShape> given = readShape(text, options.sequence);
  if (given.failed())
    return given.error();
  const shapes::ModelShape &shape = given->read.shape;
  std::vector<std::string> assumptions = std::move(given->read.assumptions);
  if (shape.experts > 0)
    assumptions.push_back("every expert computes every token");
  if (given->precision) {
    options.precision = *given->precision;
  } else if (!precisionGiven) {
    const bool half = !allCompute(cluster, bundle::BF16);
    options.precision = *parsePrecision(half ? "f16" : "bf16");
    assumptions.push_back(
        half ? "the model computes in f16, because not every device has bf16 (--model-shape "
               "...,precision=f32 changes it)"
             : "the model computes in bf16 (--model-shape ...,precision=f16 changes it)");
  }
  llvm::Expected<std::unique_ptr<codegen::PrivateDirectory>> folder =
      codegen::PrivateDirectory::create("zorse-shape");
  if (!folder)
    return userError(llvm::toString(folder.takeError()));
  const std::string path = (*folder)->path() + "/" + shape.name + ".onnx";
  if (Status status = shapes::writeOnnx(shape, path); status.failed())
    return status;
  options.quiet = true;
  if (shape.task == shapes::ModelShape::Task::Image)
    options.sequence = 0; // of texts
  if (options.train.empty() && options.freeze.empty())
    options.train = {"*"};
  Result<LoadedModel> model = loadModel(path, options);
  if (model.failed())
    return model;
  model->assumptions = std::move(assumptions);
  model->folder = std::move(*folder);
  return model;
}
