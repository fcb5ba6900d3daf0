// What the file asks for and the importer does not have, found before anything is interpreted: all of it at once.
#include "ImportState.h"
#include "Interpret.h"
#include "Operators.h"

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

LogicalResult zorse::onnx_import::checkSupported(ImportState &state, const std::vector<int> &wanted) {
  Limits limits;
  std::function<void(const GraphBody &, const llvm::DenseSet<int> *)> visit = [&](const GraphBody &body, const llvm::DenseSet<int> *live) {
    for (const GraphNode &node : body.nodes) {
      bool needed = !live || std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live->contains(value); });
      if (!needed)
        continue;
      if (const Registration *rule = registrationOf(node)) {
        for (const std::string &problem : notUnderstood(node, *rule))
          limits.beyond[node.op + ": " + problem].push_back(node.name);
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
  for (size_t i = state.graph.body.nodes.size(); i-- > 0;) {
    const GraphNode &node = state.graph.body.nodes[i];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live.contains(value); }))
      use(node);
  }
  visit(state.graph.body, &live);
  std::string text = limits.text();
  return text.empty() ? success() : error(state, text);
}
