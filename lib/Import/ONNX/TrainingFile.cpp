#include "TrainingFile.h"

using namespace zorse;
using namespace zorse::onnx_import;

std::string zorse::onnx_import::describe(const onnx::Node &node) {
  return node.op_type() + " '" +
         (node.name().empty() && node.output_size() ? node.output(0) : node.name()) + "'";
}

const onnx::Attribute *zorse::onnx_import::attributeOf(const onnx::Node &node,
                                                       const std::string &name) {
  for (const onnx::Attribute &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

double zorse::onnx_import::realOf(const onnx::Node &node, const std::string &name,
                                  double otherwise) {
  const onnx::Attribute *found = attributeOf(node, name);
  if (!found)
    return otherwise;
  // A float nearest to 0.9 means 0.9, because hyperparameters were decimal numbers.
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", double(found->f()));
  double decimal = std::strtod(text, nullptr);
  return float(decimal) == found->f() ? decimal : double(found->f());
}

int64_t zorse::onnx_import::integerOf(const onnx::Node &node, const std::string &name,
                                      int64_t otherwise) {
  const onnx::Attribute *found = attributeOf(node, name);
  return found ? found->i() : otherwise;
}

std::string zorse::onnx_import::textOf(const onnx::Node &node, const std::string &name,
                                       const std::string &otherwise) {
  const onnx::Attribute *found = attributeOf(node, name);
  return found ? found->s() : otherwise;
}

/// Collects the inputs of a node, including values that its nested graphs read from the enclosing
/// graph.
static void addInputs(const onnx::Node &node, std::set<std::string> &to) {
  to.insert(node.input().begin(), node.input().end());
  for (const onnx::Attribute &attribute : node.attribute())
    if (attribute.has_g())
      for (const onnx::Node &inner : attribute.g().node())
        addInputs(inner, to);
}

std::vector<bool>
zorse::onnx_import::neededFor(const google::protobuf::RepeatedPtrField<onnx::Node> &nodes,
                              std::set<std::string> wanted) {
  // Nodes may be in any order.
  std::map<std::string, int> producers;
  for (int i = 0; i < nodes.size(); ++i)
    for (const std::string &output : nodes[i].output())
      producers.emplace(output, i);
  std::vector<bool> needed(nodes.size());
  std::vector<std::string> open(wanted.begin(), wanted.end());
  while (!open.empty()) {
    auto found = producers.find(open.back());
    open.pop_back();
    if (found == producers.end() || needed[found->second])
      continue;
    needed[found->second] = true;
    std::set<std::string> inputs;
    addInputs(nodes[found->second], inputs);
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return needed;
}

Result<std::optional<FileTraining>> zorse::onnx_import::takeTraining(LoadedModel &model) {
  const bool info = model.model().training_info_size() > 0;
  if (!info && !isRuntimeArtifact(model.model()))
    return std::optional<FileTraining>();
  Result<FileTraining> found = info ? takeTrainingInfo(model) : takeRuntimeArtifact(model);
  if (found.failed())
    return found.error();
  return std::optional(std::move(*found));
}
