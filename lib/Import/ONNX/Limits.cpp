// What the file asks for and the importer does not have, found before anything is interpreted: all of it at once.
#include "Importer.h"

#include <algorithm>
#include <functional>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// "2 nodes: 'a', 'b'", at most three of them by name.
std::string listed(const std::vector<std::string> &names) {
  std::string text = std::to_string(names.size()) + (names.size() == 1 ? " node: " : " nodes: ");
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > 3 ? ", ..." : "");
}

std::string spaced(const std::vector<int64_t> &values) {
  std::string text;
  for (int64_t value : values)
    text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

std::vector<int64_t> dimsBehind(const onnx::Shape &shape, int first) {
  std::vector<int64_t> dims;
  for (int i = first; i < shape.dim_size(); ++i)
    dims.push_back(shape.dim(i).has_dim_value() ? shape.dim(i).dim_value() : 0);
  return std::all_of(dims.begin(), dims.end(), [](int64_t size) { return size > 0; }) ? dims : std::vector<int64_t>();
}

/// Operators without a handler, and by what they say the nodes of others that say what is not supported.
struct Limits {
  std::map<std::string, std::vector<std::string>> unknown, beyond;

  std::string text() const {
    std::string message;
    for (auto &[op, names] : unknown)
      message += (message.empty() ? "" : ", ") + op + " (" + listed(names) + ")";
    if (!unknown.empty())
      message = std::to_string(unknown.size()) + (unknown.size() == 1 ? " operator is" : " operators are") + " not supported: " + message;
    for (auto &[op, names] : unknown)
      if (llvm::StringRef remedy = remedyFor(op); !remedy.empty())
        message += "\n  " + op + ": " + remedy.str();
    if (unknown.empty() && !beyond.empty())
      message = "operators are used in ways that are not supported";
    for (auto &[what, names] : beyond)
      message += "\n  " + what + " (" + listed(names) + ")";
    return message;
  }
};

} // namespace

LogicalResult Importer::checkSupported(const std::vector<int> &wanted) {
  Limits limits;
  std::function<void(const GraphBody &, const llvm::DenseSet<int> *)> visit = [&](const GraphBody &body, const llvm::DenseSet<int> *live) {
    for (const GraphNode &node : body.nodes) {
      bool needed = !live || std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live->contains(value); });
      if (!needed)
        continue;
      if (const Operator *known = operatorOf(node)) {
        for (const std::string &problem : notUnderstood(node, known->rule))
          limits.beyond[node.op + ": " + problem].push_back(node.name);
        if (node.op == "Conv")
          if (std::string limit = convolutionLimit(node); !limit.empty())
            limits.beyond[limit].push_back(node.name);
      } else {
        limits.unknown[node.domain.empty() ? node.op : node.domain + "." + node.op].push_back(node.name);
      }
      for (auto &[name, nested] : node.bodies)
        visit(*nested, nullptr);
    }
  };
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
  for (size_t i = graph.body.nodes.size(); i-- > 0;) {
    const GraphNode &node = graph.body.nodes[i];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live.contains(value); }))
      use(node);
  }
  visit(graph.body, &live);
  std::string text = limits.text();
  return text.empty() ? success() : error(text);
}

// As far as the file says shapes: a kernel that is an initializer, an input whose shape is written down. The handler asks again once they are known.
std::string Importer::convolutionLimit(const GraphNode &node) const {
  std::vector<int64_t> kernel = intsAttribute(node, "kernel_shape").value_or(std::vector<int64_t>()), extents;
  for (auto &[value, tensor] : graph.body.initializers)
    if (node.inputs.size() > 1 && value == node.inputs[1] && tensor->dims_size() > 2)
      kernel.assign(tensor->dims().begin() + 2, tensor->dims().end());
  const onnx::Graph &file = model.model().graph();
  const std::string &name = node.inputs.empty() || node.inputs[0] < 0 ? std::string() : graph.valueNames[node.inputs[0]];
  for (const auto *infos : {&file.value_info(), &file.input()})
    for (const onnx::ValueInfo &info : *infos)
      if (!name.empty() && info.name() == name)
        extents = dimsBehind(info.type().tensor_type().shape(), 2);
  return convolutionLimit(node, kernel, extents);
}

std::string Importer::convolutionLimit(const GraphNode &node, const std::vector<int64_t> &kernel, const std::vector<int64_t> &extents) const {
  auto given = [&](const char *name) { return intsAttribute(node, name).value_or(std::vector<int64_t>()); };
  auto all = [](const std::vector<int64_t> &values, int64_t value) {
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == value; });
  };
  std::vector<int64_t> pads = given("pads"), dilations = given("dilations"), strides = given("strides"), shape = given("kernel_shape");
  std::string padding = stringAttribute(node, "auto_pad", "NOTSET"), found;
  auto say = [&](const std::string &what) { found += (found.empty() ? "" : ", ") + what; };
  if (int64_t groups = intAttribute(node, "group", 1); groups != 1)
    say(std::to_string(groups) + " groups");
  if (!all(pads, 0))
    say("padding " + spaced(pads));
  if (padding != "NOTSET" && padding != "VALID")
    say("padding " + padding);
  if (!all(dilations, 1))
    say("dilation " + spaced(dilations));
  if (!shape.empty() && !kernel.empty() && shape != kernel)
    say("kernel_shape " + spaced(shape) + " of a kernel of " + spaced(kernel));
  if (strides.empty())
    strides.assign(kernel.size(), 1);
  if (!kernel.empty() && strides.size() != kernel.size())
    say(std::to_string(strides.size()) + " strides for " + std::to_string(kernel.size()) + " dimensions of positions");
  else if (extents.size() == kernel.size()) // one window over everything needs no stride
    for (size_t i = 0; i < kernel.size() && found.empty(); ++i)
      if (kernel[i] < 1 || (strides[i] != kernel[i] && extents[i] != kernel[i]) || extents[i] % kernel[i] != 0)
        say("a kernel of " + spaced(kernel) + " with stride " + spaced(strides) + " over " + spaced(extents));
  if (found.empty())
    return found;
  return node.op +
         ": only windows that tile their input are supported (stride = kernel, no padding, no dilation, one group), as in the embedding of patches; "
         "found " +
         found;
}
