#include "Operators.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cassert>

using namespace zorse;
using namespace zorse::onnx_import;
using llvm::StringRef;

namespace {

constexpr const char *kTypeNames[] = {"nothing", "a float", "an integer", "a string", "a tensor", "a graph", "floats", "integers", "strings"};

std::string typeName(int32_t type) { return type >= 0 && type < int32_t(std::size(kTypeNames)) ? kTypeNames[type] : "type " + std::to_string(type); }

int32_t typeOfWord(StringRef word) {
  return llvm::StringSwitch<int32_t>(word)
      .Case("f", 1)
      .Case("i", 2)
      .Case("s", 3)
      .Case("t", 4)
      .Case("g", 5)
      .Case("fs", 6)
      .Case("is", 7)
      .Case("ss", 8)
      .Default(0);
}

std::string join(const std::vector<std::string> &values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += (i == 0 ? "" : i + 1 == values.size() ? " and " : ", ") + values[i];
  return text;
}

} // namespace

OperatorRule::OperatorRule(size_t least, size_t most, StringRef text) : least(least), most(most) {
  llvm::SmallVector<StringRef> words;
  text.split(words, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef word : words) {
    auto [declared, values] = word.split('=');
    auto [name, type] = declared.split(':');
    AttributeRule rule;
    rule.required = type.consume_back("!");
    rule.read = !type.consume_back("~");
    rule.type = typeOfWord(type);
    assert(rule.type != 0 && "a type that no attribute has");
    llvm::SmallVector<StringRef> parts;
    values.split(parts, '|', -1, /*KeepEmpty=*/false);
    for (StringRef part : parts)
      rule.values.push_back(part.str());
    attributes[name] = std::move(rule);
  }
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

std::vector<std::string> zorse::onnx_import::notUnderstood(const GraphNode &node, const OperatorRule &rule) {
  std::vector<std::string> problems;
  size_t operands = node.inputs.size();
  while (operands > 0 && node.inputs[operands - 1] < 0)
    --operands;
  if (operands > rule.most)
    problems.push_back("has " + std::to_string(operands) + " operands; at most " + std::to_string(rule.most) + " are known");
  for (auto &[name, attribute] : node.attributes) {
    std::string called = "attribute '" + name + "'";
    auto known = rule.attributes.find(name);
    if (known == rule.attributes.end()) {
      problems.push_back(called + " is not known");
      continue;
    }
    const AttributeRule &wanted = known->second;
    int32_t type = typeOf(*attribute);
    if (type != wanted.type) {
      problems.push_back(called + ": expects " + typeName(wanted.type) + ", found " + typeName(type));
      continue;
    }
    if (wanted.values.empty())
      continue;
    std::string value = type == 2 ? std::to_string(attribute->i()) : attribute->s();
    if (std::find(wanted.values.begin(), wanted.values.end(), value) == wanted.values.end())
      problems.push_back(called + " is " + value + "; only " + join(wanted.values) + (wanted.values.size() == 1 ? " is" : " are") + " supported");
  }
  for (const auto &entry : rule.attributes)
    if (entry.second.required && !node.attributes.count(entry.first().str()))
      problems.push_back("attribute '" + entry.first().str() + "' is missing");
  std::sort(problems.begin(), problems.end());
  return problems;
}

StringRef zorse::onnx_import::remedyFor(StringRef op) {
  return llvm::StringSwitch<StringRef>(op)
      .Case("AdaptiveMaxPool", "give the pooling a kernel and strides (nn.MaxPool2d)")
      .Case("AdaptiveAveragePool", "give the pooling a kernel and strides (nn.AvgPool2d)")
      .Case("Upsample", "export with an operator set of at least 11, which has Resize in its place")
      .Cases({"NonZero", "Unique", "Compress", "NonMaxSuppression"},
             "how many elements it takes depends on data; shapes here are fixed before a graph runs")
      .Default("");
}
