// Interprets a graph: finds the nodes that are needed and applies them.
#include "Interpret.h"

#include "Initializers.h"
#include "Lengths.h"
#include "Losses.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

// Nodes with the same operator, attributes and inputs have the same outputs, unless they draw
// random numbers.
static std::string numberingKey(const GraphNode &node, const std::vector<int> &canonical) {
  static const llvm::StringSet<> draws{"Dropout", "RandomUniform", "RandomUniformLike",
                                       "Bernoulli"};
  if (draws.contains(node.op) || !node.bodies.empty())
    return {};
  std::string key = node.domain + "." + node.op + (node.detach ? "!" : "") +
                    (node.padding ? "^" + std::to_string(*node.padding) : std::string());
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

/// Whether only the shape of the node's result is read. Exporters take the maximum of ids to find
/// the shape that they broadcast to.
static bool isReadForShape(OpContext &op) {
  if (op.node.op != "Max" || op.node.inputs.empty() || !op.node.domain.empty())
    return false;
  bool read = false;
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    if (const ImportedValue &operand = op.operand(i);
        !operand.isArray() || isFloat(operand.type) || !isSensible(operand.shape()))
      return false;
  if (std::find(op.state.graph.body.outputs.begin(), op.state.graph.body.outputs.end(),
                op.node.outputs[0]) != op.state.graph.body.outputs.end())
    return false;
  for (const GraphNode &other : op.state.graph.body.nodes) {
    const bool uses = std::find(other.inputs.begin(), other.inputs.end(), op.node.outputs[0]) !=
                      other.inputs.end();
    if ((uses && other.op != "Shape") || !other.bodies.empty())
      return false;
    read |= uses;
  }
  return read;
}

/// Stops gradients at the results of a node made from a detach.
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
        return op.error("its input '" + op.state.graph.valueNames[value] +
                        "' has no value: the producer does not yield it");
      }
      op.state.values[value] = parameter(op.state, *found->second);
    }
  }
  bool grouped = false;
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    grouped |= op.operand(i).grouped;
  if (!grouped && isReadForShape(op)) { // no value is needed
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
    return op.error("needs a constant of " + Twine(op.state.tooLarge) +
                    " elements to be computed, at most " + Twine(op.state.options.maxComputed) +
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

std::vector<const GraphNode *> zorse::onnx_import::neededNodes(const GraphBody &body,
                                                               const std::vector<int> &wanted) {
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
  for (const GraphNode &node : llvm::reverse(body.nodes))
    if (llvm::any_of(node.outputs, [&](int value) { return value >= 0 && live.contains(value); })) {
      use(node);
      needed.push_back(&node);
    }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

LogicalResult zorse::onnx_import::interpret(ImportState &state, const GraphBody &body,
                                            const std::vector<int> &wanted) {
  std::vector<int> canonical(state.values.size());
  for (size_t i = 0; i < canonical.size(); ++i)
    canonical[i] = static_cast<int>(i);
  std::unordered_map<std::string, const GraphNode *> numbered;
  for (const GraphNode *needed : neededNodes(body, wanted)) {
    const GraphNode &node = *needed;
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

/// Checks what every handler relies on: required operands exist and are tensors.
static LogicalResult checkOperands(OpContext &op) {
  size_t count = op.rule->min;
  bool sequences = op.node.op == "SequenceAt" || op.node.op == "ConcatFromSequence" ||
                   op.node.op == "Identity";
  bool anyGraph = false;
  for (size_t i = 0; i < std::max(count, op.node.inputs.size()); ++i) {
    const ImportedValue &operand = op.operand(i);
    anyGraph |= operand.isTensor();
    if (!operand && i < count)
      return op.error("expects at least " + Twine(count) + " inputs; input " + Twine(i) +
                      " is missing");
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
        if (factor.stride != 0 && !__builtin_mul_overflow(moving, factor.size, &moving) &&
            moving > (int64_t(1) << 30))
          return op.error("computes with a constant of more than 2^30 elements");
  }
  return success();
}

LogicalResult zorse::onnx_import::applyOperator(OpContext &op) {
  if (!op.rule)
    return op.error("the operator is not supported");
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    if (op.operand(i).isLoss()) {
      static const llvm::StringSet<> lossOps{
          "Add",      "Sub",      "Mul",        "Div",       "Neg",        "Sum",  "Cast",
          "CastLike", "Identity", "Reshape",    "Squeeze",   "Unsqueeze",  "Max",  "Min",
          "Clip",     "Shape",    "Dropout",    "ReduceSum", "ReduceMean", "Sqrt", "Exp",
          "Log",      "Abs",      "Reciprocal", "Tanh",      "Sigmoid",    "Relu", "Softplus"};
      if (!lossOps.contains(op.node.op) && !op.operand(i).isSums() && op.node.op != "Concat")
        return notAffine(op, "uses");
    }
  if (failed(checkOperands(op)))
    return failure();
  if (auto done = applyToGroups(op))
    return *done;
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
