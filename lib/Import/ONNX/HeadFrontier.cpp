#include "HeadFrontier.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::onnx_import;

HeadFrontier::HeadFrontier(const FlatGraph &graph, const std::vector<HeadValue> &values, bool whole)
    : values(values), whole(whole) {
  for (auto &[value, info] : graph.inputs)
    inputs.insert(value);
  for (const GraphNode &node : graph.body.nodes)
    order.push_back(&node);
  index(graph.body);
  spread();
}

void HeadFrontier::index(const GraphBody &body) {
  for (auto &[value, tensor] : body.initializers)
    initializers.insert(value);
  for (const GraphNode &node : body.nodes) {
    for (int output : node.outputs)
      if (output >= 0)
        producers[output] = &node;
    for (auto &[name, nested] : node.bodies)
      index(*nested);
  }
}

std::vector<int> HeadFrontier::operandsOf(const GraphNode &node) const {
  std::vector<int> list = node.inputs;
  for (auto &[name, nested] : node.bodies) {
    for (const GraphNode &inner : nested->nodes) {
      const std::vector<int> more = operandsOf(inner);
      list.insert(list.end(), more.begin(), more.end());
    }
    list.insert(list.end(), nested->outputs.begin(), nested->outputs.end());
  }
  list.erase(std::remove_if(list.begin(), list.end(), [](int value) { return value < 0; }),
             list.end());
  return list;
}

// Whether the node reads a number of the batch as an operand. A number of the batch used as a
// length changes no elements, so it does not count.
bool HeadFrontier::isCritical(const GraphNode &node) const {
  static const llvm::StringSet<> lengthsBehind{"Reshape",   "Expand", "Tile", "Slice",
                                               "Split",     "Pad",    "TopK", "OneHot",
                                               "Unsqueeze", "Squeeze"};
  static const llvm::StringSet<> lengthsAlone{"ConstantOfShape", "Range"};
  using Kind = HeadValue::Kind;
  for (int output : node.outputs)
    if (output >= 0 && values[output].kind == Kind::Loss)
      return true;
  if (std::none_of(node.outputs.begin(), node.outputs.end(),
                   [&](int output) { return output >= 0 && values[output].kind == Kind::Tensor; }))
    return false;
  if (node.op == "Bernoulli" || std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
        return input >= 0 && values[input].kind == Kind::Drawn;
      }))
    return false; // masks are those of the importer
  // All operands are constants, so the node reads the numbers of samples.
  if (node.bodies.empty() && std::none_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
        return input >= 0 && values[input].kind == Kind::Tensor;
      }))
    return true;
  if (lengthsAlone.contains(node.op))
    return false;
  const size_t count = lengthsBehind.contains(node.op) ? std::min<size_t>(1, node.inputs.size())
                                                       : node.inputs.size();
  return std::any_of(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](int input) { return input >= 0 && values[input].kind == Kind::Known; });
}

void HeadFrontier::spread() {
  head.clear();
  std::set<int> below;
  for (const GraphNode *node : order) {
    const std::vector<int> operands = operandsOf(*node);
    if (!raised.count(node) && !isCritical(*node) &&
        std::none_of(operands.begin(), operands.end(),
                     [&](int value) { return below.count(value); }))
      continue;
    head.insert(node);
    for (int output : node->outputs)
      if (output >= 0 && (values[output].kind == HeadValue::Kind::Tensor ||
                          values[output].kind == HeadValue::Kind::Loss))
        below.insert(output);
  }
}

bool HeadFrontier::isCut(int value) const {
  if (inputs.count(value))
    return true;
  if (whole || values[value].kind != HeadValue::Kind::Tensor || !values[value].readable)
    return false;
  auto producer = producers.find(value);
  return producer == producers.end() ? initializers.count(value) > 0
                                     : !head.count(producer->second);
}

bool HeadFrontier::hasShape(int value) const {
  if (inputs.count(value))
    return true;
  auto producer = producers.find(value);
  return !whole && values[value].kind == HeadValue::Kind::Tensor &&
         (producer == producers.end() || !head.count(producer->second));
}

std::set<int> HeadFrontier::cuts(int loss) const {
  std::set<int> found, seen;
  std::vector<int> stack{loss};
  while (!stack.empty()) {
    const int value = stack.back();
    stack.pop_back();
    if (value < 0 || !seen.insert(value).second)
      continue;
    if (isCut(value)) {
      found.insert(value);
      continue;
    }
    auto producer = producers.find(value);
    if (producer == producers.end())
      continue;
    const GraphNode &node = *producer->second;
    if ((node.op == "Shape" || node.op == "Size") && hasShape(node.inputs[0]))
      continue;
    const bool ofLabel = lossOfLabel && (node.op == "SoftmaxCrossEntropyLoss" ||
                                         node.op == "NegativeLogLikelihoodLoss");
    for (size_t i = ofLabel ? 1 : 0; i < node.inputs.size(); ++i)
      stack.push_back(node.inputs[i]);
    for (auto &[name, nested] : node.bodies)
      stack.insert(stack.end(), nested->outputs.begin(), nested->outputs.end());
  }
  return found;
}

bool HeadFrontier::raise(const std::vector<int> &above) {
  bool any = false;
  for (int value : above)
    if (auto producer = producers.find(value); producer != producers.end())
      any |= raised.insert(producer->second).second;
  if (any)
    spread();
  return any;
}
