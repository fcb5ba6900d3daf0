// Compares the plain evaluator with the onnx package's reference implementation:
// reference-cases.txt, written by make_reference_cases.py.
#include "../../../lib/Import/Reference/Evaluator.h"

#include "onnx_wire.pb.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

using namespace zorse;
using namespace zorse::onnx_import;
using namespace zorse::onnx_reference;

namespace {

std::vector<std::string> split(const std::string &text, const std::string &by) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(by, begin)) != std::string::npos; begin = end + by.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

/// Parses "type[shape] elements"; nullopt for an omitted operand.
std::optional<Array> parse(const std::string &text) {
  std::istringstream words(text);
  std::string head, word;
  words >> head;
  if (head == "-")
    return std::nullopt;
  Array array;
  array.type = head[0] == 'f'   ? ElementKind::F64
               : head[0] == 'i' ? ElementKind::I64
                                : ElementKind::Bool;
  if (const std::string sizes = head.substr(2, head.size() - 3); !sizes.empty())
    for (const std::string &size : split(sizes, ","))
      array.shape.push_back(std::stoll(size));
  while (words >> word)
    if (array.isFloat())
      array.reals.push_back(std::stod(word));
    else
      array.integers.push_back(std::stoll(word));
  return array;
}

struct Case {
  std::string op;
  std::vector<std::string> attributes;
  std::vector<std::optional<Array>> inputs, outputs;
};

Case readCase(const std::string &line) {
  const std::vector<std::string> parts = split(line, "; "), sides = split(parts[2], " = ");
  Case read{parts[0], {}, {}, {}};
  if (!parts[1].empty())
    read.attributes = split(parts[1], " ");
  for (const std::string &text : split(sides[0], " | "))
    read.inputs.push_back(parse(text));
  for (const std::string &text : split(sides[1], " | "))
    read.outputs.push_back(parse(text));
  return read;
}

/// Parses "name=value"; the value determines the type.
void addAttribute(onnx::Node &node, const std::string &text) {
  const std::vector<std::string> sides = split(text, "=");
  const std::string &name = sides[0], value = text.substr(name.size() + 1);
  onnx::Attribute &attribute = *node.add_attribute();
  attribute.set_name(name);
  char *end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool list = name == "perm" || name == "pads" || name == "strides" || name == "dilations";
  if (list) {
    attribute.set_type(7);
    for (const std::string &element : split(value, ","))
      attribute.add_ints(std::stoll(element));
  } else if (*end) {
    attribute.set_type(3);
    attribute.set_s(value);
  } else if (value.find('.') != std::string::npos) {
    attribute.set_type(1);
    attribute.set_f(static_cast<float>(number));
  } else {
    attribute.set_type(2);
    attribute.set_i(std::stoll(value));
  }
}

onnx::Model modelOf(const Case &given) {
  onnx::Model model;
  model.set_ir_version(10);
  auto *set = model.add_opset_import();
  set->set_domain("");
  set->set_version(23);
  onnx::Node &node = *model.mutable_graph()->add_node();
  node.set_op_type(given.op);
  node.set_name("node");
  for (const std::string &attribute : given.attributes)
    addAttribute(node, attribute);
  for (size_t i = 0; i < given.inputs.size(); ++i) {
    node.add_input(given.inputs[i] ? "x" + std::to_string(i) : "");
    if (!given.inputs[i])
      continue;
    onnx::ValueInfo &info = *model.mutable_graph()->add_input();
    info.set_name("x" + std::to_string(i));
    info.mutable_type()->mutable_tensor_type()->set_elem_type(
        static_cast<int32_t>(given.inputs[i]->type));
  }
  for (size_t i = 0; i < given.outputs.size(); ++i) {
    node.add_output("y" + std::to_string(i));
    model.mutable_graph()->add_output()->set_name("y" + std::to_string(i));
  }
  return model;
}

void expectSame(const Array &found, const Array &expected) {
  EXPECT_EQ(found.shape, expected.shape);
  ASSERT_EQ(found.isFloat(), expected.isFloat());
  ASSERT_EQ(found.size(), expected.size());
  for (int64_t i = 0; i < found.size(); ++i) {
    if (!(std::isnan(found.real(i)) && std::isnan(expected.real(i)))) {
      EXPECT_NEAR(found.real(i), expected.real(i),
                  1e-6 * std::max(1.0, std::fabs(expected.real(i))))
          << "element " << i;
    }
  }
}

TEST(Reference, OperatorsComputeWhatOnnxSays) {
  std::ifstream file(std::string(ZORSE_SOURCE_DIR) + "/test/unit/import/reference-cases.txt");
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    SCOPED_TRACE(line);
    const Case given = readCase(line);
    const std::string bytes = modelOf(given).SerializeAsString();
    auto loaded = LoadedModel::load(MappedFile::view(bytes.data(), bytes.size()), "case.onnx");
    ASSERT_FALSE(loaded.failed()) << loaded.message();
    LoadedModel &model = **loaded;
    auto flat = flatten(model);
    ASSERT_FALSE(flat.failed()) << flat.message();
    const FlatGraph &graph = *flat;
    std::map<int, Array> inputs;
    for (auto &[value, info] : graph.inputs)
      inputs[value] = *given.inputs[std::stoul(info->name().substr(1))];
    Evaluator evaluator(
        graph, model, {},
        [&](int value) {
          return inputs.count(value) ? std::optional<Array>(inputs[value]) : std::nullopt;
        },
        [](int) { return std::optional<Shape>(); });
    for (size_t i = 0; i < given.outputs.size(); ++i) {
      const Array *result = evaluator.evaluate(graph.body.outputs[i]);
      ASSERT_TRUE(result) << evaluator.problem();
      expectSame(*result, *given.outputs[i]);
    }
    ++cases;
  }
  EXPECT_GE(cases, 150);
}

TEST(Reference, AnOperatorThatIsNotKnownIsNamed) {
  Case given{"Adagrad", {}, {Array::ofReals({1}, {1})}, {Array::ofReals({1}, {1})}};
  const std::string bytes = modelOf(given).SerializeAsString();
  auto loaded = LoadedModel::load(MappedFile::view(bytes.data(), bytes.size()), "case.onnx");
  ASSERT_FALSE(loaded.failed()) << loaded.message();
  LoadedModel &model = **loaded;
  auto flat = flatten(model);
  ASSERT_FALSE(flat.failed()) << flat.message();
  const FlatGraph &graph = *flat;
  Evaluator evaluator(
      graph, model, {}, [](int) { return std::optional<Array>(); },
      [](int) { return std::optional<Shape>(); });
  EXPECT_FALSE(evaluator.evaluate(graph.body.outputs[0]));
  EXPECT_NE(evaluator.problem().find("operator Adagrad (node 'node') is not known"),
            std::string::npos)
      << evaluator.problem();
}

} // namespace
