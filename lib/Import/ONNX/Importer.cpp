#include "Initializers.h"
#include "Interpret.h"
#include "Known.h"
#include "Lengths.h"
#include "Losses.h"
#include "OpContext.h"
#include "TrainingFile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// An input as the file declares it.
struct Input {
  int value = -1;
  std::string name;
  ElementKind type = ElementKind::Undefined;
  std::vector<int64_t> shape; ///< 0 in dimension 0 where it is symbolic
};

} // namespace

/// \param baked  samples that an input before fixed, and this one may fix for others; 0: none. \param bakedBy  its name
static LogicalResult readInput(ImportState &state, const onnx::ValueInfo &info, Input &input, int64_t &baked, std::string &bakedBy) {
  if (!info.type().has_tensor_type())
    return error(state, "input '" + info.name() + "' is not a tensor");
  const onnx::Type::TensorType &tensor = info.type().tensor_type();
  input.name = info.name();
  input.type = static_cast<ElementKind>(tensor.elem_type());
  if (!byteSize(input.type))
    return error(state, "input '" + info.name() + "': element type " + Twine(name(input.type)) + " is not supported");
  if (!tensor.has_shape() || tensor.shape().dim_size() == 0)
    return error(state, "input '" + info.name() + "': expects a shape whose dimension 0 counts samples, found " +
                            (tensor.has_shape() ? "a scalar" : "none"));
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto &dim = tensor.shape().dim(i);
    int64_t size = dim.has_dim_value() ? dim.dim_value() : 0;
    std::string symbol = dim.has_dim_param() ? dim.dim_param() : "";
    if (i == 0) {
      if (size > 0) {
        if (baked && baked != size)
          return error(state, "inputs '" + bakedBy + "' and '" + info.name() + "' hold " + Twine(baked) + " and " + Twine(size) +
                                  " samples in dimension 0; expects one number of samples for all inputs");
        baked = size;
        bakedBy = info.name();
      }
    } else if (size <= 0) {
      auto bound = state.options.dims.find(symbol);
      if (bound != state.options.dims.end())
        size = bound->second;
      else if (i == 1 && state.options.sequence > 0)
        size = state.options.sequence;
      else
        return error(state, "input '" + info.name() + "': dimension " + Twine(i) + (symbol.empty() ? Twine("") : " ('" + symbol + "')") +
                                " is symbolic; give the sequence length (--seq), or its value by name (--dim " + (symbol.empty() ? "name" : symbol) +
                                "=N)");
    } else if (i == 1 && state.options.sequence > 0 && state.options.sequence != size) {
      return error(state, "input '" + info.name() + "': the file fixes dimension 1 to " + Twine(size) + ", but a sequence of " +
                              Twine(state.options.sequence) + " is asked for; export with a symbolic sequence dimension");
    }
    if (size > (int64_t(1) << 32))
      return error(state, "input '" + info.name() + "': dimension " + Twine(i) + " is too large");
    input.shape.push_back(size);
  }
  return success();
}

/// Adds the argument. \param group  samples of a row
static LogicalResult bindInput(ImportState &state, Input &input, int64_t group) {
  SmallVector<int64_t> shape{ShapedType::kDynamic};
  input.shape[0] = state.rows;
  if (state.options.batchNormRows > 0)
    input.shape.insert(input.shape.begin() + 1, group);
  shape.append(input.shape.begin() + 1, input.shape.end());
  if (!isSensible(input.shape))
    return error(state, "input '" + input.name + "': its shape is too large, at most 2^44 elements and 16 dimensions are supported");
  if (!isFloat(input.type) && input.type != ElementKind::I64 && input.type != ElementKind::I32 && input.type != ElementKind::Bool)
    return error(state,
                 "input '" + input.name + "': element type " + Twine(name(input.type)) + " is not supported; use int64, int32, bool or a float type");
  Value argument =
      state.block->addArgument(RankedTensorType::get(shape, elementType(state, input.type)), NameLoc::get(state.builder.getStringAttr(input.name)));
  state.inputArguments[input.name] = static_cast<unsigned>(state.inputNames.size());
  state.inputNames.push_back(input.name);
  ImportedValue &value = state.values[input.value] = wrap(argument, input.type, input.shape);
  if (state.options.batchNormRows > 0) { // the file counts single samples
    FactorList &samples = value.view.dims[0], &inside = value.view.dims[1];
    samples.insert(samples.end(), inside.begin(), inside.end());
    value.view.dims.erase(value.view.dims.begin() + 1);
  }
  return success();
}

/// Inputs: dimension 0 is the sample axis. `rows` is the file's batch where it is a number, otherwise one that divides no number of the file.
static LogicalResult bindInputs(ImportState &state) {
  std::vector<Input> inputs;
  int64_t baked = 0;
  std::string bakedBy;
  for (auto &[value, info] : state.graph.inputs) {
    inputs.emplace_back().value = value;
    if (failed(readInput(state, *info, inputs.back(), baked, bakedBy)))
      return failure();
  }
  if (inputs.empty())
    return error(state, "the graph has no inputs: nothing carries samples");
  state.rowsBaked = baked > 0;
  const int64_t group = std::max<int64_t>(state.options.batchNormRows, 1);
  if (baked % group != 0)
    return error(state, "input '" + bakedBy + "' holds " + Twine(baked) + " samples in dimension 0; --batch-norm-rows expects a multiple of " +
                            Twine(group));
  state.rows = baked / group;
  if (!state.rowsBaked)
    choosePlaceholder(state);
  state.notes.push_back(state.rowsBaked
                            ? "the file fixes " + std::to_string(state.rows) + " samples; the sample axis is found from there and made dynamic"
                            : "samples are a symbolic dimension");

  for (Input &input : inputs)
    if (failed(bindInput(state, input, group)))
      return failure();
  return success();
}

/// Up to five of `names`, the most similar to `wanted` first.
static std::string similar(std::vector<std::string> names, StringRef wanted) {
  if (names.empty())
    return "none";
  std::stable_sort(names.begin(), names.end(), [&](StringRef a, StringRef b) { return a.edit_distance(wanted) < b.edit_distance(wanted); });
  std::string text;
  for (size_t i = 0; i < names.size() && i < 5; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > 5 ? ", ..." : "");
}

LogicalResult zorse::onnx_import::checkNames(ImportState &state) {
  std::set<std::string> symbols;
  for (auto &[value, info] : state.graph.inputs)
    for (int i = 1; i < info->type().tensor_type().shape().dim_size(); ++i)
      if (const auto &dim = info->type().tensor_type().shape().dim(i); dim.has_dim_param())
        symbols.insert(dim.dim_param());
  for (auto &[name, size] : state.options.dims)
    if (!symbols.count(name))
      return error(state, "no dimension of an input behind the samples is called '" + name +
                              "'; there are: " + similar({symbols.begin(), symbols.end()}, name));
  std::vector<std::string> initializerNames;
  for (auto &[value, tensor] : state.graph.body.initializers)
    for (const std::string &other : state.facts.namesOf(tensor->name()))
      initializerNames.push_back(other);
  for (auto &[name, fact] : state.facts.parameters)
    initializerNames.push_back(name);
  for (const GraphNode &node : state.graph.body.nodes) // parameters that the exporter has merged
    if (node.op == "Identity" && !node.inputs.empty() && state.initializers.count(node.inputs[0]))
      initializerNames.push_back(state.graph.valueNames[node.outputs[0]]);
  llvm::sort(initializerNames);
  initializerNames.erase(std::unique(initializerNames.begin(), initializerNames.end()), initializerNames.end());
  for (auto &[name, choice] : state.options.trainable)
    if (llvm::none_of(initializerNames, [&](const std::string &other) { return matches(name, other); }))
      return error(state, "no initializer is called '" + name + "', which is to be " + (choice == TrainableChoice::Train ? "trained" : "frozen") +
                              "; there are: " + similar(initializerNames, name));
  return success();
}

static LogicalResult readInitializers(ImportState &state, const std::vector<int> &wanted) {
  for (auto &[value, tensor] : state.graph.body.initializers) {
    state.initializers[value] = tensor;
    if (tensor->name() == "__metadata__")
      return error(
          state, "initializer '__metadata__': safetensors files keep this name for themselves, so no checkpoint could hold it. Rename the parameter");
  }
  if (failed(classifyInitializers(state, wanted)))
    return failure();
  for (auto &[value, tensor] : state.graph.body.initializers) {
    auto bytes = state.model.bytes(*tensor, state.options.weightsLater);
    if (bytes.failed())
      return error(state, bytes.message());
    if (state.roles[tensor] != InitializerRole::Constant)
      continue; // an argument once it is used
    if (bytes->missing)
      return error(state, "constant '" + tensor->name() + "': its value decides the graph, and its file '" + bytes->file +
                              "' is not there. Export constants inside the model, or put the file beside it");
    int64_t size = 1;
    std::vector<int64_t> shape(tensor->dims().begin(), tensor->dims().end());
    for (int64_t dim : shape)
      size *= dim;
    auto kind = static_cast<ElementKind>(tensor->data_type());
    state.values[value] = constantOf(kind, makeBytes(kind, *bytes, size), shape);
  }
  return success();
}

// Nodes with the same operator, attributes and inputs have the same outputs, unless they draw random numbers.
static std::string numberingKey(const GraphNode &node, const std::vector<int> &canonical) {
  static const llvm::StringSet<> draws{"Dropout", "RandomUniform", "RandomUniformLike", "Bernoulli"};
  if (draws.contains(node.op) || !node.bodies.empty())
    return {};
  std::string key = node.domain + "." + node.op + (node.detach ? "!" : "") + (node.padding ? "^" + std::to_string(*node.padding) : std::string());
  for (int value : node.inputs)
    key += "," + std::to_string(value < 0 ? -1 : canonical[value]);
  key += "#" + std::to_string(node.outputs.size());
  for (auto &[name, attribute] : node.attributes) {
    key += ";" + name + "=";
    if (attribute->has_t() && attribute->t().ByteSizeLong() > 4096)
      return {};
    std::string text;
    if (!attribute->SerializeToString(&text))
      return {};
    key += text;
  }
  return key;
}

/// Whether nothing but the shape of the node's result is read.
/// Exporters take the largest of ids to find the shape that they broadcast to.
static bool isReadForShape(OpContext &op) {
  if (op.node.op != "Max" || op.node.inputs.empty() || !op.node.domain.empty())
    return false;
  bool read = false;
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    if (const ImportedValue &operand = op.operand(i); !operand.isArray() || isFloat(operand.type) || !isSensible(operand.shape()))
      return false;
  if (std::find(op.state.graph.body.outputs.begin(), op.state.graph.body.outputs.end(), op.node.outputs[0]) != op.state.graph.body.outputs.end())
    return false;
  for (const GraphNode &other : op.state.graph.body.nodes) {
    const bool uses = std::find(other.inputs.begin(), other.inputs.end(), op.node.outputs[0]) != other.inputs.end();
    if ((uses && other.op != "Shape") || !other.bodies.empty())
      return false;
    read |= uses;
  }
  return read;
}

/// Gradients stop at what a node made from a detach yields.
static LogicalResult detach(OpContext &op, ImportedValue &value) {
  if (value.isLoss())
    return op.error("detaches what depends on all samples; expects losses and values of samples");
  if (auto *sequence = std::get_if<Sequence>(&value.content))
    for (ImportedValue &element : sequence->elements)
      if (failed(detach(op, element)))
        return failure();
  if (value.isTensor() && isFloat(value.type) && op.state.dependsOnParameter(value.value()))
    value.tensor().value = create<DetachOp>(op.state, value.value());
  return success();
}

static LogicalResult interpretNode(OpContext &op) {
  op.state.location = NameLoc::get(op.state.builder.getStringAttr(op.node.name));
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    int value = op.node.inputs[i];
    if (value < 0)
      continue;
    if (!op.state.values[value]) {
      auto found = op.state.initializers.find(value);
      if (found == op.state.initializers.end()) {
        if (op.state.graph.valueNames[value].empty())
          continue;
        return op.error("its input '" + op.state.graph.valueNames[value] + "' has no value: the producer does not yield it");
      }
      op.state.values[value] = parameter(op.state, *found->second);
    }
  }
  if (isReadForShape(op)) { // no value of it need be there
    View view;
    for (size_t i = 0; i < op.node.inputs.size(); ++i) {
      View other = op.operand(i).view;
      if (other.rank() > view.rank())
        std::swap(other, view);
      for (int64_t k = 0; k < other.rank(); ++k) {
        int64_t axis = view.rank() - 1 - k, more = other.size(other.rank() - 1 - k);
        if (view.size(axis) != more && view.size(axis) != 1 && more != 1)
          return op.error("expects shapes that broadcast");
        if (view.size(axis) == 1)
          view.dims[axis] = other.dims[other.rank() - 1 - k];
      }
    }
    return op.result(fillOver(op.operand(0).type, 0, std::move(view)));
  }
  if (failed(applyOperator(op)))
    return failure();
  if (op.state.tooLarge > 0)
    return op.error("needs a constant of " + Twine(op.state.tooLarge) + " elements to be computed, at most " + Twine(op.state.options.mostComputed) +
                    " are");
  roundResults(op);
  for (int output : op.node.outputs) {
    if (output < 0)
      continue;
    if (op.state.values[output].rank() > 16)
      return op.error("its result has more than 16 dimensions");
    if (!isSensible(op.state.values[output].shape()))
      return op.error("its result is too large");
    if (op.node.detach && failed(detach(op, op.state.values[output])))
      return failure();
  }
  return success();
}

LogicalResult zorse::onnx_import::interpret(ImportState &state, GraphBody &body, const std::vector<int> &wanted) {
  llvm::DenseSet<int> live(wanted.begin(), wanted.end());
  std::function<void(const GraphNode &)> use = [&](const GraphNode &node) {
    for (int value : node.inputs)
      if (value >= 0)
        live.insert(value);
    for (auto &[name, nested] : node.bodies) {
      for (const GraphNode &inner : nested->nodes)
        use(inner);
      live.insert(nested->outputs.begin(), nested->outputs.end());
    }
  };
  std::vector<const GraphNode *> needed;
  for (size_t i = body.nodes.size(); i-- > 0;) {
    const GraphNode &node = body.nodes[i];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live.contains(value); })) {
      use(node);
      needed.push_back(&node);
    }
  }
  std::vector<int> canonical(state.values.size());
  for (size_t i = 0; i < canonical.size(); ++i)
    canonical[i] = static_cast<int>(i);
  std::unordered_map<std::string, const GraphNode *> numbered;
  for (size_t i = needed.size(); i-- > 0;) {
    const GraphNode &node = *needed[i];
    std::string key = numberingKey(node, canonical);
    if (!key.empty()) {
      auto [found, isNew] = numbered.try_emplace(key, &node);
      if (!isNew) {
        for (size_t k = 0; k < node.outputs.size(); ++k)
          if (node.outputs[k] >= 0 && found->second->outputs[k] >= 0) {
            state.values[node.outputs[k]] = state.values[found->second->outputs[k]];
            canonical[node.outputs[k]] = canonical[found->second->outputs[k]];
          }
        bool complete = true;
        for (size_t k = 0; k < node.outputs.size(); ++k)
          complete &= node.outputs[k] < 0 || found->second->outputs[k] >= 0;
        if (complete)
          continue;
      }
    }
    if (OpContext op(state, node); failed(interpretNode(op)))
      return failure();
  }
  return success();
}

/// What every handler may rely on: the operands an operator cannot do without are there and are tensors.
static LogicalResult checkOperands(OpContext &op) {
  size_t count = op.rule->least;
  bool sequences = op.node.op == "SequenceAt" || op.node.op == "ConcatFromSequence" || op.node.op == "Identity";
  bool anyGraph = false;
  for (size_t i = 0; i < std::max(count, op.node.inputs.size()); ++i) {
    const ImportedValue &operand = op.operand(i);
    anyGraph |= operand.isTensor();
    if (!operand && i < count)
      return op.error("expects at least " + Twine(count) + " inputs; input " + Twine(i) + " is missing");
    if (operand.isSequence() && !(sequences && i == 0))
      return op.error("expects a tensor as input " + Twine(i) + ", found a sequence");
  }
  for (size_t i = 0; anyGraph && i < op.node.inputs.size(); ++i) {
    const ImportedValue &operand = op.operand(i);
    if (!operand.isConstant())
      continue;
    int64_t moving = 1;
    for (const FactorList &list : operand.view.dims)
      for (const Factor &factor : list)
        if (factor.stride != 0 && !__builtin_mul_overflow(moving, factor.size, &moving) && moving > (int64_t(1) << 30))
          return op.error("computes with a constant of more than 2^30 elements");
  }
  return success();
}

LogicalResult zorse::onnx_import::applyOperator(OpContext &op) {
  if (!op.rule)
    return op.error("the operator is not supported");
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    if (op.operand(i).isLoss()) {
      static const llvm::StringSet<> lossOps{"Add",      "Sub",      "Mul",        "Div",       "Neg",        "Sum",  "Cast",
                                             "CastLike", "Identity", "Reshape",    "Squeeze",   "Unsqueeze",  "Max",  "Min",
                                             "Clip",     "Shape",    "Dropout",    "ReduceSum", "ReduceMean", "Sqrt", "Exp",
                                             "Log",      "Abs",      "Reciprocal", "Tanh",      "Sigmoid",    "Relu", "Softplus"};
      if (!lossOps.contains(op.node.op) && !op.operand(i).isSums() && op.node.op != "Concat")
        return notAffine(op, "uses");
    }
  if (failed(checkOperands(op)))
    return failure();
  if (auto done = applyToDrawn(op))
    return *done;
  if (auto done = applyToSums(op))
    return *done;
  if (auto done = applyToKnown(op))
    return *done;
  if (auto done = applyToSampleNumbers(op))
    return *done;
  return op.rule->import(op);
}

/// The loss: an output by name, an output called loss, or the only scalar output.
static LogicalResult chooseLoss(ImportState &state, std::vector<int> &wanted) {
  auto byName = [&](const std::string &name) -> int {
    const auto &outputs = state.model.model().graph().output();
    for (int i = 0; i < outputs.size(); ++i)
      if (outputs[i].name() == name)
        return state.graph.body.outputs[i];
    for (size_t i = 0; i < state.graph.valueNames.size(); ++i)
      if (state.graph.valueNames[i] == name)
        return static_cast<int>(i);
    return -1;
  };
  const auto &outputs = state.model.model().graph().output();
  std::string names;
  for (const auto &output : outputs)
    names += (names.empty() ? "'" : ", '") + output.name() + "'";
  if (!state.options.loss.empty()) {
    if (state.options.loss != "cross_entropy")
      return error(state, "loss '" + state.options.loss + "' is not known; expects cross_entropy");
    std::string name = state.options.logits.empty() && outputs.size() ? outputs[0].name() : state.options.logits;
    int value = byName(name);
    if (value < 0)
      return error(state, "logits '" + name + "' are not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  if (!state.options.lossOutput.empty()) {
    int value = byName(state.options.lossOutput);
    if (value < 0)
      return error(state, "loss '" + state.options.lossOutput + "' is not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  int chosen = -1, scalars = 0;
  for (int i = 0; i < outputs.size(); ++i) {
    const auto &tensor = outputs[i].type().tensor_type();
    bool scalarLike =
        !tensor.has_shape() || tensor.shape().dim_size() == 0 || (tensor.shape().dim_size() == 1 && tensor.shape().dim(0).dim_value() == 1);
    if (outputs[i].name() == "loss" && scalarLike) {
      chosen = i;
      scalars = 1;
      break;
    }
    if (scalarLike && ++scalars == 1)
      chosen = i;
  }
  if (scalars != 1)
    return error(state, "expects one scalar output, the loss; found " + Twine(scalars) + " among " + names +
                            ". Name it (--loss-output=NAME), or add a loss (--loss=cross_entropy --logits=NAME --labels=NAME)");
  wanted = {state.graph.body.outputs[chosen]};
  return success();
}

static LogicalResult run(ImportState &state, ImportedModel &result) {
  state.values.resize(state.graph.valueNames.size());
  state.module = ModuleOp::create(UnknownLoc::get(&state.context));
  Region region;
  state.block = new Block();
  std::unique_ptr<Block> owner(state.block);
  state.builder.setInsertionPointToEnd(state.block);

  std::vector<int> wanted;
  if (failed(chooseLoss(state, wanted)) || failed(checkSupported(state, wanted)) || failed(readInitializers(state, wanted)) ||
      failed(bindInputs(state)) || failed(interpret(state, state.graph.body, wanted)))
    return failure();
  if (state.options.batchNormRows > 0 && state.statistics.empty())
    return error(
        state,
        "--batch-norm-rows: no node takes statistics of the batch: there is no BatchNormalization, or all of them are frozen. Leave the option out");
  state.lossNumber = state.options.loss.empty() ? wanted[0] : -1;
  ImportedValue loss = state.values[wanted[0]];
  if (auto number = loss.view.elements() == 1 && loss.isKnown() ? uniformNumber(state, loss) : std::nullopt) {
    if (!state.options.inputsAlone)
      return error(
          state, "the loss '" + state.graph.valueNames[wanted[0]] + "' depends on no parameter: it is " + number->print() +
                     " (B: the samples of a step; n0, n1, ...: sums of inputs over them), so there is nothing to train. Where parameters are meant, "
                     "export in training mode, and look for a detach() or no_grad() on the way");
    loss.content = Loss{};
    addNumber(state, *number, loss.loss().summands);
  }
  if (!state.options.loss.empty()) {
    LogicalResult status = success();
    auto added = addedLoss(state, status);
    if (failed(status) || !added)
      return failure();
    loss = *added;
  }
  if (loss.isSums())
    return error(state, "the loss '" + state.graph.valueNames[wanted[0]] + "' has " + Twine(loss.view.elements()) +
                            " values; expects one: their sum or mean");
  const bool isZero = loss.isLoss() && llvm::all_of(loss.loss().summands, [](const LossSummand &part) { return part.factor.is(0); });
  if (isZero || (loss.view.elements() == 1 && loss.isConstant()))
    return error(
        state,
        "the loss '" + state.graph.valueNames[wanted[0]] + "' is the number " + Number(isZero ? 0 : uniformValue(state, loss).value_or(0)).print() +
            ", whatever samples and parameters are: there is nothing to train. Look for a detach(), a no_grad() or a factor of 0 on the way, and "
            "export in training mode");
  if (loss.view.elements() == 1 && loss.isTensor() && !isSampled(loss))
    return error(
        state,
        "the loss '" + state.graph.valueNames[wanted[0]] +
            "' is a function of parameters alone: expects a scalar that sums over samples. Add it to a loss of the samples, or compute that one "
            "here (--loss=cross_entropy --logits=NAME --labels=NAME) and use --weight-decay for a penalty");
  if (!loss.isLoss()) {
    if (loss.isTensor() && isSampled(loss) && loss.view.elements() == state.rows)
      return error(state, "the loss '" + state.graph.valueNames[wanted[0]] + "' has one value per sample; expects their mean or sum");
    return error(state, "the output '" + state.graph.valueNames[wanted[0]] +
                            "' is not a loss: expects a scalar that sums over samples; found a tensor of rank " + Twine(loss.rank()) +
                            ". Add a loss with --loss=cross_entropy --logits=NAME --labels=NAME");
  }
  result.nodesRead = static_cast<int64_t>(state.graph.body.nodes.size());
  (void)owner.release();
  return finish(state, loss.loss(), result);
}

/// Loss and trained parameters as the file's own training has them, but for what the caller has said.
static void adopt(const FileTraining &training, const onnx::Model &model, ImportOptions &options, std::vector<std::string> &notes) {
  if (options.loss.empty() && options.lossOutput.empty())
    options.lossOutput = training.loss;
  std::set<std::string> trained(training.trained.begin(), training.trained.end());
  for (const onnx::Tensor &tensor : model.graph().initializer())
    if (isFloat(static_cast<ElementKind>(tensor.data_type())))
      options.trainable.try_emplace(tensor.name(), trained.count(tensor.name()) ? TrainableChoice::Train : TrainableChoice::Freeze);
  notes.push_back("the file's " + training.form + " says what is trained (" + std::to_string(training.trained.size()) +
                  " parameters), and the loss '" + training.loss + "'");
  notes.insert(notes.end(), training.notes.begin(), training.notes.end());
}

static FailureOr<ImportedModel> import(Result<std::unique_ptr<LoadedModel>> loaded, const std::string &path, const ImportOptions &options,
                                       MLIRContext &context) {
  context.loadDialect<ZorseDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect>();
  auto fail = [&](const std::string &text) -> LogicalResult { return emitError(UnknownLoc::get(&context)) << text, failure(); };
  if (loaded.failed())
    return fail(loaded.message());
  const std::shared_ptr<LoadedModel> model = std::move(*loaded);
  ImportedModel result;
  result.storage = model;
  auto training = takeTraining(*model);
  if (training.failed())
    return fail(path + ": " + training.message());
  result.training = std::move(*training);
  ImportOptions adapted = options;
  std::vector<std::string> notes;
  if (result.training)
    adopt(*result.training, model->model(), adapted, notes);
  auto graph = flatten(*model);
  if (graph.failed())
    return fail(path + ": " + graph.message());
  ImportState state(*model, *graph, adapted, context);
  if (failed(run(state, result)))
    return failure();
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const ImportOptions &options, MLIRContext &context) {
  return import(LoadedModel::load(path), path, options, context);
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const void *bytes, uint64_t size, const ImportOptions &options,
                                           MLIRContext &context) {
  return import(LoadedModel::load(MappedFile::view(bytes, size), path), path, options, context);
}
