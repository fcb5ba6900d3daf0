// Decides which initializers are trained. Information in the file takes precedence over inference
// from their uses. Ambiguous ones stay undecided.
#include "Roles.h"

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

bool zorse::onnx_import::looksRenamed(StringRef name) {
  return name.starts_with("val_") || name.starts_with("onnx::") || name.starts_with("embedding") ||
         name.starts_with("_") || name.starts_with("constant") || !name.contains('.');
}

/// Whether only exporters use names like this.
static bool isGenerated(StringRef name) {
  return name.starts_with("val_") || name.starts_with("onnx::") || name.starts_with("_") ||
         name.starts_with("constant") || name.starts_with("scalar_tensor") || name.contains('/');
}

/// Whether the last part of the name is typical for parameters of norms and linear layers.
static bool isUsualName(StringRef name) {
  StringRef leaf = name.rsplit('.').second.empty() ? name : name.rsplit('.').second;
  std::string lower = leaf.lower();
  return !isGenerated(name) &&
         (StringRef(lower).ends_with("weight") || StringRef(lower).ends_with("bias") ||
          lower == "gamma" || lower == "beta" || lower == "gain");
}

static int64_t elementsOf(const onnx::Tensor &tensor) {
  int64_t elements = 1;
  for (int64_t dim : tensor.dims())
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dim, 0),
                               &elements)) // an error when the tensor is read
      elements = INT64_MAX;
  return elements;
}

static const llvm::StringSet<> kViews{"Identity",  "Transpose", "Cast",  "CastLike", "Reshape",
                                      "Unsqueeze", "Squeeze",   "Slice", "Expand",   "Split"};

/// Operators with weights in all operands after the first.
static const llvm::StringSet<> kWeighted{"Conv",
                                         "ConvTranspose",
                                         "PRelu",
                                         "LayerNormalization",
                                         "RMSNormalization",
                                         "SimplifiedLayerNormalization",
                                         "InstanceNormalization",
                                         "GroupNormalization",
                                         "BatchNormalization",
                                         "BiasGelu",
                                         "FastGelu"};

/// Whether a gradient of the outputs propagates to operand `position`.
static bool passesGradient(const GraphNode &node, size_t position) {
  static const llvm::StringSet<> none{"Shape",
                                      "Size",
                                      "Equal",
                                      "Less",
                                      "LessOrEqual",
                                      "Greater",
                                      "GreaterOrEqual",
                                      "And",
                                      "Or",
                                      "Xor",
                                      "Not",
                                      "IsNaN",
                                      "IsInf",
                                      "Range",
                                      "ConstantOfShape",
                                      "ArgMax",
                                      "ArgMin",
                                      "NonZero",
                                      "Hardmax",
                                      "EyeLike",
                                      "Floor",
                                      "Ceil",
                                      "Round",
                                      "Sign",
                                      "OneHot",
                                      "RandomUniformLike",
                                      "Bernoulli"};
  static const llvm::StringSet<> firstOnly{"CastLike",
                                           "Gather",
                                           "GatherElements",
                                           "GatherND",
                                           "Reshape",
                                           "Expand",
                                           "Tile",
                                           "Slice",
                                           "Unsqueeze",
                                           "Squeeze",
                                           "Pad",
                                           "Split",
                                           "Trilu",
                                           "CumSum",
                                           "CumProd",
                                           "Dropout",
                                           "SoftmaxCrossEntropyLoss",
                                           "NegativeLogLikelihoodLoss",
                                           "ReduceSum",
                                           "ReduceMean",
                                           "ReduceMax",
                                           "ReduceMin",
                                           "ReduceL1",
                                           "ReduceL2",
                                           "ReduceProd",
                                           "ReduceLogSum",
                                           "ReduceLogSumExp",
                                           "ReduceSumSquare",
                                           "TopK",
                                           "Resize"};
  if (node.detach || none.contains(node.op))
    return false;
  if (position > 0 && firstOnly.contains(node.op))
    return false;
  if (node.op == "Where" && position == 0)
    return false;
  if ((node.op == "ScatterND" || node.op == "ScatterElements") && position == 1)
    return false;
  if (node.op == "BatchNormalization" && position > 2) // statistics
    return false;
  if (node.op == "Cast")
    if (auto to = node.attributes.find("to"); to != node.attributes.end())
      return isFloat(static_cast<ElementKind>(to->second->i()));
  return true;
}

Uses::Uses(const FlatGraph &graph, const std::vector<int> &wanted) {
  for (auto &[value, info] : graph.inputs)
    data.insert(value);
  std::function<void(const GraphNode &)> visit = [&](const GraphNode &node) {
    bool depends = !node.bodies.empty();
    for (auto &[name, body] : node.bodies) {
      data.insert(body->inputs.begin(), body->inputs.end());
      llvm::for_each(body->nodes, visit);
    }
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] >= 0) {
        depends |= data.contains(node.inputs[k]) && !(node.op == "CastLike" && k == 1);
        users[node.inputs[k]].push_back({&node, k});
      }
    if (depends && node.op != "Shape" && node.op != "Size")
      for (int output : node.outputs)
        if (output >= 0)
          data.insert(output);
  };
  llvm::for_each(graph.body.nodes, visit);
  differentiated.insert(wanted.begin(), wanted.end());
  std::function<void(const GraphBody &)> all = [&](const GraphBody &body) {
    differentiated.insert(body.outputs.begin(), body.outputs.end());
    for (const GraphNode &node : body.nodes) {
      differentiated.insert(node.inputs.begin(), node.inputs.end());
      for (auto &[name, inner] : node.bodies)
        all(*inner);
    }
  };
  for (const GraphNode &node : llvm::reverse(graph.body.nodes)) {
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](int output) { return output >= 0 && differentiated.contains(output); }))
      continue;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] >= 0 && passesGradient(node, k))
        differentiated.insert(node.inputs[k]);
    for (auto &[name, body] : node.bodies)
      all(*body);
  }
}

const std::vector<Uses::Use> &Uses::of(int value) const {
  static const std::vector<Use> none;
  auto found = users.find(value);
  return found == users.end() ? none : found->second;
}

bool Uses::dependsOnData(const GraphNode &node, size_t operand) const {
  return operand < node.inputs.size() && node.inputs[operand] >= 0 &&
         data.contains(node.inputs[operand]);
}

bool Uses::isTable(int value) const {
  return llvm::any_of(of(value),
                      [](const Use &use) { return use.node->op == "Gather" && use.position == 0; });
}

// Whether the value reaches a softmax without a matmul or a norm in between. An addend of such a
// value is a mask or a bias of scores.
bool Uses::reachesSoftmax(int value, int depth) const {
  static const llvm::StringSet<> scoreOps{
      "Add",    "Mul",   "Div",   "Sub",       "Reshape",  "Unsqueeze", "Squeeze", "Cast",
      "Expand", "Where", "Slice", "Transpose", "Identity", "Tanh",      "CastLike"};
  auto [found, isNew] = softmax.try_emplace(value, false);
  if (!isNew || depth > 64)
    return found->second;
  bool result = false;
  for (const Use &use : of(value)) {
    if (use.node->op == "Softmax" || (use.node->op == "Attention" && use.position == 3))
      result = true;
    else if (scoreOps.contains(use.node->op))
      for (int output : use.node->outputs)
        result |= output >= 0 && reachesSoftmax(output, depth + 1);
  }
  return softmax[value] = result;
}

/// Whether one of the uses is typical for parameters only: a matrix, the weight or bias of a norm
/// or a linear layer, an embedding table.
bool Uses::isPlain(int value, const onnx::Tensor &tensor, int depth) const {
  StringRef name = tensor.name();
  int64_t rank = tensor.dims_size();
  if (depth > 16)
    return false;
  return llvm::any_of(of(value), [&](const Use &use) {
    const GraphNode &node = *use.node;
    auto follow = [&] {
      return llvm::any_of(node.outputs, [&](int output) {
        return output >= 0 && isPlain(output, tensor, depth + 1);
      });
    };
    if (node.detach)
      return false;
    if (kViews.contains(node.op))
      return use.position == 0 && follow();
    if (node.op == "MatMul" || node.op == "Gemm")
      return use.position == 2 ? rank == 1 && !isGenerated(name)
                               : rank >= 2 && dependsOnData(node, 1 - use.position);
    if (kWeighted.contains(node.op))
      return use.position > 0 && dependsOnData(node, 0) && !isGenerated(name);
    if (node.op == "Einsum")
      return rank >= 2 && node.inputs.size() == 2 && dependsOnData(node, 1 - use.position) &&
             !isGenerated(name);
    if (node.op == "Gather")
      return use.position == 0 && rank >= 2 && !isGenerated(name) &&
             (dependsOnData(node, 1) || isUsualName(name));
    if (node.op == "Add" || node.op == "Sub" || node.op == "Mul")
      return rank == 1 && node.inputs.size() == 2 && isUsualName(name) &&
             (dependsOnData(node, 1 - use.position) || follow());
    return false;
  });
}

// Inference for ambiguous initializers with --infer-trainable: by the same uses, for any name.
bool Uses::isTrained(int value, int64_t rank, bool named, int depth) const {
  if (depth > 16)
    return false;
  return llvm::any_of(of(value), [&](const Use &use) {
    const GraphNode &node = *use.node;
    auto other = [&](size_t operand) { return dependsOnData(node, operand); };
    auto follow = [&] {
      return llvm::any_of(node.outputs, [&](int output) {
        return output >= 0 && isTrained(output, rank, named, depth + 1);
      });
    };
    if (node.detach)
      return false;
    if (kViews.contains(node.op))
      return use.position == 0 && follow();
    if (node.op == "MatMul" || node.op == "Gemm")
      return use.position == 2 || other(1 - use.position);
    if (kWeighted.contains(node.op))
      return use.position > 0 && other(0);
    if (node.op == "Einsum")
      return llvm::any_of(llvm::seq<size_t>(0, node.inputs.size()),
                          [&](size_t k) { return k != use.position && other(k); });
    if (node.op == "Gather") // a named table looked up by constant ids is an embedding (of
                             // distances, say), even if it ends in scores
      return use.position == 0 && rank >= 2 &&
             (other(1) || follow() || (rank == 2 && depth == 0 && named));
    if (node.op == "Add" || node.op == "Sub")
      return node.inputs.size() == 2 &&
             (other(1 - use.position) ? rank == 1 || !reachesSoftmax(node.outputs[0], 0)
                                      : follow());
    if (node.op == "Mul")
      return rank == 1 && node.inputs.size() == 2 && (other(1 - use.position) || follow());
    if (node.op == "Concat")
      return rank >= 2 && other(use.position == 0 ? 1 : 0); // a class token
    return false;
  });
}

bool Uses::isProbablyTrained(int value, const onnx::Tensor &tensor) const {
  bool named = !looksRenamed(tensor.name());
  return tensor.dims_size() >= 1 && (elementsOf(tensor) > 1 || named) &&
         isTrained(value, tensor.dims_size(), named, 0);
}

/// Whether the value holds frequencies of positions: every path from it ends in a sine or cosine.
bool Uses::endsInAngles(int value, int depth) const {
  if (depth > 32 || of(value).empty())
    return false;
  return llvm::all_of(of(value), [&](const Use &use) {
    if (use.node->op == "Sin" || use.node->op == "Cos")
      return true;
    for (size_t k = 0; k < use.node->inputs.size(); ++k)
      if (k != use.position && dependsOnData(*use.node, k))
        return false;
    return llvm::all_of(use.node->outputs, [&](int output) {
      return output < 0 || !differentiated.contains(output) || endsInAngles(output, depth + 1);
    });
  });
}

/// Whether these are sines or cosines by position: at position 0 all are 0, or all are 1.
static bool areAngles(ArrayRef<double> numbers, const onnx::Tensor &tensor) {
  SmallVector<int64_t> moving;
  for (int64_t dim : tensor.dims())
    if (dim != 1)
      moving.push_back(dim);
  if (moving.size() != 2 || numbers.empty())
    return false;
  double first = numbers[0];
  if (first != 0 && first != 1)
    return false;
  bool varies = false;
  for (auto [i, x] : llvm::enumerate(numbers)) {
    if (!(std::abs(x) <= 1.0 + 1e-6) || (static_cast<int64_t>(i) < moving[1] && x != first))
      return false;
    varies |= x != first;
  }
  return varies && llvm::any_of(numbers, [](double x) { return x != std::round(x); });
}

/// Whether this is a typical literal: a number with few digits, the square root of one, or a very
/// large one for masks.
static bool isWritten(double x) {
  double magnitude = std::abs(x);
  if (!(magnitude < 1e4)) // also if not finite
    return true;
  if (magnitude == 0)
    return true;
  auto few = [](double number) {
    double scaled = number / std::pow(10, std::floor(std::log10(number)) - 4); // five digits
    return std::abs(scaled - std::round(scaled)) < 1e-3;
  };
  return few(magnitude) || few(magnitude * magnitude) || few(1 / (magnitude * magnitude)) ||
         few(std::pow(magnitude, 4)) ||
         std::abs(magnitude * magnitude * 3.14159265358979 - 2) < 1e-5;
}

InferredRole Uses::inferred(int value, const onnx::Tensor &tensor,
                            const std::function<std::vector<double>(int64_t)> &read) const {
  if (!getsGradient(value))
    return InferredRole::Constant;
  int64_t elements = elementsOf(tensor);
  if (isPlain(value, tensor, 0))
    return InferredRole::Trained;
  if (endsInAngles(value, 0))
    return InferredRole::Constant;
  std::vector<double> numbers = read(int64_t(1) << 24);
  if (numbers.empty())
    return InferredRole::Ambiguous;
  bool hides = llvm::any_of(numbers, [](double x) { return x <= -1e4; });
  if (hides && llvm::all_of(numbers, [](double x) { return x == 0 || x <= -1e4; }))
    return InferredRole::Constant; // a mask
  if (elements == 1)
    return isGenerated(tensor.name()) && isWritten(numbers[0]) ? InferredRole::Constant
                                                               : InferredRole::Ambiguous;
  return areAngles(numbers, tensor) ? InferredRole::Constant : InferredRole::Ambiguous;
}
