// Writes a copy of an ONNX file with other parameter values. Everything else is preserved: protobuf
// keeps fields that our schema does not define.
#include "OnnxExport.h"

#include "Loader.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::exporting;
using namespace zorse::runtime;

namespace {

constexpr uint64_t kAlignment = 4096; ///< alignment of external data; the ONNX specification
                                      ///< recommends it for memory mapping

std::optional<StoredType> storedTypeOf(const onnx::Tensor &tensor) {
  using onnx_import::ElementKind;
  switch (static_cast<ElementKind>(tensor.data_type())) {
  case ElementKind::F64:
    return StoredType::F64;
  case ElementKind::F32:
    return StoredType::F32;
  case ElementKind::F16:
    return StoredType::F16;
  case ElementKind::BF16:
    return StoredType::BF16;
  case ElementKind::I64:
    return StoredType::I64;
  case ElementKind::I32:
    return StoredType::I32;
  case ElementKind::I16:
    return StoredType::I16;
  case ElementKind::I8:
    return StoredType::I8;
  case ElementKind::U64:
    return StoredType::U64;
  case ElementKind::U32:
    return StoredType::U32;
  case ElementKind::U16:
    return StoredType::U16;
  case ElementKind::U8:
    return StoredType::U8;
  case ElementKind::Bool:
    return StoredType::Bool;
  default:
    return std::nullopt;
  }
}

std::vector<int64_t> shapeOf(const onnx::Tensor &tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

class OnnxExport {
public:
  OnnxExport(const CheckpointReader &source, onnx_import::LoadedModel &model, std::string path)
      : source_(source), model_(model), graph_(*model.mutableModel().mutable_graph()),
        path_(std::move(path)) {}

  Status run(std::string &note) {
    for (onnx::Tensor &tensor : *graph_.mutable_initializer())
      initializers_[tensor.name()] = &tensor;
    if (Status status = findTrained(); status.failed())
      return status;
    if (Status status = findTies(); status.failed())
      return status;
    checkFrozen(note);
    if (Status status = writeExternal(); status.failed())
      return status;
    for (auto &[tensor, fill] : fills_)
      if (tensor->data_location() != 1)
        if (Status status = fillEmbedded(*tensor, fill); status.failed())
          return status;
    return writeModel();
  }

private:
  struct Fill {
    uint32_t parameter;
    bool transposed;
  };

  Status findTrained() {
    std::string missing, different;
    size_t missed = 0;
    const std::vector<CheckpointParameter> &parameters = source_.index().parameters;
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].trainable)
        continue;
      auto found = initializers_.find(parameters[p].name);
      onnx::Tensor *tensor = found != initializers_.end() ? found->second : separate(parameters[p]);
      if (!tensor) {
        missing += ++missed > 5 ? "" : (missing.empty() ? "'" : ", '") + parameters[p].name + "'";
        continue;
      }
      std::optional<StoredType> type = storedTypeOf(*tensor);
      if (shapeOf(*tensor) != parameters[p].storedShape() || !type || !isFloat(*type))
        different = parameters[p].name;
      fills_[tensor] = {p, false};
    }
    if (missed || !different.empty())
      return userError(
          model_.path() + ": is not the model that " + source_.path() + " was trained from: " +
          (missed ? "it has no initializer " + missing +
                        (missed > 5 ? " and " + std::to_string(missed - 5) + " more" : "")
                  : "initializer '" + different + "' has another shape or type"));
    return Status::success();
  }

  /// Restores a parameter that the exporter had merged into another one and left as
  /// Identity(other): it becomes an initializer again.
  onnx::Tensor *separate(const CheckpointParameter &parameter) {
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::Node &node = graph_.node(i);
      if (node.op_type() != "Identity" || node.input_size() != 1 || node.output_size() != 1 ||
          node.output(0) != parameter.name)
        continue;
      auto other = initializers_.find(node.input(0));
      if (other == initializers_.end())
        return nullptr;
      onnx::Tensor copy = *other->second;
      copy.set_name(parameter.name);
      graph_.mutable_node()->DeleteSubrange(i, 1);
      onnx::Tensor *added = graph_.add_initializer();
      *added = std::move(copy);
      return initializers_[parameter.name] = added;
    }
    return nullptr;
  }

  /// Finds matrices that the compiler treats as the transpose of a trained one because they are
  /// bitwise equal to it.
  Status findTies() {
    std::set<std::string> known;
    for (const CheckpointParameter &parameter : source_.index().parameters)
      known.insert(parameter.name);
    std::map<onnx::Tensor *, Fill> ties;
    for (onnx::Tensor &tensor : *graph_.mutable_initializer()) {
      std::optional<StoredType> type = storedTypeOf(tensor);
      if (known.count(tensor.name()) || tensor.dims_size() != 2 || !type || !isFloat(*type))
        continue;
      for (const auto &[original, fill] : fills_) {
        if (original->data_type() != tensor.data_type() || original->dims_size() != 2 ||
            original->dims(0) != tensor.dims(1) || original->dims(1) != tensor.dims(0))
          continue;
        Result<onnx_import::TensorBytes> a = model_.bytes(tensor), b = model_.bytes(*original);
        if (a.failed() || b.failed())
          return userError(model_.path() + ": " + (a.failed() ? a : b).message());
        if (isTransposed(*a, *b, tensor.dims(0), tensor.dims(1), bytesOf(*type))) {
          ties[&tensor] = {fill.parameter, true};
          break;
        }
      }
    }
    fills_.insert(ties.begin(), ties.end());
    return Status::success();
  }

  static const uint8_t *dataOf(const onnx_import::TensorBytes &bytes) {
    return bytes.owned ? bytes.owned->data() : bytes.data;
  }

  static bool isTransposed(const onnx_import::TensorBytes &left,
                           const onnx_import::TensorBytes &right, int64_t n, int64_t m,
                           size_t width) {
    const uint8_t *a = dataOf(left), *b = dataOf(right);
    bool varies = false;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) {
        const uint8_t *element = a + size_t(i * m + j) * width;
        if (std::memcmp(element, b + size_t(j * n + i) * width, width) != 0)
          return false;
        varies |= std::memcmp(element, a, width) != 0;
      }
    return varies;
  }

  void checkFrozen(std::string &note) {
    const std::vector<CheckpointParameter> &parameters = source_.index().parameters;
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      auto found = initializers_.find(parameters[p].name);
      if (parameters[p].trainable || found == initializers_.end())
        continue;
      std::optional<StoredType> type = storedTypeOf(*found->second);
      Result<onnx_import::TensorBytes> bytes = model_.bytes(*found->second);
      if (bytes.failed() || !type || shapeOf(*found->second) != parameters[p].storedShape() ||
          !source_.isFrozen(p, *type, reinterpret_cast<const std::byte *>(dataOf(*bytes))))
        note += (note.empty() ? "" : "\n") +
                ("frozen parameter '" + parameters[p].name + "' keeps the values of " +
                 model_.path() + ", but the run used other values (--load-weights?)");
    }
  }

  Status produce(const onnx::Tensor &tensor, const Fill &fill, std::string &out) const {
    StoredType type = *storedTypeOf(tensor);
    const CheckpointParameter &parameter = source_.index().parameters[fill.parameter];
    out.resize(size_t(parameter.elements()) * bytesOf(type));
    if (Status status =
            source_.readStored(fill.parameter, type, reinterpret_cast<std::byte *>(out.data()));
        status.failed())
      return status;
    if (fill.transposed) {
      std::string transposed(out.size(), '\0');
      permuteElements(out.data(), transposed.data(), bytesOf(type), parameter.storedShape(),
                      {1, 0});
      out = std::move(transposed);
    }
    return Status::success();
  }

  Status fillEmbedded(onnx::Tensor &tensor, const Fill &fill) const {
    std::string bytes;
    if (Status status = produce(tensor, fill, bytes); status.failed())
      return status;
    tensor.clear_float_data();
    tensor.clear_double_data();
    tensor.clear_int32_data();
    *tensor.mutable_raw_data() = std::move(bytes);
    return Status::success();
  }

  void visitTensors(onnx::Graph &graph, const std::function<void(onnx::Tensor &)> &visit) {
    for (onnx::Tensor &tensor : *graph.mutable_initializer())
      visit(tensor);
    for (onnx::Node &node : *graph.mutable_node())
      visitTensors(node, visit);
  }
  void visitTensors(onnx::Node &node, const std::function<void(onnx::Tensor &)> &visit) {
    for (onnx::Attribute &attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        visit(*attribute.mutable_t());
      for (onnx::Tensor &tensor : *attribute.mutable_tensors())
        visit(tensor);
      if (attribute.has_g())
        visitTensors(*attribute.mutable_g(), visit);
      for (onnx::Graph &graph : *attribute.mutable_graphs())
        visitTensors(graph, visit);
    }
  }

  /// Writes all external tensors of the original, trained or not, to one file next to the output.
  Status writeExternal() {
    std::vector<onnx::Tensor *> external;
    auto collect = [&](onnx::Tensor &tensor) {
      if (tensor.data_location() == 1)
        external.push_back(&tensor);
    };
    visitTensors(graph_, collect);
    for (onnx::Function &function : *model_.mutableModel().mutable_functions())
      for (onnx::Node &node : *function.mutable_node())
        visitTensors(node, collect);
    if (external.empty())
      return Status::success();

    std::string location = std::filesystem::path(path_).filename().string() + ".data",
                path = path_ + ".data";
    std::filesystem::path directory = std::filesystem::path(model_.path()).parent_path();
    std::vector<NamedPath> inputs;
    for (onnx::Tensor *tensor : external)
      for (const onnx::StringPair &entry : tensor->external_data())
        if (entry.key() == "location" &&
            (inputs.empty() || inputs.back().path != directory / entry.value()))
          inputs.push_back({"the data of " + model_.path(), (directory / entry.value()).string()});
    inputs.push_back({"the original", model_.path()});
    if (Status status =
            checkOverwrites(inputs, {{"the data of --output", path}, {"--output", path_}});
        status.failed())
      return status;

    Status problem;
    uint64_t at = 0;
    Status status = writeOutput(path, [&](FILE *file) {
      const std::string zeros(kAlignment, '\0');
      for (onnx::Tensor *tensor : external) {
        std::string made;
        Result<onnx_import::TensorBytes> original = model_.bytes(*tensor);
        if (original.failed()) {
          problem = userError(model_.path() + ": " + original.message());
          return false;
        }
        const char *data = reinterpret_cast<const char *>(dataOf(*original));
        uint64_t size = original->size;
        if (auto fill = fills_.find(tensor); fill != fills_.end()) {
          problem = produce(*tensor, fill->second, made);
          if (problem.failed())
            return false;
          data = made.data();
          size = made.size();
        }
        uint64_t padding = (kAlignment - at % kAlignment) % kAlignment;
        if ((padding && std::fwrite(zeros.data(), 1, padding, file) != padding) ||
            (size && std::fwrite(data, 1, size, file) != size))
          return false;
        at += padding;
        places_.push_back({tensor, at, size});
        at += size;
      }
      return true;
    });
    if (problem.failed())
      return problem;
    if (status.failed())
      return status;
    for (const Place &place : places_) {
      place.tensor->clear_external_data();
      for (const auto &[key, value] : {std::pair<const char *, std::string>{"location", location},
                                       {"offset", std::to_string(place.offset)},
                                       {"length", std::to_string(place.size)}}) {
        onnx::StringPair &entry = *place.tensor->add_external_data();
        entry.set_key(key);
        entry.set_value(value);
      }
    }
    return Status::success();
  }

  Status writeModel() const {
    const onnx::Model &model = model_.model();
    size_t bytes = model.ByteSizeLong();
    if (bytes > size_t(INT32_MAX))
      return userError(path_ + ": would have " + std::to_string(bytes) +
                       " bytes, but an ONNX file is limited to 2 GiB; store the original's tensors "
                       "as external data");
    return writeOutput(path_, [&](FILE *file) {
      std::string text; // at most 2 GiB, and small if the data is external
      return model.SerializePartialToString(&text) &&
             std::fwrite(text.data(), 1, text.size(), file) == text.size();
    });
  }

  struct Place {
    onnx::Tensor *tensor;
    uint64_t offset, size;
  };

  const CheckpointReader &source_;
  onnx_import::LoadedModel &model_;
  onnx::Graph &graph_;
  std::string path_;
  std::map<std::string, onnx::Tensor *> initializers_;
  std::map<onnx::Tensor *, Fill> fills_;
  std::vector<Place> places_;
};

} // namespace

Status zorse::exporting::exportOnnx(const CheckpointReader &source, const std::string &original,
                                    const std::string &path, std::string &note) {
  Result<std::unique_ptr<onnx_import::LoadedModel>> model =
      onnx_import::LoadedModel::load(original);
  if (model.failed())
    return model.error();
  return OnnxExport(source, **model, path).run(note);
}
