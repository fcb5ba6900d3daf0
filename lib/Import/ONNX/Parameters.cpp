// Creates arguments for parameters: finds their bytes, restores ties that the exporter split, and
// reports how the exporter changed them. Roles.cpp decides which parameters are trained.
#include "Initializers.h"
#include "OpContext.h"
#include "Roles.h"

#include "zorse/Base/Format.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// The innermost module that a node was exported from, "" if the file does not specify it.
std::string moduleOf(const onnx::Node &node) {
  for (const onnx::StringPair &entry : node.metadata_props())
    if (StringRef(entry.key()).ends_with("name_scopes")) {
      // "['', 'h.0', 'h.0.ln_1', 'layer_norm']": the last element but one.
      SmallVector<StringRef> parts;
      StringRef(entry.value()).trim("[]").split(parts, ',');
      if (parts.size() >= 2)
        return parts[parts.size() - 2].trim(" '\"").str();
    }
  return {};
}

} // namespace

/// Whether a [n, m] is bit for bit the transpose of b [m, n], and its elements are not all equal.
static bool isTransposed(const uint8_t *a, const uint8_t *b, int64_t n, int64_t m, size_t width) {
  bool varies = false;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      const uint8_t *element = a + (i * m + j) * width;
      if (std::memcmp(element, b + (j * n + i) * width, width) != 0)
        return false;
      varies |= std::memcmp(element, a, width) != 0;
    }
  return varies;
}

// An exporter that folds the transpose of a tied matrix writes the matrix twice. Training both
// copies would untie them. Matrices that are equal bit for bit are therefore joined into one
// parameter.
void zorse::onnx_import::restoreTies(ImportState &state,
                                     const std::set<const onnx::Tensor *> &own) {
  auto isMatrix = [&](const onnx::Tensor *tensor) {
    return state.roles[tensor] == InitializerRole::Trained && tensor->dims_size() == 2 &&
           !forced(state, tensor->name()) && !state.transposeOf.count(tensor);
  };
  for (auto &[renamedValue, renamed] : state.graph.body.initializers) {
    if (!isMatrix(renamed) || own.count(renamed))
      continue;
    for (auto &[value, original] : state.graph.body.initializers) {
      if (!isMatrix(original) || !own.count(original) ||
          original->data_type() != renamed->data_type() || original->dims(0) != renamed->dims(1) ||
          original->dims(1) != renamed->dims(0))
        continue;
      auto a = state.model.bytes(*renamed, state.options.weightsLater),
           b = state.model.bytes(*original, state.options.weightsLater);
      size_t width = byteSize(static_cast<ElementKind>(renamed->data_type()));
      if (a.failed() || b.failed() || a->missing || b->missing || width == 0 ||
          !isTransposed(a->owned ? a->owned->data() : a->data,
                        b->owned ? b->owned->data() : b->data, renamed->dims(0), renamed->dims(1),
                        width))
        continue;
      state.transposeOf[renamed] = original;
      state.notes.push_back("'" + renamed->name() + "' is the transpose of parameter '" +
                            original->name() +
                            "', written twice by the exporter: they are one parameter again");
      break;
    }
  }
}

static WeightSource::Type storedType(ElementKind kind) {
  switch (kind) {
  case ElementKind::F64:
    return WeightSource::Type::F64;
  case ElementKind::F16:
    return WeightSource::Type::F16;
  case ElementKind::BF16:
    return WeightSource::Type::BF16;
  case ElementKind::I64:
    return WeightSource::Type::I64;
  case ElementKind::I32:
    return WeightSource::Type::I32;
  case ElementKind::Bool:
    return WeightSource::Type::Bool;
  default:
    return WeightSource::Type::F32;
  }
}

ImportedValue zorse::onnx_import::parameter(ImportState &state, const onnx::Tensor &tensor) {
  auto known = state.parameters.find(&tensor);
  if (known != state.parameters.end())
    return known->second;
  if (auto tie = state.transposeOf.find(&tensor); tie != state.transposeOf.end()) {
    ImportedValue original = parameter(state, *tie->second);
    std::swap(original.view.dims[0], original.view.dims[1]);
    return original;
  }
  auto kind = static_cast<ElementKind>(tensor.data_type());
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  auto type = RankedTensorType::get(shape, elementType(state, kind));
  Value argument =
      state.block->addArgument(type, NameLoc::get(state.builder.getStringAttr(tensor.name())));
  state.weighted.insert(argument);
  const bool trainable = state.roles[&tensor] == InitializerRole::Trained;
  if (trainable)
    state.tainted.insert(argument);

  auto source = state.rawSources.find(&tensor);
  auto bytes = state.model.bytes(source == state.rawSources.end() ? tensor : *source->second,
                                 state.options.weightsLater); // checked when initializers were read
  WeightSource weight;
  weight.parameter = tensor.name();
  weight.shape = shape;
  weight.storedType = storedType(kind);
  weight.hub = state.metadata.hubNameOf(tensor.name());
  if (!bytes.failed()) {
    weight.file = bytes->file;
    weight.offset = bytes->offset;
    weight.bytes = bytes->size;
    weight.data = bytes->data;
    if (!bytes->missing && (bytes->file.empty() || bytes->owned))
      weight.owned = bytes->owned ? bytes->owned
                                  : std::make_shared<std::vector<uint8_t>>(
                                        bytes->data, bytes->data + bytes->size);
    if (weight.owned)
      weight.data = weight.owned->data();
  }
  state.weightOfArgument[cast<BlockArgument>(argument).getArgNumber()] = state.weights.size();
  state.weights.push_back(std::move(weight));
  NamedAttrList attributes;
  attributes.set(attributes::kParameter, state.builder.getStringAttr(tensor.name()));
  attributes.set(attributes::kTrainable, state.builder.getBoolAttr(trainable));
  if (state.roles[&tensor] == InitializerRole::Buffer)
    attributes.set(attributes::kConstant, state.builder.getUnitAttr());
  state.argumentAttributes.push_back(attributes.getDictionary(&state.context));
  ImportedValue value = wrap(argument, kind, shape);
  return state.parameters[&tensor] = value;
}

FailureOr<Value> zorse::onnx_import::runningStatistic(OpContext &op, size_t index) {
  auto found = op.state.initializers.find(op.node.inputs[index]);
  if (found == op.state.initializers.end())
    return op.error("expects its running statistic (operand " + Twine(index) +
                    ") to be an initializer, found a value that is computed");
  const onnx::Tensor &tensor = *found->second;
  if (!isFloat(static_cast<ElementKind>(tensor.data_type())))
    return op.error("expects its running statistic '" + tensor.name() + "' to be floats");
  if (!op.state.statistics.insert(&tensor).second)
    return op.error(
        "shares its running statistic '" + tensor.name() +
        "' with another node: a step would have to update it twice. Give each node a separate one");
  Value argument = parameter(op.state, tensor).value();
  op.state.tainted.insert(argument);
  NamedAttrList attributes;
  attributes.set(attributes::kParameter, op.state.builder.getStringAttr(tensor.name()));
  attributes.set(attributes::kTrainable, op.state.builder.getBoolAttr(true));
  attributes.set(attributes::kRunningStat, op.state.builder.getUnitAttr());
  op.state.argumentAttributes[cast<BlockArgument>(argument).getArgNumber() -
                              op.state.inputNames.size()] =
      attributes.getDictionary(&op.state.context);
  return argument;
}

ImportedValue zorse::onnx_import::frozenStatistic(OpContext &op, size_t index) {
  auto found = op.state.initializers.find(op.node.inputs[index]);
  if (found == op.state.initializers.end() ||
      !isFloat(static_cast<ElementKind>(found->second->data_type())))
    return op.operand(index);
  if (op.state.roles[found->second] != InitializerRole::Trained)
    op.state.roles[found->second] = InitializerRole::Frozen;
  return parameter(op.state, *found->second);
}

// A constant above 1 MiB becomes an argument that is not trained. The bundle copies its bytes.
Value zorse::onnx_import::liftedBytes(ImportState &state, RankedTensorType type,
                                      std::shared_ptr<std::vector<uint8_t>> bytes) {
  for (auto &[number, index] : state.weightOfArgument)
    if (state.weights[index].owned && *state.weights[index].owned == *bytes &&
        state.block->getArgument(number).getType() == type)
      return state.block->getArgument(number);
  std::string name = "constant." + std::to_string(state.weights.size());
  Value argument = state.block->addArgument(type, state.location);
  state.weighted.insert(argument);
  WeightSource weight;
  weight.parameter = name;
  weight.shape = type.getShape().vec();
  Type element = type.getElementType();
  weight.storedType = element.isF64()         ? WeightSource::Type::F64
                      : element.isF32()       ? WeightSource::Type::F32
                      : element.isInteger(64) ? WeightSource::Type::I64
                      : element.isInteger(32) ? WeightSource::Type::I32
                                              : WeightSource::Type::Bool;
  weight.owned = bytes;
  weight.bytes = bytes->size();
  weight.data = bytes->data();
  state.weightOfArgument[cast<BlockArgument>(argument).getArgNumber()] = state.weights.size();
  state.weights.push_back(std::move(weight));
  NamedAttrList attributes;
  attributes.set(attributes::kParameter, state.builder.getStringAttr(name));
  attributes.set(attributes::kTrainable, state.builder.getBoolAttr(false));
  attributes.set(attributes::kConstant, state.builder.getUnitAttr());
  state.argumentAttributes.push_back(attributes.getDictionary(&state.context));
  return argument;
}

/// 1234567 as "1,234,567".
static std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = int64_t(text.size()) - 3; at > 0; at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

/// The first `max` names in quotes.
static std::string firstOf(const std::vector<std::string> &names, size_t max) {
  std::string list;
  for (size_t i = 0; i < names.size() && i < max; ++i)
    list += (i ? ", '" : "'") + names[i] + "'";
  return list + (names.size() > max ? ", ..." : "");
}

/// For every value, by name: the modules of the nodes that use it.
static std::map<std::string, std::vector<std::string>> usersOf(const onnx::Graph &graph) {
  std::map<std::string, std::vector<std::string>> sites;
  static const llvm::StringSet<> views{"Identity",  "Transpose", "Reshape",
                                       "Unsqueeze", "Squeeze",   "Cast"};
  for (const onnx::Node &node : graph.node()) {
    if (views.contains(node.op_type()))
      continue;
    for (const std::string &input : node.input()) {
      if (input.empty())
        continue;
      std::string module = moduleOf(node);
      sites[input].push_back(module.empty() ? node.name() : module);
    }
  }
  return sites;
}

static constexpr const char *kHint =
    ". Export with torch.onnx.export(..., dynamo=True, optimize=False), which keeps every "
    "parameter with its name and layout";

/// Warns about parameters that the exporter merged, renamed or folded and that cannot be restored.
static void reportChanged(ImportState &state) {
  std::map<std::string, std::vector<std::string>> sites = usersOf(state.model.model().graph());
  std::vector<std::string> renamed;
  for (const onnx::Tensor &tensor : state.model.model().graph().initializer()) {
    auto found = state.parameters.find(&tensor);
    if (found == state.parameters.end() || state.roles[&tensor] != InitializerRole::Trained)
      continue;
    std::vector<std::string> &uses = sites[tensor.name()];
    std::set<std::string> distinct(uses.begin(), uses.end());
    // A weight of a norm or a bias normally has one user; tied matrices may be intended. If the
    // file names all parameters, checkMissing finds those that were merged. A second user is then a
    // second use, such as a penalty on weights.
    if (!state.metadata.namesAll && tensor.dims_size() == 1 && distinct.size() > 1) {
      std::string list;
      for (const std::string &use : distinct)
        list += (list.empty() ? "'" : ", '") + use + "'";
      warn(state, "parameter '" + tensor.name() + "' is shared by " +
                      std::to_string(distinct.size()) + " modules (" + list +
                      "): the exporter merged parameters with equal initial values, and training "
                      "this file ties them" +
                      kHint);
    }
    if (!state.metadata.parameters.count(tensor.name()) && looksRenamed(tensor.name())) {
      auto stored = state.metadata.stored.find(tensor.name());
      renamed.push_back(tensor.name() + (stored == state.metadata.stored.end()
                                             ? ""
                                             : "' for '" + stored->second.parameter));
    }
  }
  if (!renamed.empty())
    warn(state, std::to_string(renamed.size()) +
                    " trained parameters have lost their names or layout in the export (" +
                    firstOf(renamed, 6) + "): the checkpoint will not load into the model by name" +
                    kHint);
}

/// Warns about modes of norms, dropout and samples that the user may not have intended.
static void reportModes(ImportState &state) {
  if (!state.frozenNorms.empty())
    warn(state, std::to_string(state.frozenNorms.size()) +
                    (state.frozenNorms.size() == 1 ? " batch norm (" : " batch norms (") +
                    firstOf(state.frozenNorms, 3) +
                    (state.frozenNorms.size() == 1 ? ") normalizes" : ") normalize") +
                    " by running statistics, which training does not change" +
                    (state.normsMayTrain ? "; --group-rows=G takes the statistics of "
                                           "groups of G samples, as training in PyTorch does"
                                         : ""));
  if (state.inertDropouts > 0) {
    bool exportedInTraining = state.dropouts > 0 || state.metadata.training.value_or(false);
    warn(state,
         std::to_string(state.inertDropouts) +
             (state.dropouts > 0 ? " Dropout nodes do not train although others do"
                                 : " Dropout nodes do not train") +
             " (training_mode is absent or false): " +
             (exportedInTraining ? "the file was exported in training mode, but exporters lose the "
                                   "mode of dropout inside fused attention. Write that "
                                   "dropout as a separate module (eager attention), or "
                                   "set its probability to 0 to be rid of this warning"
                                 : "export in training mode if dropout is wanted"));
  }
  if (state.drawnMasks > 0)
    state.notes.push_back(std::to_string(state.drawnMasks) +
                          (state.drawnMasks > 1 ? " masks are" : " mask is") +
                          " drawn as dropout's are (random numbers compared with a constant): by "
                          "--seed, step and sample; in evaluation each is its mean");
  if (state.guessedSingleRow && state.options.groupRows == 0)
    warn(state, "the file fixes one sample, so the sample axis is ambiguous in some reshapes; an "
                "axis of exactly one element was chosen. Export with a "
                "symbolic batch dimension, or with at least 2 samples");
}

void zorse::onnx_import::reportParameters(ImportState &state) {
  reportChanged(state);
  reportModes(state);
  int64_t trained = 0, all = 0, trainedTensors = 0;
  for (auto &[tensor, value] : state.parameters) {
    int64_t numbers = 1;
    for (int64_t dimension : tensor->dims())
      numbers *= dimension;
    all += numbers;
    trained += state.roles[tensor] == InitializerRole::Trained ? numbers : 0;
    trainedTensors += state.roles[tensor] == InitializerRole::Trained;
  }
  const double share = all > 0 ? 100 * double(trained) / double(all) : 0;
  state.notes.push_back("trained parameters: " + grouped(trained) + " of " + grouped(all) + " (" +
                        zorse::format("%.4g", share) + " %), in " + std::to_string(trainedTensors) +
                        " of " + std::to_string(state.parameters.size()) + " tensors");
}
