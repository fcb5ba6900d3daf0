// Finds everything in the file that the importer does not support, before any node is interpreted,
// and reports it in one error.
#include "ImportState.h"
#include "Interpret.h"
#include "Operators.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// "2 nodes: 'a', 'b'"; names at most three nodes.
std::string listed(const std::vector<std::string> &names) {
  std::string text = std::to_string(names.size()) + (names.size() == 1 ? " node: " : " nodes: ");
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > 3 ? ", ..." : "");
}

/// Unsupported operators, and unsupported uses of supported operators, each with the names of its
/// nodes.
struct Limits {
  std::map<std::string, std::vector<std::string>> unknown, beyond;

  void visit(const GraphNode &node) {
    if (const Registration *rule = registrationOf(node)) {
      for (const std::string &problem : notUnderstood(node, *rule))
        beyond[node.op + ": " + problem].push_back(node.name);
    } else {
      unknown[node.domain.empty() ? node.op : node.domain + "." + node.op].push_back(node.name);
    }
    for (auto &[name, nested] : node.bodies)
      for (const GraphNode &inner : nested->nodes)
        visit(inner);
  }

  std::string text() const {
    std::string message;
    for (auto &[op, names] : unknown)
      message += (message.empty() ? "" : ", ") + op + " (" + listed(names) + ")";
    if (!unknown.empty())
      message = std::to_string(unknown.size()) +
                (unknown.size() == 1 ? " operator is" : " operators are") +
                " not supported: " + message;
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

LogicalResult zorse::onnx_import::checkSupported(ImportState &state,
                                                 const std::vector<int> &wanted) {
  Limits limits;
  for (const GraphNode *node : neededNodes(state.graph.body, wanted))
    limits.visit(*node);
  std::string text = limits.text();
  return text.empty() ? success() : error(state, text);
}
