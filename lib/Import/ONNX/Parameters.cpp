// Which initializers are trained, where their bytes are, and what the exporter did to them.
#include "Importer.h"

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

/// What the dynamo exporter wrote about an initializer, if it did.
std::string recordedKind(const google::protobuf::RepeatedPtrField<onnx::StringPair> &properties) {
  for (const onnx::StringPair &entry : properties)
    if (StringRef(entry.key()).ends_with("InputSpec.kind"))
      return entry.value();
  return {};
}

/// By initializer; where there is one, its name is the model's own.
std::map<std::string, std::string> recordedKinds(const onnx::Graph &graph) {
  std::map<std::string, std::string> kinds;
  for (const onnx::ValueInfo &info : graph.value_info())
    if (std::string kind = recordedKind(info.metadata_props()); !kind.empty())
      kinds[info.name()] = kind;
  for (const onnx::Tensor &tensor : graph.initializer())
    if (std::string kind = recordedKind(tensor.metadata_props()); !kind.empty())
      kinds[tensor.name()] = kind;
  return kinds;
}

/// The innermost module a node came from, "" if the file does not say.
std::string moduleOf(const onnx::Node &node) {
  for (const onnx::StringPair &entry : node.metadata_props())
    if (StringRef(entry.key()).ends_with("name_scopes")) {
      // "['', 'h.0', 'h.0.ln_1', 'layer_norm']": the last but one.
      SmallVector<StringRef> parts;
      StringRef(entry.value()).trim("[]").split(parts, ',');
      if (parts.size() >= 2)
        return parts[parts.size() - 2].trim(" '\"").str();
    }
  return {};
}

bool looksRenamed(StringRef name) {
  return name.starts_with("val_") || name.starts_with("onnx::") || name.starts_with("embedding") || name.starts_with("_") || name.starts_with("constant") || !name.contains('.');
}

} // namespace

/// Whether a float initializer holds 0 where a score counts and a very negative number elsewhere.
bool Importer::isMask(const onnx::Tensor &tensor) {
  std::string problem;
  auto bytes = model.bytes(tensor, problem, options.weightsLater);
  if (!bytes || bytes->missing)
    return false;
  int64_t count = 1;
  for (int64_t dim : tensor.dims())
    count *= dim;
  auto kind = static_cast<ElementKind>(tensor.data_type());
  LazyPtr lazy = makeBytes(kind, *bytes, count);
  std::vector<double> chunk(4096);
  for (int64_t at = 0; at < count; at += static_cast<int64_t>(chunk.size())) {
    int64_t n = std::min<int64_t>(count - at, static_cast<int64_t>(chunk.size()));
    lazy->readFloats(at, 1, n, chunk.data());
    if (std::any_of(chunk.begin(), chunk.begin() + n, [](double x) { return x != 0 && !(x <= -1e4); }))
      return false;
  }
  return true;
}

void Importer::classifyInitializers() {
  std::map<std::string, std::string> kinds = recordedKinds(model.model().graph());
  bool anyKind = false;

  // Which values depend on the data of an input (not only on its shape), and who uses what.
  const std::vector<GraphNode> &nodes = graph.body.nodes;
  llvm::DenseSet<int> data;
  std::map<int, std::vector<std::pair<size_t, size_t>>> users;
  for (auto &[value, info] : graph.inputs)
    data.insert(value);
  for (size_t i = 0; i < nodes.size(); ++i) {
    bool depends = false;
    for (size_t k = 0; k < nodes[i].inputs.size(); ++k)
      if (nodes[i].inputs[k] >= 0) {
        depends |= data.contains(nodes[i].inputs[k]);
        users[nodes[i].inputs[k]].emplace_back(i, k);
      }
    depends |= !nodes[i].bodies.empty();
    if (depends && nodes[i].op != "Shape" && nodes[i].op != "Size" && nodes[i].op != "CastLike")
      for (int output : nodes[i].outputs)
        if (output >= 0)
          data.insert(output);
    if (depends && nodes[i].op == "CastLike" && !nodes[i].inputs.empty() && nodes[i].inputs[0] >= 0 && data.contains(nodes[i].inputs[0]))
      data.insert(nodes[i].outputs[0]);
  }

  static const llvm::StringSet<> views{"Identity", "Transpose", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Expand", "Split"};
  static const llvm::StringSet<> scoreOps{"Add", "Mul", "Div", "Sub", "Reshape", "Unsqueeze", "Squeeze", "Cast", "Expand", "Where", "Slice", "Transpose", "Identity", "Tanh", "CastLike"};

  // Whether a value reaches a softmax without a product or a norm between: then what is added to it is a mask or a bias of scores.
  std::map<int, bool> reaches;
  std::function<bool(int, int)> reachesSoftmax = [&](int value, int depth) -> bool {
    auto [found, isNew] = reaches.try_emplace(value, false);
    if (!isNew || depth > 64)
      return found->second;
    bool result = false;
    for (auto &[index, position] : users[value]) {
      const GraphNode &user = nodes[index];
      if (user.op == "Softmax" || (user.op == "Attention" && position == 3))
        result = true;
      else if (scoreOps.contains(user.op))
        for (int output : user.outputs)
          result |= output >= 0 && reachesSoftmax(output, depth + 1);
    }
    return reaches[value] = result;
  };

  std::function<bool(int, int)> isAddedToScores = [&](int value, int depth) {
    return depth < 16 && std::any_of(users[value].begin(), users[value].end(), [&](auto &use) {
      const GraphNode &user = nodes[use.first];
      if (user.op == "Attention")
        return use.second == 3;
      if (views.contains(user.op) || user.op == "Gather")
        return use.second == 0 && std::any_of(user.outputs.begin(), user.outputs.end(), [&](int output) { return output >= 0 && isAddedToScores(output, depth + 1); });
      // Operands have not been checked yet: an Add may have any number of them.
      return user.op == "Add" && user.inputs.size() == 2 && user.inputs[1 - use.second] >= 0 && data.contains(user.inputs[1 - use.second]) && reachesSoftmax(user.outputs[0], 0);
    });
  };

  bool named = false; // the initializer looked at has the name that the model gave it
  std::vector<std::string> addedToScores;
  std::function<bool(int, int64_t, int)> isTrained = [&](int value, int64_t rank, int depth) -> bool {
    if (depth > 16)
      return false;
    for (auto &[index, position] : users[value]) {
      const GraphNode &user = nodes[index];
      auto other = [&](size_t operand) { return operand < user.inputs.size() && user.inputs[operand] >= 0 && data.contains(user.inputs[operand]); };
      auto follow = [&]() {
        for (int output : user.outputs)
          if (output >= 0 && isTrained(output, rank, depth + 1))
            return true;
        return false;
      };
      if (views.contains(user.op) && position == 0) {
        if (follow())
          return true;
      } else if (user.op == "MatMul" || user.op == "Gemm") {
        if (position == 2 || other(1 - position))
          return true;
      } else if (user.op == "Conv") {
        if (position > 0 && other(0))
          return true;
      } else if (user.op == "LayerNormalization" || user.op == "RMSNormalization" || user.op == "SimplifiedLayerNormalization") {
        if (position > 0 && other(0))
          return true;
      } else if (user.op == "Gather" && position == 0) {
        // A table looked up by constant ids under its own name is an embedding (of distances, say), even where it ends in scores.
        if (rank >= 2 && (other(1) || follow() || (rank == 2 && depth == 0 && named)))
          return true;
      } else if (user.op == "Add" || user.op == "Sub") {
        bool withData = other(1 - position);
        if (withData ? rank == 1 || !reachesSoftmax(user.outputs[0], 0) : follow())
          return true;
      } else if (user.op == "Mul") {
        bool withData = other(1 - position);
        if (withData ? rank == 1 : rank == 1 && follow())
          return true;
      } else if (user.op == "Concat") {
        if (other(position == 0 ? 1 : 0) && rank >= 2)
          return true; // a class token
      }
    }
    return false;
  };

  for (auto &[value, tensor] : graph.body.initializers) {
    auto kind = static_cast<ElementKind>(tensor->data_type());
    InitializerRole role = InitializerRole::Constant;
    int64_t elements = 1;
    for (int64_t dim : tensor->dims())
      if (__builtin_mul_overflow(elements, std::max<int64_t>(dim, 0), &elements)) // refused where the tensor is read
        elements = INT64_MAX;
    auto recorded = kinds.find(tensor->name());
    auto forced = options.trainable.find(tensor->name());
    named = !looksRenamed(tensor->name());
    if (isFloat(kind) && elements > 0) {
      if (recorded != kinds.end()) {
        anyKind = true;
        role = StringRef(recorded->second).contains("PARAMETER") ? InitializerRole::Trained : InitializerRole::Constant;
      } else if (tensor->dims_size() >= 1 && (elements > 1 || !looksRenamed(tensor->name())) && isTrained(value, tensor->dims_size(), 0)) {
        role = InitializerRole::Trained;
        if (tensor->dims_size() >= 2 && std::none_of(users[value].begin(), users[value].end(), [&](auto &use) {
              return nodes[use.first].op == "MatMul" || nodes[use.first].op == "Gemm" || nodes[use.first].op == "Gather" || views.contains(nodes[use.first].op);
            }))
          notes.push_back("initializer '" + tensor->name() + "' is added to activations and is trained (a position table?); freeze it with --freeze=" + tensor->name());
      } else if (elements > 1 && forced == options.trainable.end() && isAddedToScores(value, 0) && !isMask(*tensor)) {
        addedToScores.push_back(tensor->name());
      }
      if (forced != options.trainable.end())
        role = forced->second == TrainableChoice::Train ? InitializerRole::Trained : elements > (1 << 17) ? InitializerRole::Frozen : InitializerRole::Constant;
    } else if (forced != options.trainable.end() && forced->second == TrainableChoice::Train) {
      warn("initializer '" + tensor->name() + "' cannot be trained: its elements are not floats");
    }
    roles[tensor] = role;
  }
  (void)anyKind;
  if (!addedToScores.empty()) {
    std::string list;
    for (size_t i = 0; i < addedToScores.size() && i < 6; ++i)
      list += (i ? ", '" : "'") + addedToScores[i] + "'";
    warn("what is added to attention scores from " + list + (addedToScores.size() > 6 ? ", ..." : "") +
         " stays constant (a fixed bias such as ALiBi?). If the model trains it, the exporter has folded a parameter: export with torch.onnx.export(..., dynamo=True, optimize=False), or "
         "train the folded values with --train=NAME");
  }

  // Names that models give have dots, except those of the outermost module; a table of embeddings is the model's own.
  std::set<const onnx::Tensor *> own;
  for (auto &[value, tensor] : graph.body.initializers)
    if (StringRef(tensor->name()).contains('.') || std::any_of(users[value].begin(), users[value].end(), [&](auto &use) { return nodes[use.first].op == "Gather" && use.second == 0; }))
      own.insert(tensor);

  // TorchScript merges parameters of equal values and leaves `Identity(survivor) -> original name`: each gets its own storage back. Matrices that are equal were tied by the model.
  for (GraphNode &node : graph.body.nodes) {
    if (node.op != "Identity" || node.inputs.size() != 1 || node.inputs[0] < 0 || node.outputs.empty() || node.outputs[0] < 0)
      continue;
    auto source = std::find_if(graph.body.initializers.begin(), graph.body.initializers.end(), [&](auto &entry) { return entry.first == node.inputs[0]; });
    if (source == graph.body.initializers.end() || roles[source->second] != InitializerRole::Trained || source->second->dims_size() != 1)
      continue;
    const std::string &original = graph.valueNames[node.outputs[0]];
    if (looksRenamed(original) || StringRef(original).contains("/"))
      continue;
    auto copy = std::make_unique<onnx::Tensor>(*source->second);
    copy->set_name(original);
    notes.push_back("parameter '" + original + "' was merged into '" + source->second->name() + "' by the exporter and is separate again");
    roles[copy.get()] = InitializerRole::Trained;
    initializers[node.outputs[0]] = copy.get();
    rawSources[copy.get()] = source->second;
    restored.push_back(std::move(copy));
    node.op = "zorse.restored";
  }
  graph.body.nodes.erase(std::remove_if(graph.body.nodes.begin(), graph.body.nodes.end(), [](const GraphNode &node) { return node.op == "zorse.restored"; }), graph.body.nodes.end());
  restoreTies(own);
}

/// Whether a [n, m] holds the transpose of b [m, n] to the bit, and is not one number throughout.
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

// An exporter that folds the transpose of a tied matrix writes it twice, and training both would untie them: matrices that are equal to the bit were one parameter.
void Importer::restoreTies(const std::set<const onnx::Tensor *> &own) {
  auto isMatrix = [&](const onnx::Tensor *tensor) { return roles[tensor] == InitializerRole::Trained && tensor->dims_size() == 2 && !options.trainable.count(tensor->name()); };
  for (auto &[renamedValue, renamed] : graph.body.initializers) {
    if (!isMatrix(renamed) || own.count(renamed))
      continue;
    for (auto &[value, original] : graph.body.initializers) {
      if (!isMatrix(original) || !own.count(original) || original->data_type() != renamed->data_type() || original->dims(0) != renamed->dims(1) ||
          original->dims(1) != renamed->dims(0))
        continue;
      std::string problem;
      auto a = model.bytes(*renamed, problem, options.weightsLater), b = model.bytes(*original, problem, options.weightsLater);
      size_t width = byteSize(static_cast<ElementKind>(renamed->data_type()));
      if (!a || !b || a->missing || b->missing || width == 0 || !isTransposed(a->owned ? a->owned->data() : a->data, b->owned ? b->owned->data() : b->data, renamed->dims(0), renamed->dims(1), width))
        continue;
      transposeOf[renamed] = original;
      notes.push_back("'" + renamed->name() + "' is the transpose of parameter '" + original->name() + "', written twice by the exporter: they are one parameter again");
      break;
    }
  }
}

static WeightSource::Type storedType(ElementKind kind) {
  switch (kind) {
  case ElementKind::F64: return WeightSource::Type::F64;
  case ElementKind::F16: return WeightSource::Type::F16;
  case ElementKind::BF16: return WeightSource::Type::BF16;
  case ElementKind::I64: return WeightSource::Type::I64;
  case ElementKind::I32: return WeightSource::Type::I32;
  case ElementKind::Bool: return WeightSource::Type::Bool;
  default: return WeightSource::Type::F32;
  }
}

Val Importer::parameter(const onnx::Tensor &tensor, bool trainable) {
  auto known = parameters.find(&tensor);
  if (known != parameters.end())
    return known->second;
  if (auto tie = transposeOf.find(&tensor); tie != transposeOf.end()) {
    Val original = parameter(*tie->second, trainable);
    std::swap(original.view.dims[0], original.view.dims[1]);
    return original;
  }
  auto kind = static_cast<ElementKind>(tensor.data_type());
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  auto type = RankedTensorType::get(shape, elementType(kind));
  Value argument = block->addArgument(type, NameLoc::get(builder.getStringAttr(tensor.name())));
  if (trainable)
    tainted.insert(argument);

  std::string problem;
  auto source = rawSources.find(&tensor);
  auto bytes = model.bytes(source == rawSources.end() ? tensor : *source->second, problem, options.weightsLater); // checked when initializers were read
  WeightSource weight;
  weight.parameter = tensor.name();
  weight.shape = shape;
  weight.storedType = storedType(kind);
  if (bytes) {
    weight.file = bytes->file;
    weight.offset = bytes->offset;
    weight.bytes = bytes->size;
    weight.data = bytes->data;
    if (!bytes->missing && (bytes->file.empty() || bytes->owned))
      weight.owned = bytes->owned ? bytes->owned : std::make_shared<std::vector<uint8_t>>(bytes->data, bytes->data + bytes->size);
    if (weight.owned)
      weight.data = weight.owned->data();
  }
  weightOfArgument[cast<BlockArgument>(argument).getArgNumber()] = weights.size();
  weights.push_back(std::move(weight));
  NamedAttrList attributes;
  attributes.set(attributes::kParameter, builder.getStringAttr(tensor.name()));
  attributes.set(attributes::kTrainable, builder.getBoolAttr(trainable));
  argumentAttributes.push_back(attributes.getDictionary(&context));
  Val value = wrap(argument, kind, shape);
  return parameters[&tensor] = value;
}

// What a user knows an operand as: the parameter it is, or the name of the value.
std::string Importer::nameOf(const GraphNode &node, size_t index) const {
  const Val &value = in(node, index);
  if (value.isGraph())
    if (auto argument = dyn_cast<BlockArgument>(value.value))
      if (auto found = weightOfArgument.find(argument.getArgNumber()); found != weightOfArgument.end())
        return "'" + weights[found->second].parameter + "'";
  return "'" + graph.valueNames[node.inputs[index]] + "'";
}

// A constant above 1 MiB: an argument that is not trained, whose bytes the bundle copies.
Value Importer::liftedBytes(RankedTensorType type, std::shared_ptr<std::vector<uint8_t>> bytes) {
  for (auto &[number, index] : weightOfArgument)
    if (weights[index].owned && *weights[index].owned == *bytes && block->getArgument(number).getType() == type)
      return block->getArgument(number);
  std::string name = "constant." + std::to_string(weights.size());
  Value argument = block->addArgument(type, location);
  WeightSource weight;
  weight.parameter = name;
  weight.shape = type.getShape().vec();
  Type element = type.getElementType();
  weight.storedType = element.isF64() ? WeightSource::Type::F64 : element.isF32() ? WeightSource::Type::F32 : element.isInteger(64) ? WeightSource::Type::I64
                      : element.isInteger(32) ? WeightSource::Type::I32 : WeightSource::Type::Bool;
  weight.owned = bytes;
  weight.bytes = bytes->size();
  weight.data = bytes->data();
  weightOfArgument[cast<BlockArgument>(argument).getArgNumber()] = weights.size();
  weights.push_back(std::move(weight));
  NamedAttrList attributes;
  attributes.set(attributes::kParameter, builder.getStringAttr(name));
  attributes.set(attributes::kTrainable, builder.getBoolAttr(false));
  argumentAttributes.push_back(attributes.getDictionary(&context));
  return argument;
}

// Says what cannot be undone: parameters that the exporter merged, renamed or folded.
void Importer::reportParameters(ImportedModel &result) {
  const char *remedy = ". Export with torch.onnx.export(..., dynamo=True, optimize=False), which keeps every parameter with its name and layout";
  std::map<std::string, std::vector<std::string>> sites;
  std::map<std::string, std::string> recorded = recordedKinds(model.model().graph());
  static const llvm::StringSet<> views{"Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Cast"};
  for (const onnx::Node &node : model.model().graph().node()) {
    if (views.contains(node.op_type()))
      continue;
    for (const std::string &input : node.input()) {
      if (input.empty())
        continue;
      std::string module = moduleOf(node);
      sites[input].push_back(module.empty() ? node.name() : module);
    }
  }
  int64_t trained = 0, frozen = 0;
  std::vector<std::string> renamed;
  for (const onnx::Tensor &tensor : model.model().graph().initializer()) {
    auto found = parameters.find(&tensor);
    if (found == parameters.end() || roles[&tensor] != InitializerRole::Trained)
      continue;
    std::vector<std::string> &uses = sites[tensor.name()];
    std::set<std::string> distinct(uses.begin(), uses.end());
    // A vector of one norm or one bias has one user; tied matrices are the model's own doing.
    if (tensor.dims_size() == 1 && distinct.size() > 1) {
      std::string list;
      for (const std::string &use : distinct)
        list += (list.empty() ? "'" : ", '") + use + "'";
      warn("parameter '" + tensor.name() + "' is shared by " + std::to_string(distinct.size()) + " modules (" + list +
           "): the exporter merged parameters whose initial values are equal, and training this file ties them" + remedy);
    }
    if (!recorded.count(tensor.name()) && looksRenamed(tensor.name()))
      renamed.push_back(tensor.name());
  }
  for (const WeightSource &weight : result.weights)
    (void)weight;
  for (auto &[tensor, value] : parameters)
    ++(roles[tensor] == InitializerRole::Trained ? trained : frozen);
  if (!renamed.empty()) {
    std::string list;
    for (size_t i = 0; i < renamed.size() && i < 6; ++i)
      list += (i ? ", '" : "'") + renamed[i] + "'";
    if (renamed.size() > 6)
      list += ", ...";
    warn(std::to_string(renamed.size()) + " trained parameters have lost their names or layout in the export (" + list + "): the checkpoint will not load into the model by name" + remedy);
  }
  if (inertDropouts > 0)
    warn(std::to_string(inertDropouts) + (dropouts > 0 ? " Dropout nodes do not train although others do" : " Dropout nodes do not train") +
         " (training_mode is absent or false): exporters lose the mode of attention dropout; export in training mode if dropout is wanted");
  if (guessedSingleRow)
    warn("the file fixes one sample, so the sample axis is ambiguous in some reshapes; an axis of exactly one element was chosen. Export with a symbolic batch dimension, or with at least 2 samples");
  notes.push_back(std::to_string(trained) + " parameters are trained");
}
