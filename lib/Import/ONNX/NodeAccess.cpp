// What a handler asks a node for: operands, attributes, constants; and how errors name it.
#include "Importer.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>
#include <cassert>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static const Val absent;

Importer::Importer(LoadedModel &model, FlatGraph &graph, const ImportOptions &options, MLIRContext &context)
    : model(model), graph(graph), options(options), context(context), builder(&context), location(UnknownLoc::get(&context)) {}

bool Importer::isUsed(const GraphNode &node, size_t output) const {
  if (output >= node.outputs.size() || node.outputs[output] < 0)
    return false;
  const int value = node.outputs[output];
  return std::find(graph.body.outputs.begin(), graph.body.outputs.end(), value) != graph.body.outputs.end() ||
         std::any_of(graph.body.nodes.begin(), graph.body.nodes.end(),
                     [&](const GraphNode &other) { return std::find(other.inputs.begin(), other.inputs.end(), value) != other.inputs.end(); });
}

/// What a node was given, for messages: "'x' f32 [samples, 16, 32], 'shape' constant i64 [3]".
std::string Importer::describeOperands(const GraphNode &node) const {
  std::string text;
  for (size_t i = 0; i < node.inputs.size() && i < 8; ++i) {
    const Val &value = in(node, i);
    if (!value)
      continue;
    text += (text.empty() ? "" : ", ") + nameOf(node, i);
    if (value.kind == Val::Kind::Sequence || value.kind == Val::Kind::Loss) {
      text += value.kind == Val::Kind::Loss ? " a sum over samples" : " a sequence";
      continue;
    }
    text += std::string(value.isConstant()               ? " constant "
                        : value.isKnown()                ? " known with the batch "
                        : value.kind == Val::Kind::Drawn ? " random numbers "
                                                         : " ") +
            name(value.type) + " [";
    for (int64_t axis = 0; axis < value.rank(); ++axis) {
      text += axis ? ", " : "";
      int64_t size = value.view.size(axis);
      bool samples = value.view.sampleAxis() == axis && rows > 0;
      text += samples ? (size == rows ? "samples" : "samples * " + std::to_string(size / rows)) : std::to_string(size);
    }
    text += "]";
  }
  return text;
}

LogicalResult Importer::error(const GraphNode &node, const Twine &message) {
  std::string operands = describeOperands(node);
  return emitError(UnknownLoc::get(&context)) << model.path() << ": " << node.describe() << ": " << message
                                              << (operands.empty() ? "" : "; its operands: ") << operands,
         failure();
}
LogicalResult Importer::error(const Twine &message) { return emitError(UnknownLoc::get(&context)) << model.path() << ": " << message, failure(); }

void Importer::warn(const std::string &message) {
  if (std::find(warnings.begin(), warnings.end(), message) == warnings.end())
    warnings.push_back(message);
}

const Val &Importer::in(const GraphNode &node, size_t index) const {
  if (index >= node.inputs.size() || node.inputs[index] < 0)
    return absent;
  return values[node.inputs[index]];
}

void Importer::out(const GraphNode &node, size_t index, Val value) {
  if (index < node.outputs.size() && node.outputs[index] >= 0)
    values[node.outputs[index]] = std::move(value);
}

// Every attribute has the type of its operator's rule (Limits.cpp), so that one without a value, as some writers leave out zeros, is zero.
const onnx::Attribute *Importer::attribute(const GraphNode &node, StringRef name) const {
  assert(operatorOf(node)->rule.attributes.count(name) && operatorOf(node)->rule.attributes.lookup(name).read &&
         "an attribute that the operator's rule lacks (Handlers.cpp)");
  auto found = node.attributes.find(name.str());
  return found == node.attributes.end() ? nullptr : found->second.get();
}

int64_t Importer::intAttribute(const GraphNode &node, StringRef name, int64_t otherwise) const {
  const onnx::Attribute *found = attribute(node, name);
  return found ? found->i() : otherwise;
}
double Importer::floatAttribute(const GraphNode &node, StringRef name, double otherwise) const {
  const onnx::Attribute *found = attribute(node, name);
  return found ? found->f() : otherwise;
}
std::string Importer::stringAttribute(const GraphNode &node, StringRef name, StringRef otherwise) const {
  const onnx::Attribute *found = attribute(node, name);
  return found ? found->s() : otherwise.str();
}
std::optional<std::vector<int64_t>> Importer::intsAttribute(const GraphNode &node, StringRef name) const {
  const onnx::Attribute *found = attribute(node, name);
  return found ? std::optional<std::vector<int64_t>>({found->ints().begin(), found->ints().end()}) : std::nullopt;
}

template <typename T, typename Read> static std::vector<T> readAll(const Val &value, Read read) {
  FactorList factors;
  for (const FactorList &list : value.view.dims)
    factors.insert(factors.end(), list.begin(), list.end());
  int64_t inner = factors.empty() ? 1 : factors.back().size, stride = factors.empty() ? 1 : factors.back().stride, total = value.view.elements();
  std::vector<T> out(total);
  for (int64_t outer = 0; inner > 0 && outer < total / inner; ++outer) {
    int64_t from = value.view.offset, rest = outer;
    for (size_t i = factors.empty() ? 0 : factors.size() - 1; i-- > 0;) {
      from += rest % factors[i].size * factors[i].stride;
      rest /= factors[i].size;
    }
    read(from, stride, inner, out.data() + outer * inner);
  }
  return out;
}

std::optional<std::vector<int64_t>> Importer::constantInts(const Val &value, int64_t limit) const {
  if (!value.isConstant() || value.view.elements() > limit)
    return std::nullopt;
  return readAll<int64_t>(value, [&](int64_t begin, int64_t stride, int64_t n, int64_t *to) { value.lazy->readInts(begin, stride, n, to); });
}

std::optional<std::vector<double>> Importer::constantFloats(const Val &value, int64_t limit) const {
  if (!value.isConstant() || value.view.elements() > limit)
    return std::nullopt;
  return readAll<double>(value, [&](int64_t begin, int64_t stride, int64_t n, double *to) { value.lazy->readFloats(begin, stride, n, to); });
}

// The one value of all elements.
std::optional<double> Importer::uniformValue(const Val &value) const {
  if (!value.isConstant() || value.view.elements() == 0)
    return std::nullopt;
  Val small = compressed(value);
  for (const FactorList &list : small.view.dims)
    for (const Factor &factor : list)
      if (factor.stride != 0)
        return std::nullopt;
  double out;
  value.lazy->readFloats(small.view.offset, 0, 1, &out);
  return out;
}

LogicalResult Importer::axesOf(const GraphNode &node, size_t index, int64_t rank, std::optional<std::vector<int64_t>> &axes) {
  if (const Val &operand = in(node, index)) {
    axes = constantInts(operand);
    if (!axes)
      return error(node, "expects constant axes");
  } else {
    axes = intsAttribute(node, "axes");
  }
  if (!axes)
    return success();
  for (int64_t &axis : *axes) {
    if (axis < -rank || axis >= rank)
      return error(node, "axis " + Twine(axis) + " is outside a tensor of rank " + Twine(rank));
    if (axis < 0)
      axis += rank;
  }
  return success();
}
