#include "Operators.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cassert>

using namespace zorse;
using namespace zorse::onnx_import;
using llvm::StringRef;

namespace {

constexpr const char *kTypeNames[] = {"nothing", "a float", "an integer", "a string", "a tensor",
                                      "a graph", "floats",  "integers",   "strings"};

std::string typeName(int32_t type) {
  return type >= 0 && type < int32_t(std::size(kTypeNames)) ? kTypeNames[type]
                                                            : "type " + std::to_string(type);
}

std::string join(const std::vector<const char *> &values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += std::string(i == 0 ? "" : i + 1 == values.size() ? " and " : ", ") + values[i];
  return text;
}

} // namespace

std::vector<AttributeInfo> zorse::onnx_import::with(std::vector<AttributeInfo> shared,
                                                    std::vector<AttributeInfo> own) {
  shared.insert(shared.end(), own.begin(), own.end());
  return shared;
}

const AttributeInfo *Registration::attribute(StringRef name) const {
  auto found = llvm::find_if(
      attributes, [&](const AttributeInfo &attribute) { return name == attribute.name; });
  return found == attributes.end() ? nullptr : &*found;
}

void OperatorRegistry::add(std::vector<Registration> operators) {
  for (Registration &given : operators) {
    const Registration &rule = all.emplace_back(std::move(given));
    for (const char *name : rule.names) {
      std::vector<const Registration *> &versions = byName[name];
      assert((versions.empty() || versions.back()->opsets.last < rule.opsets.first) &&
             "versions ascend and do not overlap");
      versions.push_back(&rule);
    }
  }
}

const Registration *OperatorRegistry::find(const GraphNode &node) const {
  auto found = byName.find(node.domain.empty() ? node.op : node.domain + "." + node.op);
  if (found == byName.end())
    return nullptr;
  auto rule = llvm::find_if(found->second, [&](const Registration *each) {
    return each->opsets.first <= node.opset && node.opset <= each->opsets.last;
  });
  return rule == found->second.end() ? nullptr : *rule;
}

bool zorse::onnx_import::isElementwise(const GraphNode &node) {
  static const OperatorRegistry registry = [] {
    OperatorRegistry all;
    for (auto addOperators : {registerActivationOps, registerUnaryOps, registerElementwiseOps})
      addOperators(all);
    return all;
  }();
  return registry.find(node) != nullptr;
}

const Registration *zorse::onnx_import::registrationOf(const GraphNode &node) {
  static const OperatorRegistry registry = [] {
    OperatorRegistry all;
    for (auto addOperators :
         {registerActivationOps, registerAttentionOps,   registerComposedReductions,
          registerUnaryOps,      registerElementwiseOps, registerIndexOps,
          registerStatisticOps,  registerEinsumOps,      registerRegroupOps,
          registerControlOps,    registerConvolutionOps, registerPoolingOps,
          registerPickOps,       registerScatterOps,     registerRunningOps,
          registerLinearOps,     registerReduceOps,      registerLossOps,
          registerSequenceOps,   registerViewOps,        registerSliceOps,
          registerResizeOps,     registerRecurrentOps,   registerGridOps,
          registerFourierOps,    registerDrawnOps})
      addOperators(all);
    return all;
  }();
  return registry.find(node);
}

int32_t zorse::onnx_import::typeOf(const onnx::Attribute &attribute) {
  if (attribute.type() != 0)
    return attribute.type();
  return attribute.has_f()          ? 1
         : attribute.has_i()        ? 2
         : attribute.has_s()        ? 3
         : attribute.has_t()        ? 4
         : attribute.has_g()        ? 5
         : attribute.floats_size()  ? 6
         : attribute.ints_size()    ? 7
         : attribute.strings_size() ? 8
                                    : 0;
}

std::vector<std::string> zorse::onnx_import::notUnderstood(const GraphNode &node,
                                                           const Registration &rule) {
  std::vector<std::string> problems;
  size_t operands = node.inputs.size();
  while (operands > 0 && node.inputs[operands - 1] < 0)
    --operands;
  if (operands > rule.max)
    problems.push_back("has " + std::to_string(operands) + " operands; at most " +
                       std::to_string(rule.max) + " are known");
  for (auto &[name, attribute] : node.attributes) {
    std::string called = "attribute '" + name + "'";
    const AttributeInfo *wanted = rule.attribute(name);
    if (!wanted) {
      problems.push_back(called + " is not known");
      continue;
    }
    const int32_t type = typeOf(*attribute), expected = static_cast<int32_t>(wanted->type);
    if (type != expected) {
      problems.push_back(called + ": expects " + typeName(expected) + ", found " + typeName(type));
      continue;
    }
    if (wanted->values.empty())
      continue;
    std::string value = wanted->type == AttributeInfo::Type::Integer
                            ? std::to_string(attribute->i())
                            : attribute->s();
    if (llvm::find(wanted->values, value) == wanted->values.end())
      problems.push_back(called + " is " + value + "; only " + join(wanted->values) +
                         (wanted->values.size() == 1 ? " is" : " are") + " supported");
  }
  for (const AttributeInfo &attribute : rule.attributes)
    if (attribute.isRequired && !node.attributes.count(attribute.name))
      problems.push_back("attribute '" + std::string(attribute.name) + "' is missing");
  std::sort(problems.begin(), problems.end());
  return problems;
}

StringRef zorse::onnx_import::remedyFor(StringRef op) {
  return llvm::StringSwitch<StringRef>(op)
      .Case("AdaptiveMaxPool", "give the pooling a kernel and strides (nn.MaxPool2d)")
      .Case("AdaptiveAveragePool", "give the pooling a kernel and strides (nn.AvgPool2d)")
      .Case("Upsample", "export with an operator set of at least 11, which has Resize in its place")
      .Cases(
          {"NonZero", "Unique", "Compress", "NonMaxSuppression"},
          "how many elements it takes depends on data; shapes here are fixed before a graph runs")
      .Default("");
}
