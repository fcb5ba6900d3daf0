// Access to the operands and attributes of a node, and its errors.
#include "OpContext.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>
#include <cassert>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static const ImportedValue absent;

bool OpContext::isUsed(size_t output) const {
  if (output >= node.outputs.size() || node.outputs[output] < 0)
    return false;
  const int value = node.outputs[output];
  return std::find(state.graph.body.outputs.begin(), state.graph.body.outputs.end(), value) !=
             state.graph.body.outputs.end() ||
         std::any_of(state.graph.body.nodes.begin(), state.graph.body.nodes.end(),
                     [&](const GraphNode &other) {
                       return std::find(other.inputs.begin(), other.inputs.end(), value) !=
                              other.inputs.end();
                     });
}

std::string OpContext::nameOf(size_t index) const {
  const ImportedValue &value = operand(index);
  if (value.isTensor())
    if (auto argument = dyn_cast<BlockArgument>(value.value()))
      if (auto found = state.weightOfArgument.find(argument.getArgNumber());
          found != state.weightOfArgument.end())
        return "'" + state.weights[found->second].parameter + "'";
  const std::string &name = state.graph.valueNames[node.inputs[index]];
  return name.empty() ? "operand " + std::to_string(index) : "'" + name + "'";
}

/// Describes the operands of a node for messages: "'x' f32 [samples, 16, 32], 'shape' constant i64
/// [3]".
static std::string describeOperands(const OpContext &op) {
  std::string text;
  for (size_t i = 0; i < op.node.inputs.size() && i < 8; ++i) {
    const ImportedValue &value = op.operand(i);
    if (!value)
      continue;
    text += (text.empty() ? "" : ", ") + op.nameOf(i);
    if (value.isSequence() || value.isLoss()) {
      text += value.isLoss() ? " a sum over samples" : " a sequence";
      continue;
    }
    text += std::string(value.isConstant() ? " constant "
                        : value.isKnown()  ? " known with the batch "
                        : value.isDrawn()  ? " random numbers "
                                           : " ") +
            name(value.type) + " [";
    for (int64_t axis = 0; axis < value.rank(); ++axis) {
      text += axis ? ", " : "";
      int64_t size = value.view.size(axis);
      bool samples = value.view.sampleAxis() == axis && op.state.rows > 0;
      text += samples
                  ? (size == op.state.rows ? "samples"
                                           : "samples * " + std::to_string(size / op.state.rows))
                  : std::to_string(size);
    }
    text += "]";
  }
  return text;
}

LogicalResult OpContext::error(const Twine &message) const {
  std::string operands = describeOperands(*this);
  return emitError(UnknownLoc::get(&state.context))
             << state.model.path() << ": " << node.describe() << ": " << message
             << (operands.empty() ? "" : "; its operands: ") << operands,
         failure();
}

const ImportedValue &OpContext::operand(size_t index) const {
  if (index >= node.inputs.size() || node.inputs[index] < 0)
    return absent;
  return state.values[node.inputs[index]];
}

std::vector<ImportedValue> OpContext::operands(size_t first) const {
  std::vector<ImportedValue> all;
  for (size_t i = first; i < node.inputs.size(); ++i)
    all.push_back(operand(i));
  return all;
}

void OpContext::set(size_t index, ImportedValue value) {
  if (index < node.outputs.size() && node.outputs[index] >= 0)
    state.values[node.outputs[index]] = std::move(value);
}

// Limits.cpp has checked that every attribute has the registered type. Some writers omit the value
// 0; an attribute without a value is therefore zero.
const onnx::Attribute *OpContext::attribute(StringRef name) const {
  assert(rule->attribute(name) && !rule->attribute(name)->isIgnored &&
         "an attribute that is not registered, or ignored");
  auto found = node.attributes.find(name.str());
  return found == node.attributes.end() ? nullptr : found->second.get();
}

/// The registered default. A missing required attribute, which has already been reported, gets the
/// default value of its type.
template <typename T> static T defaultOf(const Registration &rule, StringRef name) {
  const AttributeInfo *info = rule.attribute(name);
  const T *otherwise = info ? std::get_if<T>(&info->otherwise) : nullptr;
  assert((otherwise || (info && info->isRequired)) &&
         "an attribute without a default of this type");
  return otherwise ? *otherwise : T{};
}

int64_t OpContext::integer(StringRef name) const {
  const onnx::Attribute *found = attribute(name);
  return found ? found->i() : defaultOf<int64_t>(*rule, name);
}
int64_t OpContext::integer(StringRef name, int64_t otherwise) const {
  const onnx::Attribute *found = attribute(name);
  return found ? found->i() : otherwise;
}
double OpContext::real(StringRef name) const {
  const onnx::Attribute *found = attribute(name);
  return found ? found->f() : defaultOf<double>(*rule, name);
}
std::string OpContext::text(StringRef name) const {
  if (const onnx::Attribute *found = attribute(name))
    return found->s();
  const char *otherwise = defaultOf<const char *>(*rule, name);
  return otherwise ? otherwise : "";
}
std::optional<std::vector<int64_t>> OpContext::integers(StringRef name) const {
  if (const onnx::Attribute *found = attribute(name))
    return std::vector<int64_t>(found->ints().begin(), found->ints().end());
  const AttributeInfo *info = rule->attribute(name);
  const auto *otherwise = info ? std::get_if<std::vector<int64_t>>(&info->otherwise) : nullptr;
  return otherwise ? std::optional(*otherwise) : std::nullopt;
}

int64_t OpContext::axis(int64_t rank) const {
  const int64_t given = integer("axis"), axis = given < 0 ? given + rank : given;
  return axis < rank ? std::max<int64_t>(axis, -1) : -1;
}

LogicalResult OpContext::axes(size_t index, int64_t rank,
                              std::optional<std::vector<int64_t>> &axes) const {
  if (const ImportedValue &given = operand(index)) {
    axes = constantInts(given);
    if (!axes)
      return error("expects constant axes");
  } else {
    axes = integers("axes");
  }
  if (!axes)
    return success();
  for (int64_t &axis : *axes) {
    if (axis < -rank || axis >= rank)
      return error("axis " + Twine(axis) + " is outside a tensor of rank " + Twine(rank));
    if (axis < 0)
      axis += rank;
  }
  return success();
}
