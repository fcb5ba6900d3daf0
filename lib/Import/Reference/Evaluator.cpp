#include "Evaluator.h"

#include "../ONNX/Lazy.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::onnx_import;
using namespace zorse::onnx_reference;

namespace {

const OperatorMap &operators() {
  static const OperatorMap map = [] {
    OperatorMap all;
    addElementwise(all);
    addActivations(all);
    addShapes(all);
    addMoves(all);
    addPicks(all);
    addReductions(all);
    addNormalisations(all);
    addProducts(all);
    addLosses(all);
    return all;
  }();
  return map;
}

bool readsShapeAlone(const GraphNode &node) {
  return node.domain.empty() && (node.op == "Shape" || node.op == "Size");
}

template <typename T> T at(const uint8_t *data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

double realAt(ElementKind type, const uint8_t *data, int64_t i) {
  switch (type) {
  case ElementKind::F64:
    return at<double>(data, i);
  case ElementKind::F16:
    return halfToFloat(at<uint16_t>(data, i));
  case ElementKind::BF16: {
    const uint32_t bits = static_cast<uint32_t>(at<uint16_t>(data, i)) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  default:
    return at<float>(data, i);
  }
}

int64_t integerAt(ElementKind type, const uint8_t *data, int64_t i) {
  switch (type) {
  case ElementKind::I64:
  case ElementKind::U64:
    return at<int64_t>(data, i);
  case ElementKind::I32:
    return at<int32_t>(data, i);
  case ElementKind::U32:
    return at<uint32_t>(data, i);
  case ElementKind::I16:
    return at<int16_t>(data, i);
  case ElementKind::U16:
    return at<uint16_t>(data, i);
  case ElementKind::I8:
    return at<int8_t>(data, i);
  case ElementKind::Bool:
    return data[i] != 0;
  default:
    return data[i];
  }
}

} // namespace

zorse::Result<Array> zorse::onnx_reference::readTensor(LoadedModel &model,
                                                       const onnx::Tensor &tensor) {
  auto bytes = model.bytes(tensor, /*mayLackFile=*/true);
  if (bytes.failed())
    return bytes.error();
  if (bytes->missing)
    return userError("the numbers of '" + tensor.name() + "' are missing");
  const auto type = static_cast<ElementKind>(tensor.data_type());
  if (byteSize(type) == 0)
    return userError("'" + tensor.name() + "' has no numbers");
  const Shape shape(tensor.dims().begin(), tensor.dims().end());
  if (product(shape) > kMaxElements)
    return userError("'" + tensor.name() + "' has more than 2^26 elements");
  const uint8_t *data = bytes->owned ? bytes->owned->data() : bytes->data;
  Array result = Array::of(type, shape);
  for (int64_t i = 0; i < result.size(); ++i)
    if (result.isFloat())
      result.reals[i] = realAt(type, data, i);
    else
      result.integers[i] = integerAt(type, data, i);
  return result;
}

Evaluator::Evaluator(const FlatGraph &graph, LoadedModel &model, Options options, Given given,
                     GivenShape givenShape)
    : graph(graph), model(model), options(options), given(std::move(given)),
      givenShape(std::move(givenShape)) {
  index(graph.body);
}

bool Evaluator::index(const GraphBody &body) {
  for (auto &[value, tensor] : body.initializers)
    initializers[value] = tensor;
  for (const GraphNode &node : body.nodes) {
    for (int output : node.outputs)
      if (output >= 0)
        producers[output] = &node;
    if (node.op == "If")
      for (auto &[name, nested] : node.bodies)
        index(*nested);
  }
  return true;
}

bool Evaluator::knows(const GraphNode &node) {
  return node.domain.empty() &&
         (readsShapeAlone(node) || node.op == "Constant" || node.op == "If" ||
          node.op == "SequenceAt" || operators().count(node.op));
}

bool Evaluator::store(int value, Array array) {
  elements += array.size();
  if (elements > options.maxElements)
    return why = "more than " + std::to_string(options.maxElements) + " elements", false;
  values[value] = std::move(array);
  return true;
}

bool Evaluator::supply(int value) {
  if (auto array = given(value))
    return store(value, std::move(*array));
  auto found = initializers.find(value);
  if (found == initializers.end())
    return false;
  int64_t size = 1;
  for (int64_t dim : found->second->dims())
    size *= std::max<int64_t>(dim, 1);
  if (size > options.maxElements)
    return why = "more than " + std::to_string(options.maxElements) + " elements", false;
  auto array = readTensor(model, *found->second);
  if (array.failed())
    return why = array.message(), false;
  return store(value, std::move(*array));
}

std::vector<int> Evaluator::needs(const GraphNode &node) {
  if (node.op == "SequenceAt")
    return needsOfElement(node);
  std::vector<int> list;
  if (readsShapeAlone(node) && !values.count(node.inputs[0]) && givenShape(node.inputs[0]))
    return list;
  const bool ofLabel = options.lossOfLabel && (node.op == "SoftmaxCrossEntropyLoss" ||
                                               node.op == "NegativeLogLikelihoodLoss");
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] >= 0 && !values.count(node.inputs[i]) && !(ofLabel && i == 0))
      list.push_back(node.inputs[i]);
  if (node.op == "If" && list.empty())
    if (const Array &condition = values[node.inputs[0]]; condition.size() == 1) {
      auto body = node.bodies.find(condition.real(0) != 0 ? "then_branch" : "else_branch");
      for (size_t i = 0; body != node.bodies.end() && i < body->second->outputs.size(); ++i)
        if (!values.count(body->second->outputs[i]))
          list.push_back(body->second->outputs[i]);
    }
  return list;
}

bool Evaluator::applyIf(const GraphNode &node) {
  const Array &condition = values[node.inputs[0]];
  auto body = node.bodies.find(condition.size() == 1 && condition.real(0) != 0 ? "then_branch"
                                                                               : "else_branch");
  if (body == node.bodies.end() || body->second->outputs.size() < node.outputs.size())
    return why = node.describe() + " does not have this branch", false;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] >= 0 && !store(node.outputs[i], values[body->second->outputs[i]]))
      return false;
  return true;
}

bool Evaluator::applyShape(const GraphNode &node) {
  auto found = values.find(node.inputs[0]);
  const Shape shape = found != values.end() ? found->second.shape : *givenShape(node.inputs[0]);
  if (node.op == "Size")
    return store(node.outputs[0], Array::ofInts({}, {product(shape)}));
  const Call call{node, {}, {}, {}, false};
  const auto rank = static_cast<int64_t>(shape.size());
  auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = bound(call.integer("start", 0)),
                end = std::max(begin, bound(call.integer("end", rank)));
  std::vector<int64_t> sizes(shape.begin() + begin, shape.begin() + end);
  const auto count = static_cast<int64_t>(sizes.size());
  return store(node.outputs[0], Array::ofInts({count}, std::move(sizes)));
}

bool Evaluator::apply(const GraphNode &node) {
  if (!knows(node))
    return why = "operator " + (node.domain.empty() ? "" : node.domain + ".") + node.op +
                 " (node '" + node.name + "') is not known to the evaluator",
           false;
  if (node.op == "If")
    return applyIf(node);
  if (node.op == "SequenceAt")
    return applyElement(node);
  if (readsShapeAlone(node))
    return applyShape(node);
  Call call{node, {}, std::vector<Array>(node.outputs.size()), {}, options.lossOfLabel};
  if (node.op == "Constant") {
    if (auto tensor = node.attributes.find("value"); tensor != node.attributes.end()) {
      auto array = readTensor(model, tensor->second->t());
      if (array.failed())
        return why = array.message(), false;
      return store(node.outputs[0], std::move(*array));
    }
  }
  for (int input : node.inputs)
    call.inputs.push_back(input < 0 || !values.count(input) ? nullptr : &values.at(input));
  Array fill; // value of ConstantOfShape, passed as an additional operand
  if (auto tensor = node.attributes.find("value");
      node.op == "ConstantOfShape" && tensor != node.attributes.end()) {
    auto read = readTensor(model, tensor->second->t());
    if (read.failed())
      return why = read.message(), false;
    fill = std::move(*read);
    call.inputs.push_back(&fill);
  }
  bool done = false;
  try {
    done = (node.op == "Constant" || call.in(0) || options.lossOfLabel) &&
           operators().at(node.op)(call);
  } catch (TooLarge) {
    call.problem = "has a result of more than 2^26 elements";
  }
  if (!done)
    return why = node.describe() + ": " +
                 (call.problem.empty() ? "its operands are not as expected" : call.problem),
           false;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] >= 0 && call.outputs[i].type != ElementKind::Undefined &&
        !store(node.outputs[i], std::move(call.outputs[i])))
      return false;
  return true;
}

const Array *Evaluator::evaluate(int value) {
  std::vector<int> stack{value};
  while (!stack.empty()) {
    const int top = stack.back();
    if (values.count(top)) {
      stack.pop_back();
      continue;
    }
    if (supply(top)) {
      stack.pop_back();
      continue;
    }
    if (!why.empty())
      return nullptr;
    auto producer = producers.find(top);
    if (producer == producers.end())
      return why = "'" + graph.valueNames[top] + "' has no value", nullptr;
    if (!knows(*producer->second))
      return apply(*producer->second), nullptr;
    std::vector<int> missing = needs(*producer->second);
    if (!missing.empty()) {
      stack.insert(stack.end(), missing.begin(), missing.end());
      continue;
    }
    if (!apply(*producer->second))
      return nullptr;
    if (!values.count(top))
      return why = producer->second->describe() + " does not yield '" + graph.valueNames[top] + "'",
             nullptr;
  }
  return &values.at(value);
}
